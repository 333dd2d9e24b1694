"""`slicewarden doctor`: find out what is wrong with the installation in a live cluster."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from webhook import lints, rules
from webhook.api import admission
from webhook.cli import inputs, options, outputs, parser
from webhook.documents import documents
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.gpu.selection import known_nodes
from webhook.memory import frameworks
from webhook.memory.driver.nodes import selected
from webhook.model import Action, Object, Unusable
from webhook.policy import load
from webhook.policy.model import Policy, Switch
from webhook.text.terminal import Look

if TYPE_CHECKING:
    from webhook.cluster.client import Api
    from webhook.doctor.doctor import Check
    from webhook.doctor.installation import Installation, ReadFailure
    from webhook.usage.scraped import NodeScrape

WELL, PROBLEMS = 0, 1

SOON = timedelta(days=30)

INDENT = " " * 25
"""The column at which the messages of the table begin."""

STYLES = {"ok": "allowed", "warning": "warned", "error": "denied", "not known": "faint"}

STATUS = {
    "0": "everything was checked without an error",
    "1": "something is an error",
    "2": "something could not be checked, and there is no error",
}


@click.command(
    cls=parser.Command,
    page=parser.HelpEpilog(
        ("slicewarden doctor", "slicewarden doctor --policy policies/ --format json"),
        STATUS,
        environment=parser.KUBECONFIG | parser.LOOK,
    ),
    help="Check the installation of Slicewarden in a live cluster, and say how to fix each problem: replicas, "
    "mode, policy, registration, fallback, certificate, caBundle, endpoints, facts, guard, pods older than its taint, "
    "permissions, the nodes with limits by NVIDIA's hook, and whether the API server calls the webhook; where the "
    "policy is an object, also the controller and its rights. It changes nothing: it creates a pod as a dry run, and a "
    "Deployment if the fallback denies the pod.",
)
@options.once("--policy", type=options.PATH, help="the policy that should be installed; default: the installed one")
@options.cluster
@click.option(
    "--format", "form", type=parser.WordChoice(("table", "json")), default="table", help="table (for people) or json"
)
def command(policy: str | None, kubeconfig: str | None, context: str | None, form: str) -> int:
    """Read the installation, run the checks, and print the results."""
    from webhook.cluster import listing  # 30 MiB, which only a live cluster needs
    from webhook.doctor import by_object, doctor, installation

    own = inputs.load_policy(policy) if policy else None
    api = listing.connect(kubeconfig, context)
    now = datetime.now(UTC)
    read = installation.read(api)
    installed, document, why = _installed(read)
    of = doctor.Examined(read, installation.PolicyAnswers(), now, installed, why, own)
    if installed is not None and document is not None:
        objects, unknown = listing.facts(api, [installed])
        facts = replace(Facts.of(objects), today=now.date())
        judged = lints.lint(installed, document, facts, now.date(), SOON).judged
        findings = [
            (result.action is Action.DENY, result.rule, result.finding.message)
            for each in judged
            for result, _ in each.findings
            if result.action is not Action.AUDIT
        ]
        pods = [each["metadata"]["name"] for each in doctor.ready(read.pods)]
        asked = installation.ask(api, installed, pods, _probe(installed, facts))
        listed = not any("nodes" in problem.message for problem in unknown)
        asked = replace(asked, older=installation.older_pods(api, installed, facts))
        hooked = _hooked(api, installed, facts)
        of = replace(of, asked=asked, facts=facts if listed else None, findings=findings, hooked=hooked)
    checks = doctor.examine(of, by_object.CHECKS if read.by_object else doctor.CHECKS)
    outputs.show(_json(checks) if form == "json" else _table(checks, outputs.look()))
    states = {check.state for check in checks}
    if doctor.CheckState.ERROR in states:
        return PROBLEMS
    return options.UNUSABLE if doctor.CheckState.UNKNOWN in states else WELL


HOOKED_SECONDS = 20.0
"""Seconds that the agents of all nodes may take together."""


def _hooked(api: "Api", policy: Policy, facts: Facts) -> "dict[str, NodeScrape | ReadFailure]":
    """Ask the agents of the nodes where NVIDIA's hook limits containers, if there are such nodes."""
    from webhook.cli import usages
    from webhook.doctor.installation import ReadFailure

    pools = [pool for pool in policy.pools if pool.driver_limits and selected(pool)]
    names = {node.name for pool in pools for node in known_nodes(pool, facts)}
    if not names:
        return {}
    try:
        found, unseen = usages.ask_all(api, lambda agent: (agent.node, agent.scrape()), HOOKED_SECONDS, only=names)
    except Unusable as error:
        return dict.fromkeys(names, ReadFailure(0, error.problems[0].message))
    return {**dict(found), **{each.node: ReadFailure(0, each.why) for each in unseen}}


def _installed(read: "Installation") -> tuple[Policy | None, documents.Document | None, str]:
    """Read the installed policy, with its document, or the reason why it cannot be used."""
    from webhook.doctor.installation import ReadFailure

    if read.by_object is not None:
        return _in_cluster(read.by_object.items)
    if isinstance(read.policy, ReadFailure):
        return None, None, f"the installed policy could not be read: {read.policy.why}"
    text = (read.policy.get("data") or {}).get("policy.yaml")
    if not isinstance(text, str):
        return None, None, "the ConfigMap of the policy has no policy.yaml"
    found, problems = documents.read(text, "policy.yaml")
    try:
        if problems:
            raise Unusable(problems)
        policy, document = load.load_with_document(
            found, rules.releases(), "policy.yaml", frameworks=frameworks.names()
        )
    except Unusable as error:
        first, *more = error.problems
        return None, None, f"the installed policy cannot be used: {first}{f' (and {len(more)} more)' if more else ''}"
    return policy, document, ""


def _in_cluster(policies: list[Object]) -> tuple[Policy | None, documents.Document | None, str]:
    """Read the policy that is in force or comes into force, as `_installed` does. Without a mode it audits."""
    if not policies:
        return None, None, "there is no policy"
    try:
        policy = load.of_object(policies[0], rules.releases(), frameworks=frameworks.names())
    except Unusable as error:
        return None, None, f"the policy cannot be used: {error.problems[0].message}"
    return replace(policy, mode=policy.mode or Switch.AUDIT), load.of_no_file(policies[0]), ""


def _probe(policy: Policy, facts: Facts) -> Object | None:
    """Return a pod of the namespace default that the policy denies; None if it denies none of those tried."""
    engine = Engine(policy, rules.walk())
    for pod in _pods():
        if not engine.judge(admission.decode(admission.wrap(pod)), facts).allowed:
            return pod
    return None


def _pods() -> Iterable[Object]:
    """Yield pods that use GPUs without a request, request too many, or tolerate every taint."""
    asks: dict[str, Any] = {"resources": {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}}
    takes = {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    many: dict[str, Any] = {"resources": {"limits": {"nvidia.com/gpu": "999"}, "requests": {"nvidia.com/gpu": "999"}}}
    for container, spec in (
        (asks | takes, {}),
        (takes, {}),
        (many, {}),
        (asks, {"tolerations": [{"operator": "Exists"}]}),
    ):
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "slicewarden-doctor", "namespace": "default"},
            "spec": {"containers": [{"name": "probe", "image": "slicewarden", **container}], **spec},
        }


def _table(checks: "list[Check]", look: Look) -> str:
    lines: list[str] = []
    for check in checks:
        state = look.paint(f"{check.state:<9}", STYLES[check.state])
        head = f"{state}  {check.name:<12}  "
        lines += look.hang(head, check.says)
        if check.way:
            lines += look.wrap(check.way, INDENT)
    counts = Counter(check.state for check in checks)
    summary = ", ".join(f"{counts[state]} {state}" for state in counts)
    return "".join(f"{line}\n" for line in [*lines, "", f"{len(checks)} checks: {summary}"])


def _json(checks: "list[Check]") -> str:
    counts = Counter(check.state for check in checks)
    value = {
        "apiVersion": "slicewarden.dev/v1alpha1",
        "kind": "DoctorReport",
        "checks": [
            {"check": check.name, "state": check.state, "message": check.says, "wayOut": check.way} for check in checks
        ],
        "summary": counts,
    }
    return json.dumps(value, indent=2) + "\n"
