"""`--check FILE` and `--check --live`: compares what is made from a policy with what is there."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from webhook import rules
from webhook.cli import inputs, options, outputs
from webhook.engine import registered
from webhook.engine.registration import NAME
from webhook.facts.snapshot import Facts
from webhook.fallback import current, mutations, policies
from webhook.fallback.answers import ValidationActions
from webhook.fallback.params import Params
from webhook.model import Object, Problem, Unusable
from webhook.policy.model import Policy

if TYPE_CHECKING:
    from webhook.cluster.client import Api

STALE = 1
"""The exit status of a check that found differences."""

Command = Callable[..., Any]


@dataclass(frozen=True)
class Comparison:
    """A part of what a policy makes, and how it is compared.

    `ours` chooses the objects in question among those of a file, and `read` reads those of a cluster. `absent` says
    that a file has none. `differences` says what is not as it has to be, `more` the rest of the sentence on one that
    is current, and `caution` what the `command` that makes it again would lose. The command's output goes to a file
    like `file`, and `apply` says what to do then. `digest` is the hash that it bears. `none` is said of a cluster
    without it, where it is compared beside another.
    """

    name: str
    absent: str
    ours: Callable[[Iterable[Object]], list[Object]]
    read: "Callable[[Api], list[Object]]"
    differences: Callable[[Sequence[Object]], list[str]]
    command: Callable[[Sequence[Object]], str]
    file: str
    apply: str
    digest: str
    more: Callable[[Sequence[Object]], str] = lambda _: ""
    caution: Callable[[Sequence[Object]], str] = lambda _: ""
    none: str = ""


def shared(function: Command) -> Command:
    """Add FILE, `--check` and `--live`. `given` reads them."""
    file = click.argument(
        "file", required=False, type=options.PATH, metavar="[FILE]", help="manifests to compare; - is standard input"
    )
    check = click.option(
        "--check", is_flag=True, help="compare FILE, or the cluster with --live, with what the policy needs"
    )
    live = click.option("--live", is_flag=True, help="with --check: ask the cluster")
    return options.all_of(file, check, live)(function)


def given(file: str | None, *, check: bool, live: bool) -> None:
    """Refuse FILE, `--check` and `--live` that do not fit together. Raises UsageError."""
    if check and (file is None) is not live:
        raise click.UsageError("--check needs either FILE or --live")
    if not check and (file is not None or live):
        raise click.UsageError("FILE and --live need --check")


def registration(policy: Policy, source: str | None) -> Comparison:
    """Compare the webhook configurations. `source` is how the command line names the policy."""

    def read(api: "Api") -> list[Object]:
        from webhook.cluster import registered as cluster  # brings the client, which only a live cluster needs

        return cluster.configurations(api, NAME)

    return Comparison(
        "the registration",
        f"no webhook configuration named {NAME} in it",
        registered.ours,
        read,
        lambda found: registered.differences(policy, found),
        lambda _: f"slicewarden registration{_policy(source)}",
        "registration.yaml",
        "apply it with your overlay",
        policy.digest,
    )


def options_of(answer: ValidationActions, params: Params | None, *, static: bool) -> str:
    """Write the options of `slicewarden fallback` that make a fallback of this form."""
    words = {
        "as": "static" if static else "",
        "actions": "" if answer is ValidationActions.DENY else answer,
        "params": params or "",
    }
    return "".join(f" --{name} {word}" for name, word in words.items() if word)


def fallback(
    policy: Policy,
    source: str | None,
    answer: ValidationActions | None = None,
    params: Params | None = None,
    *,
    static: bool = False,
    mutate: bool = False,
    facts: Facts | None = None,
) -> Comparison:
    """Compare the fallback. Without an answer or a ConfigMap that is wanted, those count with which it was made.

    Mutations are compared where there are any; with `mutate` they have to be there. In files neither mutations nor
    a ConfigMap can be: the comparison raises UsageError if one is wanted there.
    """

    def read(api: "Api") -> list[Object]:
        from webhook.cluster import registered as cluster  # brings the client, which only a live cluster needs

        found = cluster.policies(api, current.SELECTOR)
        read = params or current.params(found)
        return [*found, *(cluster.config_map(api, *read) if found and read else ())]

    def wanted(found: Sequence[Object]) -> ValidationActions:
        return answer or current.made_with(found) or next(iter(current.answers(found)), ValidationActions.DENY)

    def steers(found: Sequence[Object]) -> bool:
        return any(item["kind"] in current.MUTATING for item in found)

    def form(found: Sequence[Object]) -> tuple[bool, Params | None]:
        files = static or current.of_files(found)
        unfit = "--params" if params else "--mutate" if mutate else ""
        if files and unfit:
            raise click.UsageError(f"{unfit} cannot be used with --as static; leave it out")
        return files, None if files else params or current.params(found)

    def differences(found: Sequence[Object]) -> list[str]:
        files, read = form(found)
        made = policies.fallback(policy, rules.walk(), wanted(found), read)
        made = policies.static(made, policy) if files else made
        made += (
            mutations.mutating(policy, rules.walk(), facts or Facts())
            if mutate and not steers(found)
            else mutations.again(policy, rules.walk(), facts, found)
        )
        actions = answer is not None or (wanted(found) is ValidationActions.BY_RULE and not current.only_records(found))
        return current.differences(made, found, actions=actions)

    def command(found: Sequence[Object]) -> str:
        files, read = form(found)
        steering = _steering(policy, found) if mutate or steers(found) else ""
        return f"slicewarden fallback{_policy(source)}{options_of(wanted(found), read, static=files)}{steering}"

    def more(found: Sequence[Object]) -> str:
        told = current.told(found)
        return f", actions: {told}" if told else ""

    def caution(found: Sequence[Object]) -> str:
        if answer or len(current.answers(found)) < 2 or current.made_with(found):
            return ""
        return f"note: the bindings have several actions, {current.told(found)}, and the command writes the strictest"

    absent = "no ValidatingAdmissionPolicy of Slicewarden in it"
    return Comparison(
        "the fallback",
        absent,
        current.ours,
        read,
        differences,
        command,
        "fallback.yaml",
        "apply it",
        policy.strict_digest,
        more,
        caution,
        f"no fallback; {current.LOST}",
    )


def _steering(policy: Policy, found: Sequence[Object]) -> str:
    """Write the options that make the mutations again: they need facts if they are not those of assumed cards."""
    assumed = {name: capping.card for name, capping in mutations.cappings(policy, Facts()).items()}
    said = [mutations.recorded(item) for item in found if item["kind"] == mutations.POLICY]
    return " --mutate" + ("" if said == [assumed] else " --facts FACTS")


def run(
    compared: Comparison,
    file: str | None,
    target: inputs.Target,
    *beside: Comparison,
) -> int:
    """Compare, and say what differs and the command that mends it. Without a file the cluster is asked.

    Those `beside` are compared as well where there are any of them. Returns the exit status. Raises Unusable.
    """
    if file is None:
        from webhook.cluster import listing  # brings the client, which only a live cluster needs

        api = listing.connect(target.kubeconfig, target.context)
        status = _compared(compared, compared.read(api), None)
        return max([status, *(_beside(each, api) for each in beside)])
    items = [item.value for item in inputs.load_objects(file)]
    found = compared.ours(items)
    if not found:
        raise Unusable((Problem(file, 0, compared.absent),))
    others = [(each, each.ours(items)) for each in beside]
    status = _compared(compared, found, file)
    return max([status, *(_compared(each, those, file) for each, those in others if those)])


def _beside(compared: Comparison, api: "Api") -> int:
    try:
        found = compared.read(api)
    except Unusable as error:
        outputs.say([f"note: {compared.name} could not be compared: {error.problems[0]}"])
        return 0
    if not found:
        outputs.say([f"note: the API shows {compared.none}"] if compared.none else [])
        return 0
    return _compared(compared, found, None)


def _compared(compared: Comparison, found: Sequence[Object], file: str | None) -> int:
    where = file or "the cluster"
    differing = compared.differences(found)
    if not differing:
        outputs.show(f"{where}: {compared.name} is current, made from policy {compared.digest}{compared.more(found)}\n")
        return 0
    outputs.show("".join(f"{where}: {line}\n" for line in differing))
    command = compared.command(found)
    way = f"{command} > {compared.file}, and {compared.apply}" if file in (None, "-") else f"{command} > {file}"
    caution = compared.caution(found)
    outputs.say([f"{compared.name} is stale; run: {way}", *([caution] if caution else ())])
    return STALE


def _policy(source: str | None) -> str:
    return f" --policy {source}" if source else ""
