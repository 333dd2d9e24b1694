"""Implements `--check FILE` and `--check --live`: compares the objects made from a policy with the installed ones."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from webhook import rules
from webhook.cli import inputs, options, outputs
from webhook.engine import registered
from webhook.engine.comparison import Comparison
from webhook.engine.registration import NAME
from webhook.facts.snapshot import Facts
from webhook.fallback import comparison, current
from webhook.fallback.answers import ValidationActions
from webhook.fallback.params import Params
from webhook.model import Object, Problem, Unusable
from webhook.policy.model import Policy
from webhook.text.words import listed, several

if TYPE_CHECKING:
    from webhook.cluster.client import Api

STALE = 1
"""The exit status of a check that found differences."""

Command = Callable[..., Any]


def shared(asks: str = "with --check: ask the cluster") -> Callable[[Command], Command]:
    """Add the argument FILE and the options `--check` and `--live`, with these help texts. `given` reads them."""
    file = click.argument(
        "file", required=False, type=options.PATH, metavar="[FILE]", help="manifests to compare; - is standard input"
    )
    check = click.option(
        "--check", is_flag=True, help="compare FILE, or the cluster with --live, with what the policy needs"
    )
    live = click.option("--live", is_flag=True, help=asks)
    return options.all_of(file, check, live)


def given(file: str | None, *, check: bool, live: bool) -> None:
    """Refuse combinations of FILE, `--check` and `--live` that make no sense. Raises UsageError."""
    if check and (file is None) is not live:
        raise click.UsageError("--check needs either FILE or --live")
    if not check and (file is not None or live):
        raise click.UsageError("FILE and --live need --check")


@dataclass(frozen=True)
class Registration:
    """Reads and compares the webhook configurations, against those that a policy needs."""

    policy: Policy

    absent = f"no webhook configuration named {NAME} in it"
    file, apply = "registration.yaml", "apply it with your overlay"

    def ours(self, items: Iterable[Object]) -> list[Object]:
        """Return Slicewarden's webhook configurations among the objects of a file."""
        return registered.ours(items)

    def read(self, api: "Api") -> list[Object]:
        """Read the configurations of a cluster. Raises Unusable."""
        from webhook.cluster import registered as cluster  # brings the client, which only a live cluster needs

        return cluster.configurations(api, NAME)

    def compare(self, found: Sequence[Object]) -> Comparison:
        """Compare the configurations that were found with those that the policy needs."""
        return registered.compare(self.policy, found)


@dataclass(frozen=True)
class Fallback:
    """Reads and compares a fallback, against the one that a policy needs.

    The needed one is made in the form that the options name, or else in the form of the installed one.
    """

    policy: Policy
    answer: ValidationActions | None = None
    params: Params | None = None
    static: bool = False
    mutate: bool = False
    facts: Facts | None = None

    absent = "no ValidatingAdmissionPolicy of Slicewarden in it"
    none = f"no fallback; {current.LOST}"
    file, apply = "fallback.yaml", "apply it"

    def ours(self, items: Iterable[Object]) -> list[Object]:
        """Return Slicewarden's policies and bindings among the objects of a file, and the ConfigMap that they read."""
        return current.ours(items)

    def read(self, api: "Api") -> list[Object]:
        """Read the policies and bindings of a cluster, and the ConfigMap that they read. Raises Unusable."""
        from webhook.cluster import registered as cluster  # brings the client, which only a live cluster needs

        found = cluster.policies(api, current.SELECTOR)
        read = self.params or current.params(found)
        return [*found, *(cluster.config_map(api, *read) if found and read else ())]

    def compare(self, found: Sequence[Object]) -> Comparison:
        """Compare the fallback that was found with the one that the policy needs.

        The static form has neither mutations nor a ConfigMap. Raises UsageError if the options ask for one.
        """
        unfit = "--params" if self.params else "--mutate" if self.mutate else ""
        if unfit and (self.static or current.of_files(found)):
            raise click.UsageError(f"{unfit} cannot be used with --as static; leave it out")
        return comparison.compare(
            self.policy,
            rules.walk(),
            found,
            self.answer,
            self.params,
            static=self.static,
            mutate=self.mutate,
            config_map=True,
            facts=self.facts,
        )


def accepted(made: Sequence[Object], target: inputs.Target) -> None:
    """Ask the API server of a cluster by dry runs whether it accepts every object of a fallback.

    If it refuses one, none may be applied: raises Unusable, with one sentence about the refused objects.
    """
    from webhook.cluster import listing  # brings the client, which only a live cluster needs
    from webhook.cluster import registered as cluster

    refused = cluster.refused(listing.connect(target.kubeconfig, target.context), made)
    if refused:
        which, why = next(iter(refused.items()))
        if lacks := sorted(set(re.findall(r"undeclared reference to '(\w{1,40})'", " ".join(refused.values())))):
            which, why = "it lacks CEL functions that Kubernetes 1.35 has", listed(lacks, 3)
        says = f"the API server refuses {len(refused)} of {several(len(made), 'object')}, so nothing is printed"
        raise Unusable((Problem("fallback", 0, f"{says}; {which}: {why}"),))


def run(
    part: Registration | Fallback, file: str | None, source: str | None, target: inputs.Target, *more: Fallback
) -> int:
    """Compare, and print the differences and the command that corrects them. Returns the exit status. Raises Unusable.

    Without a file, the cluster is read. `source` is the policy as the command line names it. The parts in `more` are
    compared too, if any object of them is installed.
    """
    if file is None:
        from webhook.cluster import listing  # brings the client, which only a live cluster needs

        api = listing.connect(target.kubeconfig, target.context)
        status = _shown(part, part.read(api), None, source)
        return max([status, *(_more(each, api, source) for each in more)])
    items = [item.value for item in inputs.load_objects(file)]
    found = part.ours(items)
    if not found:
        raise Unusable((Problem(file, 0, part.absent),))
    others = [(each, each.ours(items)) for each in more]
    status = _shown(part, found, file, source)
    return max([status, *(_shown(each, those, file, source) for each, those in others if those)])


def _more(part: Fallback, api: "Api", source: str | None) -> int:
    try:
        found = part.read(api)
    except Unusable as error:
        outputs.say([f"note: the fallback could not be compared: {error.problems[0]}"])
        return 0
    if not found:
        outputs.say([f"note: the API shows {part.none}"])
        return 0
    return _shown(part, found, None, source)


def _shown(part: Registration | Fallback, found: Sequence[Object], file: str | None, source: str | None) -> int:
    compared, where = part.compare(found), file or "the cluster"
    if not compared.differences:
        actions = f", actions: {compared.actions}" if compared.actions else ""
        outputs.show(f"{where}: {compared.name} is current, made from policy {compared.digest}{actions}\n")
        return 0
    outputs.show("".join(f"{where}: {line}\n" for line in compared.differences))
    if current.kept(found):
        outputs.say([f"{compared.name} is stale; the controller fills it: see `kubectl describe gpusharingpolicies`"])
        return STALE
    command = f"{compared.command}{f' --policy {source}' if source else ''}{compared.options}"
    way = f"{command} > {part.file}, and {part.apply}" if file in (None, "-") else f"{command} > {file}"
    lost = f"note: the bindings have several actions, {compared.actions}, and the command writes the strictest"
    outputs.say([f"{compared.name} is stale; run: {way}", *([lost] if compared.mixed else ())])
    return STALE
