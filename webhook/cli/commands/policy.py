"""`slicewarden policy`: work on the policy itself."""

import os
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from webhook import lints, reports
from webhook.api.fields import group_kind
from webhook.cli import docs, fleets, inputs, options, outputs, parser
from webhook.cli.outputs import Wanted
from webhook.documents import goyaml_writer
from webhook.facts import kinds
from webhook.facts.snapshot import Facts
from webhook.model import Object, Unusable
from webhook.reports import formats, lint_report
from webhook.scan.results import Report

if TYPE_CHECKING:
    from webhook.documents.documents import Document
    from webhook.policy.model import Policy
    from webhook.reports.fleet import Line

OWN = {"table": lint_report.table, "json": lint_report.write}
"""The formats that have errors, warnings and notes."""


def _name(_: click.Context, __: click.Parameter, text: str) -> str:
    if not re.fullmatch(parser.DNS_LABEL, text):
        raise click.BadParameter(f"{text!r} is not a name: use up to 63 of a-z, 0-9 and -, and no - at either end")
    return text


def _accelerators(_: click.Context, __: click.Parameter, text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name for name in text.split(",") if name))
    for name in names:
        if not re.fullmatch(parser.DNS_LABEL, name):
            raise click.BadParameter(f"{name!r} is no value of the label, such as nvidia-l4")
    return names


command = parser.CommandGroup(
    "policy",
    help="Work on the policy itself. `slicewarden diff` shows what a change of it would do.",
    no_args_is_help=True,
    subcommand_metavar="VERB [ARGS]...",
    page=parser.HelpEpilog(
        (
            "slicewarden policy init --facts cluster.json > policy.yaml",
            "slicewarden policy lint policies --facts cluster.json",
            "slicewarden policy lints empty-pool",
        ),
        parser.SHOWN,
    ),
)


@command.command(
    cls=parser.Command,
    page=parser.HelpEpilog(
        (
            "slicewarden policy lint policies --facts cluster.json",
            "slicewarden policy lint HEAD:policies --fail-on warn",
            "slicewarden policy lint --soon 60 --format junit --output lint.xml",
            "slicewarden policy lint 'policies/{cluster}' --cluster eu-1=clusters/eu-1 --cluster us-2=clusters/us-2",
        ),
        {**parser.JUDGED, "0": "no error was found", "1": "at least one error was found"},
    ),
    short_help="find likely mistakes in it",
    help="Find likely mistakes in a policy, by itself and against facts: pools without nodes, grants that add nothing, "
    "exemptions that have ended, limits that the facts already break.",
)
@options.policy_path
@options.facts()
@fleets.OPTION
@click.option(
    "--today",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="YYYY-MM-DD",
    help="the day on which exemptions are judged; default: today",
)
@click.option(
    "--soon",
    type=parser.Number(0, 3650),
    default=30,
    metavar="DAYS",
    help="report exemptions that end within this many days; default: 30",
)
@options.report(formats.Purposes())
def lint(
    policy: str | None,
    facts: Sequence[str],
    fleet: Sequence[fleets.Member],
    today: datetime | None,
    soon: int,
    wanted: Sequence[Wanted],
    fail_on: str,
) -> int:
    """Find likely mistakes and write the reports. The exit status is that of the worst one."""
    inputs.note_sample(policy, "PATH")
    day = (today or datetime.now(UTC)).date()

    def found(own: "tuple[Policy, Document]", known: Iterable[Object]) -> Report:
        return lints.lint(*own, Facts.of(known), day, timedelta(days=soon))

    if fleet:
        from webhook.reports.fleet import Line  # and batches: what one policy does not need
        from webhook.scan import batches

        loaded = cache(inputs.load_policy_with_document)

        def of_member(member: fleets.Member) -> "tuple[Line, int]":
            read = batches.read([member.folder])
            if problems := tuple(read.problems):
                raise Unusable(problems)
            known = list(read.facts)
            if _LINTED.isdisjoint(map(group_kind, known)):
                outputs.say([f"note: {member.folder}: no nodes or namespaces: {_SKIPPED}"])
            report = found(loaded(member.own(policy)), known)
            return Line(member.name, lint_report.counts(report)), _status(fail_on, report)

        fleets.exclude(wanted)
        return fleets.run(fleet, "FleetLintReport", wanted, of_member)
    report = found(inputs.load_policy_with_document(policy), (item.value for item in inputs.load_facts(facts)))
    if not facts:
        outputs.say([f"note: no --facts: {_SKIPPED}"])
    outputs.write(
        wanted, lambda name, look: OWN[name](report, look) if name in OWN else reports.render(name, report, look)
    )
    return _status(fail_on, report)


_LINTED = {("", "Node"), ("", "Namespace")}
_SKIPPED = "lints about nodes and namespaces were skipped"


def _status(fail_on: str, report: Report) -> int:
    return options.status(fail_on, denied=report.count(allowed=False) > 0, warned=report.warned > 0)


@command.command(
    cls=parser.Command,
    page=parser.HelpEpilog(
        (
            "slicewarden policy init --facts cluster.json > policy.yaml",
            "slicewarden policy init --facts cluster.json --tests test.yaml > policy.yaml",
            "slicewarden policy init --facts cluster.json --no-tenants monitoring > policy.yaml",
            "slicewarden policy init --facts cluster.json --accelerators nvidia-l4,nvidia-tesla-t4 > policy.yaml",
            "slicewarden policy init --live --by sharing",
        ),
        parser.SHOWN,
        files={},
        environment=parser.KUBECONFIG,
    ),
    short_help="write a policy that fits a cluster",
    help="Write a policy that fits a cluster, with comments: pools from products, sharing and taints of its nodes, "
    "the guard, grants, and exemptions for the agents that run there. Anything that a tenant may have written is "
    "only in comments, and grants nothing. Use the policy as a start: read it, then edit it.",
)
@options.facts(live="take the facts from the cluster", needed=True)
@options.cluster
@click.option("--name", default="cluster", callback=_name, metavar="NAME", help="of the policy; default: cluster")
@click.option(
    "--by",
    type=parser.WordChoice(("product", "sharing")),
    default="product",
    help="a pool for each product of card and kind of sharing, or only for each kind of sharing; default: product",
)
@click.option(
    "--no-tenants",
    multiple=True,
    metavar="NAMESPACE",
    help="a namespace where no tenant may create anything: agents and a device plugin there are believed, as in "
    "kube-system and the GPU Operator's; repeatable",
)
@click.option(
    "--accelerators",
    callback=_accelerators,
    default="",
    metavar="NAME[,NAME]",
    help="the accelerators that no node has now, and that GKE Autopilot, node auto-provisioning or an empty node pool "
    "may make nodes for, as the label cloud.google.com/gke-accelerator names them; each gets a pool of whole cards",
)
@options.once(
    "--tests", type=options.PATH, metavar="FILE", help="write tests there too, for a policy.yaml in the same folder"
)
def init(
    facts: Sequence[str],
    live: bool,
    kubeconfig: str | None,
    context: str | None,
    name: str,
    by: str,
    no_tenants: Sequence[str],
    accelerators: Sequence[str],
    tests: str | None,
) -> None:
    """Write the policy, and its tests."""
    from webhook.scan import reduced  # which judges, and lint does not
    from webhook.starter import cases, starter

    options.only_live(live=live, kubeconfig=kubeconfig, context=context)
    sample = inputs.load_sample()  # the shell has already created an empty policies/policy.yaml for the output
    if live:
        from webhook.cluster import listing  # brings the client, which only a live cluster needs

        api = listing.connect(kubeconfig, context)
        objects, problems = listing.dump(api, sample, lambda item: kinds.slim(item, sample))
        if problems:
            raise Unusable(tuple(problems))
    else:
        objects = [item.value for item in inputs.load_facts(facts)]
    source = ", ".join(facts) or "cluster"
    items = reduced.reduced(objects, sample)
    made = starter.make(
        items, source, name=name, by_product=by == "product", no_tenants=no_tenants, accelerators=accelerators
    )
    if tests:
        folder = Path(tests).parent
        from_there = [os.path.relpath(file, folder) for file in facts if file != "-"]
        outputs.save(tests, cases.tests(made, "policy.yaml", from_there))
    outputs.say(f"note: {note}" for note in made.notes)
    outputs.show(made.text)


@command.command(
    cls=parser.Command,
    page=parser.HelpEpilog(
        ("slicewarden policy export --as nodeoverlay --policy policy.yaml --facts cluster.json | kubectl apply -f -",),
        parser.SHOWN,
    ),
    short_help="write it for an autoscaler",
    help="Write what an autoscaler has to know. `nodeoverlay` is for Karpenter, which counts the cards of a machine: a "
    "NodeOverlay says how many slices or MIG devices the nodes of a NodePool offer in its place. The amounts are those "
    "that nodes of the facts offer, so take the facts while each of these pools has a node. An amount above that would "
    "make nodes without end: write the overlays again whenever nodes offer fewer. Karpenter reads them only with the "
    "feature gate NodeOverlay.",
)
@options.policy()
@options.facts()
@click.option(
    "--as",
    type=parser.WordChoice(("nodeoverlay",)),
    required=True,
    expose_value=False,  # there is only one
    help="nodeoverlay: Karpenter's, with the gate NodeOverlay",
)
def export(policy: str | None, facts: Sequence[str]) -> None:
    """Write the objects."""
    from webhook.deviceplugin import overlays  # which lint does not use

    if not facts:
        raise click.UsageError("without --facts nothing says how many GPUs nodes offer; add it")
    inputs.note_sample(policy)
    made = overlays.overlays(inputs.load_policy(policy), Facts.of(item.value for item in inputs.load_facts(facts)))
    outputs.say(f"note: {note}" for note in made.notes)
    for each in made.objects:
        outputs.show("---\n" + goyaml_writer.write(each))


def _ids(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in lints.pages() if name.startswith(incomplete)]


@command.command(
    "lints",
    cls=parser.Command,
    page=parser.HelpEpilog(("slicewarden policy lints empty-pool",), parser.SHOWN, files={}, environment={}),
    short_help="list the lints, or show the page of one",
    help="List what `slicewarden policy lint` finds, or show the page of one lint: what is wrong, and the way out.",
)
@options.pages("lint", _ids)
def pages(lint: str | None, markdown: bool) -> None:
    """Show the list of lints, or the page of one."""
    outputs.show(lints.markdown() if markdown else docs.page(lints.pages(), lint, "lint"))
