"""Options that several commands have, and the exit statuses they share."""

import re
from argparse import Action, ArgumentParser, ArgumentTypeError, Namespace, _MutuallyExclusiveGroup
from collections.abc import Mapping, Sequence
from typing import Any

from webhook.model import Problem, Unusable
from webhook.outputs import Wanted

DENIED, UNUSABLE, INTERNAL, WARNED, INTERRUPTED = 1, 2, 3, 4, 130

FAIL_ON = ("deny", "warn", "never")


def status(fail_on: str, *, denied: bool, warned: bool, unusable: bool = False) -> int:
    """Return the exit status that says the worst of a run, of what `--fail-on` lets it fail for.

    Unusable input is never passed over: what could not be read was not judged.
    """
    if unusable:
        return UNUSABLE
    if denied and fail_on != "never":
        return DENIED
    return WARNED if warned and fail_on == "warn" else 0


POLICY = "file or folder, or REV:PATH of a Git repository; default: ./policies if it is there, else the sample"
"""What `inputs.load_policy` reads, for the help of an option or an argument."""


def policy(parser: ArgumentParser, meaning: str = POLICY) -> None:
    """Add `--policy`, and say what it means."""
    parser.add_argument("--policy", action=_Once, type=path, metavar="PATH", help=meaning)


def path(text: str) -> str:
    """Read what names a file or folder. Raises ArgumentTypeError for nothing, as a shell's unset variable is."""
    if not text:
        raise ArgumentTypeError("is empty, and names nothing; is a variable not set?")
    return text


class _Once(Action):
    """Refuses a second value: the first would be dropped in silence."""

    def __call__(self, parser: ArgumentParser, chosen: Namespace, value: Any, option: str | None = None) -> None:
        if getattr(chosen, self.dest) is not None:
            known = "; `slicewarden diff` compares two policies" if self.dest == "policy" else ""
            parser.error(f"argument {option}: given twice, and only one counts{known}")
        setattr(chosen, self.dest, value)


def facts(parser: ArgumentParser, *, needed: bool = False) -> _MutuallyExclusiveGroup:
    """Add `--facts`, in a group that other sources of facts may join."""
    group = parser.add_mutually_exclusive_group(required=needed)
    group.add_argument(
        "--facts",
        action="append",
        type=path,
        metavar="PATH",
        help="namespaces, nodes and so on, as kubectl get -o yaml prints them; may be repeated",
    )
    return group


def cluster(parser: ArgumentParser) -> None:
    """Add what says which cluster is meant."""
    parser.add_argument(
        "--kubeconfig",
        action=_Once,
        type=path,
        metavar="FILE",
        help="default: the pod's service account, else kubectl's",
    )
    parser.add_argument("--context", action=_Once, metavar="NAME", help="of the kubeconfig")


def namespace(parser: ArgumentParser, meaning: str) -> None:
    """Add `--namespace`, and say what it means."""
    parser.add_argument("--namespace", "-n", action=_Once, type=_namespace, metavar="NAME", help=meaning)


_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""A DNS-1123 label, which a namespace's name is (apimachinery pkg/util/validation/validation.go)."""


def _namespace(text: str) -> str:
    if not _LABEL.fullmatch(text):
        raise ArgumentTypeError(f"{text!r} is no name of a namespace: up to 63 of a-z, 0-9 and - within")
    return text


def only_live(chosen: Namespace, *options: str) -> None:
    """Refuse options that say nothing of facts in a file. Raises Unusable."""
    for option in () if chosen.live else options:
        if getattr(chosen, option.removeprefix("--").replace("-", "_")) not in (None, False):
            raise Unusable((Problem(option, 0, "needs --live"),))


def report(parser: ArgumentParser, formats: Mapping[str, str], fail_on: Sequence[str] = FAIL_ON) -> None:
    """Add `--format` and `--output`, which may stand several times, and `--fail-on`.

    `formats` are the names and what each is for; the first is the default. `wanted` reads what was given. Where
    `fail_on` is empty what makes a run fail is no choice.
    """
    parser.set_defaults(reports=(), formats=tuple(formats))
    named = ", ".join(f"{name} ({what})" for name, what in formats.items())
    parser.add_argument(
        "--format",
        action=_Format,
        choices=tuple(formats),
        metavar="FORMAT",
        help=f"{named}; may stand several times, each before the --output it goes to",
    )
    parser.add_argument(
        "--output", action=_Output, type=path, metavar="FILE", help="write the report there, not to standard output"
    )
    if fail_on:
        parser.add_argument(
            "--fail-on",
            choices=fail_on,
            default=fail_on[0],
            help=f"what makes the exit status other than 0, besides unusable input; default: {fail_on[0]}",
        )


class _Format(Action):
    """Begins a report; an `--output` before the first format is that one's."""

    def __call__(self, _: ArgumentParser, chosen: Namespace, value: Any, __: str | None = None) -> None:
        given: tuple[Wanted, ...] = chosen.reports
        if given and not given[-1].format:
            chosen.reports = (*given[:-1], given[-1]._replace(format=value))
        else:
            chosen.reports = (*given, Wanted(value, None))


class _Output(Action):
    """Says where the report goes whose format stands before it."""

    def __call__(self, parser: ArgumentParser, chosen: Namespace, value: Any, _: str | None = None) -> None:
        given: tuple[Wanted, ...] = chosen.reports
        if not given:
            chosen.reports = (Wanted("", value),)
        elif given[-1].file is None:
            chosen.reports = (*given[:-1], given[-1]._replace(file=value))
        else:
            parser.error(f"--output {value}: name its --format before it")


_BESIDE = frozenset(("github", "table"))
"""Formats that may share standard output: annotations are lines of their own there."""


def wanted(chosen: Namespace) -> Sequence[Wanted]:
    """The reports that were asked for; one in the default format without any. Raises Unusable."""
    given = [each._replace(format=each.format or chosen.formats[0]) for each in chosen.reports]
    given = given or [Wanted(chosen.formats[0], None)]
    shown = [each.format for each in given if each.file is None]
    if len(shown) != len(set(shown)) or (len(shown) > 1 and not _BESIDE.issuperset(shown)):
        said = f"{' and '.join(shown)} would both go to standard output; give all but one an --output"
        raise Unusable((Problem("--format", 0, said),))
    files = [each.file for each in given if each.file is not None]
    if twice := next((file for file in files if files.count(file) > 1), None):
        raise Unusable((Problem("--output", 0, f"two reports would go to {twice}"),))
    return given
