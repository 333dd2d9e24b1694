"""The options that several commands share, and the exit statuses."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import click

from webhook.cli.outputs import Wanted
from webhook.cli.parser import TYPED, Choice, Either, NamedPath
from webhook.model import Problem, Unusable

DENIED, UNUSABLE, INTERNAL, WARNED, INTERRUPTED = 1, 2, 3, 4, 130

FAIL_ON = ("deny", "warn", "never")

Function = TypeVar("Function", bound=Callable[..., Any])


def status(fail_on: str, *, denied: bool, warned: bool, unusable: bool = False) -> int:
    """Return the exit status for the worst that a run found, among what `--fail-on` lets it fail for.

    Unusable input always fails a run: what could not be read was not judged.
    """
    if unusable:
        return UNUSABLE
    if denied and fail_on != "never":
        return DENIED
    return WARNED if warned and fail_on == "warn" else 0


PATH = NamedPath()

POLICY = "file or folder, or REV:PATH of a Git repository; default: ./policies if it is there, else the sample"
"""The sources that `inputs.load_policy` reads, for the help of an option or an argument."""


def once(*names: str, also: str = "", **settings: Any) -> Callable[[Function], Function]:
    """Add an option that refuses a second value; click would silently take the last. `also` ends the error."""

    def single(context: click.Context, parameter: click.Parameter, values: Sequence[Any]) -> Any:
        if len(values) > 1:
            raise click.BadParameter(f"given twice, and only one counts{also}", context, parameter)
        return values[0] if values else None

    return click.option(*names, multiple=True, callback=single, **settings)


def policy(meaning: str = POLICY) -> Callable[[Function], Function]:
    """Add `--policy` with its meaning."""
    return once("--policy", type=PATH, help=meaning, also="; `slicewarden diff` compares two policies")


def facts(live: str = "", *, needed: bool = False) -> Callable[[Function], Function]:
    """Add `--facts`, and `--live` if its meaning is given; they exclude each other, and one is `needed` or none."""
    meaning = "namespaces, nodes and so on, as kubectl get -o yaml prints them; may be repeated"
    from_files = partial(click.option, "--facts", multiple=True, type=PATH, help=meaning)
    if not live:
        return from_files()
    from_cluster = click.option("--live", cls=Either, other="facts", is_flag=True, help=live)
    return all_of(from_files(cls=Either, other="live", needed=needed), from_cluster)


def cluster(function: Function) -> Function:
    """Add the options that name a cluster."""
    meaning = "default: the pod's service account, else kubectl's"
    file = once("--kubeconfig", type=PATH, metavar="FILE", help=meaning)
    context = once("--context", metavar="NAME", help="of the kubeconfig")
    return all_of(file, context)(function)


def namespace(meaning: str) -> Callable[[Function], Function]:
    """Add `--namespace` with its meaning."""
    return once("--namespace", "-n", type=_namespace, metavar="NAME", help=meaning)


_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""A DNS-1123 label, which a namespace's name is (apimachinery pkg/util/validation/validation.go)."""


def _namespace(text: str) -> str:
    if not _LABEL.fullmatch(text):
        raise click.BadParameter(f"{text!r} is no name of a namespace: up to 63 of a-z, 0-9 and - within")
    return text


def only_live(*, live: bool, **given: object) -> None:
    """Refuse options that need `--live`. Raises Unusable."""
    for name, value in given.items():
        if not live and value not in (None, False):
            raise Unusable((Problem(f"--{name.replace('_', '-')}", 0, "needs --live"),))


def report(formats: Mapping[str, str], fail_on: Sequence[str] = FAIL_ON) -> Callable[[Function], Function]:
    """Add `--format` and `--output`, which may stand several times, and `--fail-on`.

    `formats` are names and purposes; the first name is the default. `wanted` pairs the values. Without
    `fail_on` there is no such option.
    """
    named = ", ".join(f"{name} ({purpose})" for name, purpose in formats.items())
    options = [
        click.option(
            "--format",
            "formats",
            multiple=True,
            type=Choice(tuple(formats)),
            metavar="FORMAT",
            help=f"{named}; may stand several times, each before the --output it goes to",
        ),
        click.option(
            "--output",
            "files",
            multiple=True,
            type=PATH,
            metavar="FILE",
            help="write the report there, not to standard output",
        ),
    ]
    if fail_on:
        meaning = f"what makes the exit status other than 0, besides unusable input; default: {fail_on[0]}"
        options.append(click.option("--fail-on", type=Choice(tuple(fail_on)), default=fail_on[0], help=meaning))
    return all_of(*options)


def pages(word: str, complete: Callable[[click.Context, click.Parameter, str], Any]) -> Callable[[Function], Function]:
    """Add the argument that names one page, and `--markdown` for all of them; they exclude each other."""

    def alone(context: click.Context, _: click.Parameter, value: Any) -> Any:
        if value and context.params.get("markdown"):
            raise click.UsageError(f"--markdown shows all pages: leave out {word.upper()}, or it", context)
        return value

    markdown = click.option("--markdown", is_flag=True, is_eager=True, help="all pages, in Markdown")
    named = click.argument(word, required=False, callback=alone, shell_complete=complete, help="its id")
    return all_of(named, markdown)


def all_of(*options: Callable[[Any], Any]) -> Callable[[Function], Function]:
    """Add several options, in their order."""

    def add(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return add


_BESIDE = frozenset(("github", "table"))
"""Formats that may share standard output: annotations are lines of their own there."""


def wanted(formats: Sequence[str], files: Sequence[str], known: Iterable[str]) -> Sequence[Wanted]:
    """Pair the formats with the files that were typed after them; the first format that is `known` is the default.

    Raises UsageError for a file without a format of its own, and Unusable for two reports in one place.
    """
    default = next(iter(known))
    typed = click.get_current_context().meta[TYPED]
    reports = _paired([name for name in typed if name in ("formats", "files")], iter(formats), iter(files))
    given = [report._replace(format=report.format or default) for report in reports] or [Wanted(default, None)]
    shown = [report.format for report in given if report.file is None]
    if len(shown) != len(set(shown)) or (len(shown) > 1 and not _BESIDE.issuperset(shown)):
        text = f"{' and '.join(shown)} would both go to standard output; give all but one an --output"
        raise Unusable((Problem("--format", 0, text),))
    written = [report.file for report in given if report.file is not None]
    if twice := next((file for file in written if written.count(file) > 1), None):
        raise Unusable((Problem("--output", 0, f"two reports would go to {twice}"),))
    return given


def _paired(typed: Sequence[str], formats: Iterator[str], files: Iterator[str]) -> list[Wanted]:
    """Pair what was typed: a file belongs to the format before it; only the first file may stand before its format."""
    reports: list[Wanted] = []
    for name in typed:
        last = reports[-1] if reports else None
        if name == "formats":
            if last and not last.format:
                reports[-1] = last._replace(format=next(formats))
            else:
                reports.append(Wanted(next(formats), None))
        elif last is None:
            reports.append(Wanted("", next(files)))
        elif last.file is None:
            reports[-1] = last._replace(file=next(files))
        else:
            raise click.UsageError(f"--output {next(files)}: name its --format before it")
    return reports
