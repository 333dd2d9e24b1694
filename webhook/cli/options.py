"""Defines the options that several commands share, and the exit statuses."""

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, wraps
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from webhook.cli import outputs, settings, watch
from webhook.cli.outputs import Wanted
from webhook.cli.parser import DNS_LABEL, TYPED, Either, NamedPath, WordChoice
from webhook.model import Problem, Unusable, immutable
from webhook.text.spelling import hint

DENIED, UNUSABLE, INTERNAL, WARNED, INTERRUPTED, UNREAD = 1, 2, 3, 4, 130, 141

FAIL_ON = ("deny", "warn", "never")

Function = TypeVar("Function", bound=Callable[..., Any])


UNJUDGED = "unjudged"
"""The value of `--fail-on` that fails a run if an object has a container or a GPU but its kind cannot be judged.

It does so too if an object deploys others than those that were rendered.
"""


def status(fail_on: str, *, denied: bool, warned: bool, unjudged: bool = False, unusable: bool = False) -> int:
    """Return the exit status for the worst result of a run, among those that `--fail-on` names.

    Unusable input always fails a run, because it was not judged.
    """
    if unusable:
        return UNUSABLE
    if (denied and fail_on != "never") or (unjudged and fail_on == UNJUDGED):
        return DENIED
    return WARNED if warned and fail_on == "warn" else 0


PATH = NamedPath()

POLICY = "file or folder, or REV:PATH in Git; default: ./policies if it exists, else the sample policy"
"""The sources that `inputs.load_policy` reads, for the help of an option or an argument."""


POLICY_VARIABLE, FACTS_VARIABLE = "SLICEWARDEN_POLICY", "SLICEWARDEN_FACTS"
"""The environment variables with the defaults of `--policy` and `--facts`. FACTS may list several files, like PATH."""


class _Paths(click.Option):
    """An option with paths, which may come from the environment or a file. Errors about them name that source."""

    def value_from_envvar(self, ctx: click.Context) -> Any:
        value = None if ctx.resilient_parsing else self.resolve_envvar_value(ctx)
        if value is None:
            return None
        paths = (value,) if self.envvar == POLICY_VARIABLE else tuple(filter(None, value.split(os.pathsep)))
        for path in paths:
            _exists(str(self.envvar), path)
        return paths

    def get_default(self, ctx: click.Context, call: bool = True) -> Any:
        return None if ctx.resilient_parsing else super().get_default(ctx, call)


def _exists(variable: str, path: str) -> None:
    """Raise Unusable if a variable names a path that does not exist, unless it may be REV:PATH in Git."""
    if not os.path.lexists(path) and not (variable == POLICY_VARIABLE and ":" in path):
        raise Unusable((Problem(variable, 0, f"no such file or folder: {path}"),))


def once(*names: str, also: str = "", **more: Any) -> Callable[[Function], Function]:
    """Add an option that refuses a second value. click would silently use the last one.

    `also` ends the error message.
    """

    def single(context: click.Context, parameter: click.Parameter, values: Sequence[Any]) -> Any:
        if len(values) > 1:
            raise click.BadParameter(f"given twice; give it once{also}", context, parameter)
        return values[0] if values else None

    return click.option(*names, cls=_Paths, multiple=True, callback=single, **more)


def policy(meaning: str = POLICY, *, file: bool = True, alone: bool = False) -> Callable[[Function], Function]:
    """Add the option `--policy` with this help text.

    Without the option, the variable SLICEWARDEN_POLICY names the policy; if that is unset, the settings file does,
    unless `file` is false. If `alone`, only the option counts, because it replaces other policies.
    """
    sources: dict[str, Any] = {} if alone else {"envvar": POLICY_VARIABLE}
    if file and not alone:
        sources["default"] = lambda: [path] if (path := settings.policy()) else []
    return once("--policy", type=PATH, help=meaning, also="; `slicewarden diff` compares two policies", **sources)


class _FactsOrLive(Either, _Paths):
    """`--facts` of a command that also has `--live`: with `--live`, the defaults of `--facts` are ignored."""


def policy_path(function: Function) -> Function:
    """Add the argument for the policy that a command works on, with the defaults of `--policy`."""

    def named(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
        if value and context.get_parameter_source(str(parameter.name)) is ParameterSource.ENVIRONMENT:
            _exists(POLICY_VARIABLE, value)
        return value

    settled: dict[str, Any] = {"envvar": POLICY_VARIABLE, "default": settings.policy, "callback": named}
    return click.argument("policy", required=False, type=PATH, metavar="[PATH]", help=POLICY, **settled)(function)


def facts(live: str = "", *, needed: bool = False, file: bool = True) -> Callable[[Function], Function]:
    """Add the option `--facts`, and the option `--live` with the help text `live`, if that is not empty.

    A command line may have only one of them. If it has neither, the variable SLICEWARDEN_FACTS names the files; if that
    is unset, the settings file does, unless `file` is false. With `needed`, it is an error if none of these is given.
    """
    meaning = "what `slicewarden facts` wrote, or the output of kubectl get -o json; repeatable"
    sources: dict[str, Any] = {"envvar": FACTS_VARIABLE, **({"default": settings.facts} if file else {})}
    from_files = partial(click.option, "--facts", multiple=True, type=PATH, help=meaning, **sources)
    if not live:
        return from_files(cls=_Paths)
    from_cluster = click.option("--live", cls=Either, other="facts", is_flag=True, help=live)
    return all_of(from_files(cls=_FactsOrLive, other="live", needed=needed), from_cluster)


def are_facts_of_repository() -> bool:
    """Whether the settings file names the facts of this command line, but not its policy.

    Then authors who cannot change the policy may be able to change the facts.
    """
    source = click.get_current_context().get_parameter_source
    return source("facts") is ParameterSource.DEFAULT and source("policy") is not ParameterSource.DEFAULT


def cluster(function: Function) -> Function:
    """Add the options that name a cluster."""
    meaning = "default: the pod's service account, else kubectl's"
    file = once("--kubeconfig", type=PATH, metavar="FILE", help=meaning)
    context = once("--context", metavar="NAME", help="context of the kubeconfig")
    return all_of(file, context)(function)


def table_or_json(function: Function) -> Function:
    """Add `--format`, with the values `table` and `json`."""
    choice, meaning = WordChoice(("table", "json")), "table (for people) or json"
    return click.option("--format", "-o", "form", type=choice, default="table", help=meaning)(function)


def namespace(meaning: str) -> Callable[[Function], Function]:
    """Add `--namespace` with this help text."""
    return once("--namespace", "-n", type=_namespace, metavar="NAME", help=meaning)


def _namespace(text: str) -> str:
    if not re.fullmatch(DNS_LABEL, text):
        raise click.BadParameter(
            f"{text!r} is not a namespace name: use up to 63 of a-z, 0-9 and -, and no - at either end"
        )
    return text


def address(text: str) -> tuple[str, int]:
    """Read HOST:PORT. Used as the type of an option."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise click.BadParameter(f"{text!r} is not HOST:PORT")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - no host means all of them


def health(function: Function) -> Function:
    """Add the option for the address of metrics and health, for a command that opens no other port."""
    return click.option(
        "--listen",
        type=address,
        default="0.0.0.0:8080",
        metavar="HOST:PORT",
        help="address for metrics and health; default: 0.0.0.0:8080",
    )(function)


def only_live(*, live: bool, **given: object) -> None:
    """Refuse options that need `--live`, if it is absent. Raises Unusable."""
    for name, value in given.items():
        if not live and value not in (None, False):
            raise Unusable((Problem(f"--{name.replace('_', '-')}", 0, "needs --live"),))


@immutable
class Rules:
    """The rules whose findings a run reports: those that `--rule` names, or all except those of `--skip-rule`."""

    named: frozenset[str] = frozenset()
    skipped: frozenset[str] = frozenset()

    def __contains__(self, rule: object) -> bool:
        return (not self.named or rule in self.named) and rule not in self.skipped


def rules(more: Iterable[str] = ()) -> Callable[[Function], Function]:
    """Add `--rule` and `--skip-rule`. They accept the ids of the rules, and the names in `more`.

    `chosen` reads both.
    """

    def ids() -> list[str]:
        from webhook import rules  # all of them, which a page of help does not need

        return [*(rule.id for rule in rules.walk()), *more]

    def known(context: click.Context, parameter: click.Parameter, values: Sequence[str]) -> Sequence[str]:
        for value in values:
            if value not in ids():
                raise click.BadParameter(f"no such rule{hint(value, ids())}", context, parameter)
        context.meta.setdefault(_RULES, {})[parameter.name] = frozenset(values)
        return values

    def complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
        return [name for name in ids() if name.startswith(incomplete)]

    settled: dict[str, Any] = {
        "multiple": True,
        "metavar": "ID",
        "callback": known,
        "shell_complete": complete,
        "expose_value": False,
    }
    return all_of(
        click.option("--rule", help="report only the findings of this rule, and no patches; repeatable", **settled),
        click.option("--skip-rule", help="leave out the findings of this rule; repeatable", **settled),
    )


_RULES = "webhook.rules"


def chosen() -> Rules | None:
    """Return the rules that the command line chooses; None if it chooses all."""
    given = click.get_current_context().meta.get(_RULES, {})
    made = Rules(given.get("rule", frozenset()), given.get("skip_rule", frozenset()))
    return made if made.named or made.skipped else None


STATISTICS = click.option(
    "--statistics",
    is_flag=True,
    help="count findings by rule, and by rule and namespace, instead of listing them; as a table or as json",
)
"""The option `--statistics`; `counted` checks the formats."""


def counted(reports: Iterable[Wanted]) -> None:
    """Refuse `--statistics` with any format except `table` and `json`. Raises UsageError."""
    for each in reports:
        if each.format not in ("table", "json"):
            raise click.UsageError(f"--statistics has no {each.format} format; use table or json")


WATCH = click.option("--watch", is_flag=True, help="run again whenever a file changes; Ctrl-C ends it, with status 0")
"""The option `--watch`."""


def again(files: Callable[[], Iterable[str]]) -> int:
    """Run the current command, with the same options, whenever one of the files changes."""
    context = click.get_current_context()
    run = context.command.callback
    assert run is not None  # noqa: S101 - it is what called this
    return watch.watch(files, partial(run, **{**context.params, "watch": False}), sleep=time.sleep)


def rendering(function: Function) -> Function:
    """Add `--fetch` and `--no-cache`, for commands that render what files deploy."""
    fetch = click.option("--fetch", is_flag=True, help="let kustomize and helm download remote bases and charts")
    cache = click.option("--no-cache", is_flag=True, help="render again, also what has not changed")
    return all_of(fetch, cache)(function)


EVERYTHING = click.option("--all", "everything", is_flag=True, help="list all objects, also those without findings")
"""The option `--all`."""


def report(formats: Mapping[str, str], fail_on: Sequence[str] = FAIL_ON) -> Callable[[Function], Function]:
    """Add `--format` and `--output`, which are repeatable, `--fail-on`, `--quiet` and `--color`.

    `formats` has the purpose of each format by its name; the first one is the default. The command receives the
    formats, each with its file, as `wanted`. If `fail_on` is empty, it has no `--fail-on`. webhook/cli/outputs.py reads
    `--quiet` and `--color` from click's context.
    """
    known = tuple(formats)
    options = [
        click.option(
            "--format",
            "-o",
            "formats",
            cls=_Formats,
            purposes=formats,
            multiple=True,
            type=_Format(known),
            metavar="FORMAT",
            help="repeatable; each --format applies to the --output that follows it",
        ),
        click.option(
            "--output",
            "files",
            multiple=True,
            type=PATH,
            metavar="FILE",
            help="write the report to this file; default: standard output",
        ),
    ]
    if fail_on:
        meaning = f"the least severe result that makes the exit status non-zero; default: {fail_on[0]}"
        options.append(click.option("--fail-on", type=WordChoice(tuple(fail_on)), default=fail_on[0], help=meaning))

    def add(function: Function) -> Any:
        @wraps(function)
        def paired(*, formats: Sequence[str], files: Sequence[str], **values: Any) -> Any:
            return function(wanted=_wanted(formats, files, known), **values)

        return all_of(*options, _QUIET, _COLOR)(paired)

    return add


class _Formats(click.Option):
    """The option `--format`. The purposes are read only for help, because each requires the import of its format."""

    def __init__(self, *names: Any, purposes: Mapping[str, str], **settings: Any) -> None:
        super().__init__(*names, **settings)
        self._purposes = purposes

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        row = super().get_help_record(ctx)
        named = ", ".join(f"{name} ({purpose})" for name, purpose in self._purposes.items())
        return row and (row[0], f"{named}; {row[1]}")


class _Format(WordChoice):
    """A format. The error for the name of a file names the option that takes one."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        if re.search("[./]", str(value)):
            return f"unknown {value!r}; --output takes a file"
        return super().get_invalid_choice_message(value, ctx)


def _quiet(context: click.Context, _: click.Parameter, value: bool) -> None:
    context.meta[outputs.QUIET] = value


def _color(context: click.Context, _: click.Parameter, value: str) -> None:
    context.color = {"auto": None, "always": True, "never": False}[value]


_QUIET = click.option(
    "--quiet",
    "-q",
    is_flag=True,
    expose_value=False,
    callback=_quiet,
    help="print only findings and errors: no notes, no summary",
)
_COLOR = click.option(
    "--color",
    type=WordChoice(("auto", "always", "never")),
    default="auto",
    expose_value=False,
    callback=_color,
    help="colour in tables; auto: on a terminal",
)


def pages(word: str, complete: Callable[[click.Context, click.Parameter, str], Any]) -> Callable[[Function], Function]:
    """Add the argument that names one page, and `--markdown` for all pages. They exclude each other."""

    def alone(context: click.Context, _: click.Parameter, value: Any) -> Any:
        if value and context.params.get("markdown"):
            raise click.UsageError(f"--markdown shows all pages: leave out {word.upper()} or --markdown", context)
        return value

    markdown = click.option("--markdown", is_flag=True, is_eager=True, help="all pages, in Markdown")
    named = click.argument(word, required=False, callback=alone, shell_complete=complete, help=f"the id of a {word}")
    return all_of(named, markdown)


def all_of(*options: Callable[[Any], Any]) -> Callable[[Function], Function]:
    """Combine several options into one decorator, in their order."""

    def add(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return add


_BESIDE = frozenset(("github", "table"))
"""Formats that may share standard output with another: their annotations are separate lines."""


def _wanted(formats: Sequence[str], files: Sequence[str], known: Sequence[str]) -> Sequence[Wanted]:
    """Pair the formats with the files that were typed after them; the first format that is `known` is the default.

    Raises UsageError for a file without a format of its own, and Unusable for two reports in one place.
    """
    typed = click.get_current_context().meta[TYPED]
    reports = _paired([name for name in typed if name in ("formats", "files")], iter(formats), iter(files))
    given = [report._replace(format=report.format or known[0]) for report in reports] or [Wanted(known[0], None)]
    shown = [report.format for report in given if report.file is None]
    if len(shown) != len(set(shown)) or (len(shown) > 1 and not _BESIDE.issuperset(shown)):
        text = f"{' and '.join(shown)} would both go to standard output; give all but one of them an --output"
        raise Unusable((Problem("--format", 0, text),))
    written = [report.file for report in given if report.file is not None]
    if twice := next((file for file in written if written.count(file) > 1), None):
        raise Unusable((Problem("--output", 0, f"two reports would go to {twice}"),))
    return given


def _paired(typed: Sequence[str], formats: Iterator[str], files: Iterator[str]) -> list[Wanted]:
    """Pair formats and files: a file belongs to the format before it. Only the first file may precede its format."""
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
