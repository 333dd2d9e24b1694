"""Each way that `slicewarden prove` tries is shut by its own rule, and by no other."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import ROOT
from tests.evaluator.generated import POLICIES
from tests.proving.nodes import report
from tests.proving.pretended import admitting, changing
from tests.support.fixtures import WAYS as RULES_OF_WAYS
from tests.support.policies import FACTS, POLICY, RULES, facts_of, policy_of
from webhook import rules
from webhook.documents import goyaml
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Action, Object, Verdict
from webhook.policy.actions import Exemption
from webhook.policy.model import Policy
from webhook.policy.scopes import Scope
from webhook.proving import changes, evidence
from webhook.proving.probes import ProbeTarget, Untried, probe, targets
from webhook.proving.proof import CREATED, PATCH, DryRun, Outcome, ProofRun, Shown, Tried, prove
from webhook.proving.sighting import sighting
from webhook.proving.ways import CHANGES, WAYS, GPUWay
from webhook.reports import proof_report, proof_rows

EVERYWHERE = Scope(frozenset(), None, frozenset(), everywhere=True)
SHIPPED = [ROOT / "policies" / name for name in POLICIES]


def engine_of(policy: Policy, *, without: str = "") -> Engine:
    return Engine(policy, [rule for rule in rules.walk() if rule.id != without])


@pytest.fixture(params=SHIPPED, ids=lambda file: f"{file.parent.name}/{file.name}")
def setting(request: pytest.FixtureRequest) -> tuple[Policy, Facts]:
    file = request.param
    return policy_of(file), facts_of(FACTS if file.parent.name == "policies" else file.parent / "facts.yaml")


def tried(policy: Policy, facts: Facts, by: Engine, namespace: str | None = None) -> list[Tried]:
    """Try the ways of a policy against an API server that judges by an engine."""
    found = targets(engine_of(policy), facts, namespace)
    return [prove(policy, each, admitting(by, facts), RULES) for each in found if isinstance(each, ProbeTarget)]


def open_ways(of: Tried) -> set[str]:
    assert [each for each in of.shown if each.outcome is Outcome.UNKNOWN] == []
    return {each.way.name for each in of.shown if each.way and each.outcome is Outcome.OPEN}


def test_every_pool_is_tried_with_each_of_its_levels_of_trust(setting: tuple[Policy, Facts]) -> None:
    policy, facts = setting
    found = [*targets(engine_of(policy), facts)]
    assert [each for each in found if isinstance(each, Untried)] == []
    assert [(each.pool, each.trust) for each in found] == [
        (p, trust) for p in policy.pools for trust in sorted(p.trust)
    ]


def test_every_way_is_shut_by_its_own_rule(setting: tuple[Policy, Facts]) -> None:
    policy, facts = setting
    for each in tried(policy, facts, engine_of(policy)):
        warned = {way.name for way in WAYS if policy.action(way.rule) is not Action.DENY}
        assert open_ways(each) == warned
        assert all(
            shown.by in (shown.way.rule, "NVIDIA_VISIBLE_DEVICES=void")
            for shown in each.shown
            if shown.by and shown.way
        )


def changed(policy: Policy, facts: Facts, by: Engine) -> list[Tried]:
    """What the ways of a pod that exists show of each pool and level of trust, as an engine judges them."""
    create, change = admitting(by, facts), changing(by, facts)
    found = []
    for target in targets(engine_of(policy), facts):
        assert isinstance(target, ProbeTarget)
        here: list[Shown] = []
        for bare in (False, True):
            pod = create(changes.held(policy, target, bare=bare)).pod
            pod["metadata"] |= {"name": "held", "uid": "u"}

            def send(way: GPUWay, target: ProbeTarget = target, pod: Any = pod) -> DryRun:
                answer: DryRun = change(way, pod, changes.change(policy, target, way, pod))
                return answer

            ways = [way for way in changes.changes(policy, target) if way.bare is bare]
            here += changes.shown(ways, target.namespace, send, RULES)
        found.append(Tried(target, tuple(here)))
    return found


def tainted(policy: Policy) -> bool:
    return policy.guard is not None and bool(policy.guard.taint)


def test_every_change_is_shut_by_its_own_rule(setting: tuple[Policy, Facts]) -> None:
    policy, facts = setting
    for target, found in changed(policy, facts, engine_of(policy)):
        assert {each.outcome for each in found} == {Outcome.SHUT}, target
        assert [each.by for each in found] == [
            PATCH if each.way.patched else each.way.rule for each in found if each.way
        ]
        left = {way.name for way in CHANGES} - {each.way.name for each in found if each.way}
        assert left == ({"binding"} if not target.node else set()) | (set() if tainted(policy) else {"taint-later"})


@pytest.mark.parametrize("rule", sorted({way.rule for way in CHANGES}))
def test_without_a_rule_exactly_its_own_changes_are_open(sample_policy: Policy, sample_facts: Facts, rule: str) -> None:
    own = {way.name for way in CHANGES if way.rule == rule}
    found = changed(sample_policy, sample_facts, engine_of(sample_policy, without=rule))
    assert len(found) > 3
    for _, each in found:
        assert {one.way.name for one in each if one.way and one.outcome is Outcome.OPEN} == own
        assert {one.way.name for one in each if one.way and one.outcome is not Outcome.SHUT} == own


def test_without_a_taint_of_the_guard_no_toleration_of_it_is_added(sample_policy: Policy, sample_facts: Facts) -> None:
    """Then every pod that is judged is guarded as it is created."""
    target = next(targets(engine_of(sample_policy), sample_facts))
    assert isinstance(target, ProbeTarget)
    plain = replace(sample_policy, guard=None)
    assert {way.name for way in CHANGES} - {way.name for way in changes.changes(plain, target)} == {"taint-later"}


@pytest.mark.parametrize("rule", sorted({way.rule for way in WAYS}))
def test_without_a_rule_exactly_its_own_ways_are_open(sample_policy: Policy, sample_facts: Facts, rule: str) -> None:
    found = tried(sample_policy, sample_facts, engine_of(sample_policy, without=rule))
    assert len(found) > 3
    for each in found:
        assert open_ways(each) == {shown.way.name for shown in each.shown if shown.way and shown.way.rule == rule}
    assert any(map(open_ways, found))


def test_without_enforcement_every_way_is_open(sample_policy: Policy, sample_facts: Facts) -> None:
    records = engine_of(replace(sample_policy, actions={"*": Action.AUDIT}))
    for each in tried(sample_policy, sample_facts, records):
        assert open_ways(each) == {shown.way.name for shown in each.shown if shown.way}


def test_every_rule_that_closes_a_way_has_a_probe() -> None:
    assert {way.rule for way in WAYS} >= RULES_OF_WAYS
    both = (*WAYS, *CHANGES)
    assert len({way.name for way in both}) == len(both)
    assert all(way.change is None for way in WAYS)
    assert all(way.change is not None and not way.gpus and not way.unearned for way in CHANGES)


def test_a_namespace_that_is_exempt_or_never_judged_is_passed_over(sample_policy: Policy, sample_facts: Facts) -> None:
    engine = engine_of(sample_policy)
    for namespace in ("kube-system", "gpu-operator", "of-nobody"):
        found = [*targets(engine, sample_facts, namespace)]
        trusted = [each for each in found if each.trust == "trusted"]
        assert all(isinstance(each, Untried) for each in trusted), namespace


def test_more_namespaces_of_a_kind_are_not_judged(sample_policy: Policy, sample_facts: Facts) -> None:
    """Judging one takes a millisecond, and a cluster may have ten thousand without a grant."""
    judged: list[object] = []

    class Counting(Engine):
        def judge(self, *arguments: Any, **options: Any) -> Verdict:
            judged.append(arguments[0])
            return super().judge(*arguments, **options)

    def cost(more: int) -> int:
        names = [f"{place}{number}" for number in range(more) for place in "az"]
        namespaces = {**sample_facts.namespaces, **{name: {"kubernetes.io/metadata.name": name} for name in names}}
        judged.clear()
        found = [*targets(Counting(sample_policy, rules.walk()), replace(sample_facts, namespaces=namespaces))]
        assert all(isinstance(each, ProbeTarget) for each in found)
        return len(judged)

    assert cost(1000) <= cost(1)


def test_a_pool_that_no_namespace_may_use_is_given_up(sample_policy: Policy, sample_facts: Facts) -> None:
    exempt = replace(sample_policy, exemptions=(Exemption("all", EVERYWHERE, frozenset(), None),))
    namespaces: dict[str, dict[str, str]] = {f"a{number}": {} for number in range(2000)}
    found = [*targets(engine_of(exempt), replace(sample_facts, namespaces=namespaces))]
    assert all(isinstance(each, Untried) for each in found)


@pytest.fixture
def first(sample_policy: Policy, sample_facts: Facts) -> ProbeTarget:
    target = next(targets(engine_of(sample_policy), sample_facts))
    assert isinstance(target, ProbeTarget)
    return target


DENIED = 'admission webhook "pods.slicewarden.dev" denied the request: '
FORBIDDEN = 'pods "slicewarden-probe-" is forbidden: '
BY_POLICY = FORBIDDEN + "ValidatingAdmissionPolicy '{}' with binding 'b' denied request: {}"
BY_SECURITY = FORBIDDEN + 'violates PodSecurity "baseline:latest": privileged'
CREATE = DryRun(CREATED, "", {"spec": {"containers": [{}]}})
ANSWERS: dict[str, tuple[DryRun, Outcome, str]] = {
    "its rule": (DryRun(403, f"{DENIED}device-path: spec.volumes[0]: no"), Outcome.SHUT, "device-path"),
    "several": (DryRun(403, f"{DENIED}2 findings: - device-mount: a: b - device-path: c"), Outcome.SHUT, "device-path"),
    "another rule": (DryRun(403, f"{DENIED}chosen-node: a: see device-path: b"), Outcome.SHUT, "chosen-node"),
    "no rule": (DryRun(403, f"{DENIED}spec.containers: see device-path: no list"), Outcome.UNKNOWN, ""),
    "the fallback": (
        DryRun(422, BY_POLICY.format("slicewarden-pods", "device-path: no")),
        Outcome.SHUT,
        "device-path",
    ),
    "a broken fallback": (
        DryRun(422, BY_POLICY.format("slicewarden-pods", "expression 'a' resulted in error: b")),
        Outcome.UNKNOWN,
        "",
    ),
    "Pod Security": (DryRun(403, BY_SECURITY), Outcome.SHUT, "Pod Security"),
    "what quotes it": (
        DryRun(403, f'admission webhook "x.dev" denied the request: {BY_SECURITY}'),
        Outcome.UNKNOWN,
        "",
    ),
    "what quotes the fallback": (
        DryRun(403, f"x: {BY_POLICY.format('slicewarden-pods', 'device-path: no')}"),
        Outcome.UNKNOWN,
        "",
    ),
    "another's policy": (DryRun(422, BY_POLICY.format("other", "device-path: no")), Outcome.UNKNOWN, ""),
    "another's webhook": (DryRun(403, DENIED.replace("slicewarden", "x") + "device-path: no"), Outcome.UNKNOWN, ""),
    "no right": (DryRun(403, 'pods is forbidden: User "u" cannot create resource "pods"'), Outcome.UNKNOWN, ""),
    "no dry run": (DryRun(400, 'admission webhook "x.dev" does not support dry run'), Outcome.UNKNOWN, ""),
    "no webhook": (DryRun(500, "failed calling webhook: context deadline exceeded"), Outcome.UNKNOWN, ""),
    "no answer": (DryRun(0, "connection refused"), Outcome.UNKNOWN, ""),
    "admitted": (CREATE, Outcome.OPEN, ""),
}


def answered(policy: Policy, target: ProbeTarget, answer: DryRun, *, twin: bool) -> dict[str, Shown]:
    """Try the ways where pods with a hostPath get an answer, and all others are admitted, or get it too."""

    def ask(pod: Object) -> DryRun:
        return answer if not twin or "volumes" in pod["spec"] else CREATE

    return {each.way.name if each.way else "": each for each in prove(policy, target, ask, RULES).shown}


@pytest.mark.parametrize("name", ANSWERS)
def test_only_a_denial_that_names_a_rule_shuts_a_way(sample_policy: Policy, first: ProbeTarget, name: str) -> None:
    answer, outcome, by = ANSWERS[name]
    shown = answered(sample_policy, first, answer, twin=True)
    assert (shown["path-root"].outcome, shown["path-root"].by) == (outcome, by)
    assert shown[""].outcome is Outcome.ADMITTED
    assert shown["variable"].outcome is Outcome.OPEN


@pytest.mark.parametrize("name", ["another rule", "Pod Security", "several"])
def test_a_denial_of_the_same_pod_without_the_way_shuts_nothing_else(
    sample_policy: Policy, first: ProbeTarget, name: str
) -> None:
    """Such as of a pod that Pod Security refuses for something which an author can mend."""
    shown = answered(sample_policy, first, ANSWERS[name][0], twin=False)
    shut = {way for way, each in shown.items() if each.outcome is Outcome.SHUT}
    own = {"another rule": ("chosen-node",), "several": ("device-mount", "device-path")}.get(name, ())
    assert shut == {way.name for way in WAYS if way.rule in own}
    assert {each.outcome for way, each in shown.items() if way not in shut} == {Outcome.UNKNOWN}


def test_a_container_without_the_variable_leaves_a_way_open(sample_policy: Policy, first: ProbeTarget) -> None:
    void = {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]}

    def admitted(**more: object) -> set[Outcome]:
        spec = {"containers": [void], **more}
        shown = prove(sample_policy, first, lambda _: DryRun(CREATED, "", {"spec": spec}), RULES).shown
        return {each.outcome for each in shown if each.way and each.way.patched}

    assert admitted() == {Outcome.SHUT}
    assert admitted(initContainers=[void, {"env": None}]) == {Outcome.OPEN}
    again = {"env": [*void["env"], {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    assert admitted(initContainers=[again]) == {Outcome.OPEN}
    assert admitted(initContainers=[{"env": again["env"][::-1]}]) == {Outcome.SHUT}


def test_a_probe_requests_what_its_way_says(sample_policy: Policy, first: ProbeTarget) -> None:
    def limits(name: str) -> object:
        way = next((way for way in WAYS if way.name == name), None)
        return probe(sample_policy, first, way)["spec"]["containers"][0].get("resources")

    assert limits("") == {"limits": {first.resource: 1}}
    assert limits("slices") == {"limits": {first.resource: 2}}
    assert limits("privileged") is None


# Reports


@pytest.fixture
def proof(sample_policy: Policy, sample_facts: Facts, first: ProbeTarget) -> ProofRun:
    """A proof with a way that is open, one that was not shown, and a pool that was not tried."""
    answers: Callable[[Object], DryRun] = admitting(engine_of(sample_policy, without="chosen-node"), sample_facts)

    def ask(pod: Object) -> DryRun:
        paths = [each.get("hostPath", {}).get("path") for each in pod["spec"].get("volumes", ())]
        return DryRun(500, "lost\n::error::FORGED \x1b[31m") if "/" in paths else answers(pod)

    shown = prove(sample_policy, first, ask, RULES)
    untried = Untried(sample_policy.pools[1], "trusted", "no node of the pool is known")
    return ProofRun(sample_policy, "", "v1.37.1", datetime(2026, 1, 1, tzinfo=UTC), (shown,), (untried,))


def test_the_table_has_what_is_not_shut(proof: ProofRun) -> None:
    text = proof_report.render("table", proof)
    assert f"pool shared, trusted, namespace vision: {len(WAYS) - 2} shut, 1 open, 1 not shown" in text
    assert (
        "  open       node: a pod with nodeName of a node with GPUs was admitted, though rule chosen-node denies"
        in text
    )
    assert "  not shown  path-root: lost ::error::FORGED" in text
    assert "  not shown  all ways: no node of the pool is known" in text
    assert "\x1b" not in text


def test_a_way_that_the_policy_does_not_deny_is_explained(proof: ProofRun) -> None:
    warning = replace(proof, policy=replace(proof.policy, actions={"chosen-node": Action.WARN}))
    assert "was admitted, because the action of rule chosen-node is Warn (`actions`)" in proof_report.render(
        "table", warning
    )


def test_the_page_shows_a_run(sample_policy: Policy, sample_facts: Facts) -> None:
    eased = replace(sample_policy, actions={"host-namespaces": Action.WARN})
    found = tuple(tried(eased, sample_facts, engine_of(eased), "vision"))
    run = ProofRun(eased, "", "v1.37.1", datetime(2026, 1, 1, tzinfo=UTC), found, ())
    assert f"```\n{proof_report.render('table', run)}```\n" in (ROOT / "docs/prove.md").read_text("utf-8")


def test_json_and_junit_have_every_way(proof: ProofRun) -> None:
    value = json.loads(proof_report.render("json", proof))
    ways = {each["way"]: each for each in value["targets"][0]["ways"]}
    assert set(ways) == {"honest pod", *(way.name for way in WAYS)}
    assert (ways["node"]["outcome"], ways["variable"]["by"]) == ("open", "visible-devices")
    assert value["summary"] == {"shut": len(WAYS) - 2, "open": 1, "not shown": 2}
    suites = ET.fromstring(proof_report.render("junit", proof))  # noqa: S314 - our own
    assert [(each.get("tests"), each.get("failures"), each.get("errors")) for each in suites] == [
        (str(len(WAYS) + 1), "1", "1"),
        ("1", "0", "1"),
    ]


# Evidence

SCHEMAS = ROOT / "tests/schemas"
REGISTERED = [
    {"kind": "ValidatingWebhookConfiguration", "metadata": {"name": "slicewarden"}, "webhooks": [{"name": "a", "b": 1}]}
]


def closed(schema: Any) -> Any:
    """Refuse keys that a schema does not know."""
    if isinstance(schema, dict):
        known = {key: closed(value) for key, value in schema.items()}
        return {"additionalProperties": False, **known} if "properties" in known else known
    return [closed(each) for each in schema] if isinstance(schema, list) else schema


def valid(value: Any) -> Any:
    schema = json.loads((ROOT / "docs/schemas/proofreport.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(closed(schema)).validate(value)
    return value


@pytest.fixture
def told(proof: ProofRun, sample_facts: Facts) -> ProofRun:
    """The same proof, of a cluster that says more of itself."""
    found = evidence.nodes(proof.policy, sample_facts)
    return replace(proof, registration=evidence.registration(REGISTERED), nodes=found, release="0.1.0")


def test_json_is_as_its_schema_says(proof: ProofRun, told: ProofRun) -> None:
    for each in (proof, told):
        value = valid(json.loads(proof_report.render("json", each)))
        assert [*proof_rows.read(value)] == [*proof_rows.rows(each)]


def test_sarif_has_what_is_open_or_not_shown(proof: ProofRun) -> None:
    value = json.loads(proof_report.render("sarif", proof))
    jsonschema.Draft4Validator(json.loads((SCHEMAS / "sarif-schema-2.1.0.json").read_text("utf-8"))).validate(value)
    (run,) = value["runs"]
    found = {(each["level"], each["ruleId"]): each for each in run["results"]}
    assert set(found) == {("error", "chosen-node"), ("warning", "device-path"), ("warning", "unshown-ways")}
    assert set(found) <= {
        (level, rule["id"]) for level in ("error", "warning") for rule in run["tool"]["driver"]["rules"]
    }
    text = found["warning", "device-path"]["message"]["text"]
    assert text.startswith("Namespace vision: shared.trusted.path-root: lost ")
    assert text.isprintable()
    assert len({each["partialFingerprints"]["slicewarden/v1"] for each in found.values()}) == 3


def test_openreports_have_every_way(proof: ProofRun) -> None:
    definition, _ = goyaml.parse((SCHEMAS / "openreports.io_clusterreports.yaml").read_text("utf-8"))
    (schema,) = [each["schema"]["openAPIV3Schema"] for each in definition["spec"]["versions"]]
    schema["properties"]["metadata"] = {}
    tried_, untried = json.loads(proof_report.render("openreports", proof))["items"]
    for each in (tried_, untried):
        jsonschema.Draft202012Validator(closed(schema)).validate(each)
        assert re.fullmatch("slicewarden-proof-[0-9a-f]{16}", each["metadata"]["name"])
    assert tried_["scope"] == {"apiVersion": "v1", "kind": "Namespace", "name": "vision"}
    assert untried["scope"]["kind"] == "GPUSharingPolicy"
    assert tried_["summary"] == {"pass": len(WAYS) - 1, "fail": 1, "warn": 0, "error": 1, "skip": 0}
    assert untried["summary"]["error"] == 1
    by_way = {each["properties"]["way"]: each for each in tried_["results"]}
    assert (by_way["node"]["result"], by_way["variable"]["properties"]["by"]) == ("fail", "visible-devices")


def test_the_page_for_a_browser_has_every_way_and_only_text(told: ProofRun) -> None:
    shown = told.tried[0].shown
    (attack,) = [each for each in shown if each.way and each.way.name == "path-root"]
    hostile = attack._replace(message="<script>alert(1)</script>")
    others = tuple(hostile if each is attack else each for each in shown)
    page = proof_report.render("html", replace(told, tried=(told.tried[0]._replace(shown=others),)))
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert all(f"<code>{way.name}</code>" in page for way in WAYS)
    assert all(f'id="rule-{each}"' in page for each in (*{way.rule for way in WAYS}, "unshown-ways"))
    assert '<p class="lands">the honest pod was admitted</p>' in page
    assert "No pod was started." in page
    assert "<strong>1</strong> open" in page
    assert ", all allowed" not in page


@pytest.mark.parametrize("name", ["html", "junit", "table", "json", "openreports"])
def test_each_report_of_a_run_has_its_control_and_what_each_pod_saw(proof: ProofRun, name: str) -> None:
    """The honest pod is the control: without it, a reader cannot know whether a pod that saw no card shows anything."""
    first, *others = proof.tried
    seen = sighting(report(0))
    control = first.shown[0]._replace(message="saw 1 card on node t4; cap of 3763 MiB", seen=sighting(report(1)))
    patched = [each.by == PATCH for each in first.shown]
    ways = [
        each._replace(message="saw 0 of 1 cards", seen=seen) if blind else each
        for each, blind in zip(first.shown, patched, strict=True)
    ]
    run = replace(proof, ran=True, tried=(first._replace(shown=(control, *ways[1:])), *others))
    text = proof_report.render(name, run)
    assert text.count("saw 1 card on node t4; cap of 3763 MiB") == 1
    assert text.count("saw 0 of 1 cards") == sum(patched) > 0
    assert "No pod was started" not in text


def test_a_statement_is_on_the_policy_and_its_registration(told: ProofRun, proof: ProofRun) -> None:
    """Its form is that of in-toto/attestation spec/v1/statement.md."""
    statement = json.loads(proof_report.render("in-toto", told))
    assert list(statement) == ["_type", "subject", "predicateType", "predicate"]
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slicewarden.dev/attestation/gpu-isolation/v1"
    policy, registration = statement["subject"]
    assert policy["name"] == "GPUSharingPolicy/sample"
    assert policy["digest"]["sha256"].startswith(told.policy.digest)
    assert registration == {"name": "registration", "digest": {"sha256": told.registration}}
    assert all(re.fullmatch("[0-9a-f]{64}", each["digest"]["sha256"]) for each in statement["subject"])
    assert valid(statement["predicate"]) == json.loads(proof_report.render("json", told))
    assert len(json.loads(proof_report.render("in-toto", proof))["subject"]) == 1


def test_a_registration_has_the_same_digest_with_another_ca(told: ProofRun) -> None:
    hook = {"name": "a", "b": 1, "clientConfig": {"caBundle": "eA==", "service": {"name": "s"}}}
    made = [{**REGISTERED[0], "webhooks": [hook]}]
    again = [{**REGISTERED[0], "webhooks": [{**hook, "clientConfig": {"caBundle": "", "service": {"name": "s"}}}]}]
    other = [{**REGISTERED[0], "webhooks": [{**hook, "failurePolicy": "Ignore"}]}]
    assert evidence.registration(made) == evidence.registration(again) != evidence.registration(other)
    assert evidence.registration([]) == ""
    assert len(told.registration) == 64


def test_nodes_say_what_their_labels_say_and_no_more(sample_policy: Policy) -> None:
    own = {"nvidia.com/gpu.sharing-strategy": "time-slicing"}
    driver = "nvidia.com/cuda.driver-version.full"
    labels = [{**own, driver: "580.95.05"}, {**own, driver: "580.95.05"}, {**own, driver: "x\n\x1b" * 99}, own, {}]
    nodes = [{"kind": "Node", "metadata": {"name": f"n{i}", "labels": each}} for i, each in enumerate(labels)]
    shared, *others = evidence.nodes(sample_policy, Facts.of(nodes))
    assert (shared.pool, shared.nodes, set(shared.labels)) == ("shared", 4, {"driver", "sharing"})
    (first, number), (other, _) = shared.labels["driver"].items()
    assert (first, number) == ("580.95.05", 2)
    assert other.isprintable()
    assert len(other) <= 80
    assert all(each.value == {"pool": each.pool, "nodes": 0, "labels": {}} for each in others)
    many = [{**own, driver: f"{i}"} for i in range(99)]
    nodes = [{"kind": "Node", "metadata": {"name": f"n{i}", "labels": each}} for i, each in enumerate(many)]
    assert len(evidence.nodes(sample_policy, Facts.of(nodes))[0].labels["driver"]) == evidence.MOST


# Software

DIGEST = f"registry.example.com/nvidia/k8s-device-plugin@sha256:{'0' * 64}"


def daemon_set(name: str, *containers: Any, before: Sequence[Any] = ()) -> Any:
    spec = {"containers": [*containers], "initContainers": [*before]}
    return {"kind": "DaemonSet", "metadata": {"name": name, "namespace": "g"}, "spec": {"template": {"spec": spec}}}


def operator(**parts: Any) -> Any:
    return {"kind": "ClusterPolicy", "metadata": {"name": "cluster-policy"}, "spec": parts}


TOOLKIT = {"repository": "nvcr.io/nvidia/k8s", "image": "container-toolkit", "version": "v1.18.0"}
FOUND: dict[str, tuple[list[Any], list[tuple[str, str, str]]]] = {
    "nothing": ([], []),
    "another": ([daemon_set("d", {"name": "log", "image": "fluentd:1"})], []),
    "plugin": (
        [daemon_set("d", {"name": "c", "image": DIGEST}, {"name": "gpu-feature-discovery", "image": DIGEST})],
        [("devicePlugin", DIGEST, "DaemonSet g/d")],
    ),
    "toolkit": (
        [daemon_set("d", {"name": "c", "image": "nvcr.io/nvidia/k8s/container-toolkit:v1.18.0"})],
        [("toolkit", "nvcr.io/nvidia/k8s/container-toolkit:v1.18.0", "DaemonSet g/d")],
    ),
    "like a toolkit": ([daemon_set("d", {"name": "c", "image": "example.com/my-container-toolkit-docs:1"})], []),
    "only before": ([daemon_set("d", {"name": "c", "image": "a"}, before=[{"name": "i", "image": DIGEST}])], []),
    "operator": (
        [operator(toolkit=TOOLKIT, devicePlugin={**TOOLKIT, "image": "p", "version": "sha256:00"})],
        [
            ("devicePlugin", "nvcr.io/nvidia/k8s/p@sha256:00", "ClusterPolicy cluster-policy"),
            ("toolkit", "nvcr.io/nvidia/k8s/container-toolkit:v1.18.0", "ClusterPolicy cluster-policy"),
        ],
    ),
    "operator chooses": ([operator(toolkit={"enabled": True}, devicePlugin={"image": "p", "version": "1"})], []),
    "disabled": ([operator(toolkit={**TOOLKIT, "enabled": False})], []),
    "both": (
        [
            operator(toolkit=TOOLKIT),
            daemon_set("d", {"name": "c", "image": "nvcr.io/nvidia/k8s/container-toolkit:v1.18.0"}),
        ],
        [("toolkit", "nvcr.io/nvidia/k8s/container-toolkit:v1.18.0", "DaemonSet g/d")],
    ),
    "garbage": ([{"kind": "DaemonSet", "spec": []}, operator(toolkit=7), {"kind": "ClusterPolicy"}], []),
}


@pytest.mark.parametrize("name", FOUND)
def test_the_images_of_a_plugin_and_a_toolkit_are_those_that_objects_name(name: str) -> None:
    objects, found = FOUND[name]
    assert [*evidence.software(objects)] == found


def test_no_more_images_are_named_than_the_most(told: ProofRun) -> None:
    many = [daemon_set(f"d{i}", {"name": "c", "image": f"k8s-device-plugin:{i}"}) for i in range(99)]
    found = evidence.software(many)
    assert len(found) == evidence.MOST
    value = valid(json.loads(proof_report.render("json", replace(told, software=found))))
    assert len(value["software"]["devicePlugin"]) == evidence.MOST


@given(text=st.text(min_size=1, max_size=1500) | st.sampled_from((", container toolkit x:9", "\n", "\x1b", "x" * 1000)))
def test_no_text_passes_for_a_second_image(text: str) -> None:
    (*found,) = evidence.software([daemon_set("d", {"name": "c", "image": f"k8s-device-plugin:1{text}"})])
    for each in found:
        assert each.image == f"k8s-device-plugin:1{text}"
        assert each.image.isascii()
        assert re.search(r"[\s,]", each.image) is None
        assert len(each.image) <= 1000


@pytest.mark.parametrize("name", ["table", "html"])
def test_software_that_is_not_known_is_said(proof: ProofRun, told: ProofRun, name: str) -> None:
    known = replace(told, software=evidence.software(FOUND["plugin"][0]))
    text = " ".join(proof_report.render(name, known).split())
    assert DIGEST in text
    assert re.search("container toolkit(</dt>|</th>|<[^>]+>| )*not known", text)
    none = " ".join(proof_report.render(name, proof).split())
    assert len(re.findall("(driver|device plugin|container toolkit)(?:<[^>]+>| )*not known", none)) == 3


SAMPLE = policy_of(POLICY)


@given(text=st.text(alphabet=st.characters(), min_size=1, max_size=3000))
def test_no_text_of_a_cluster_is_long_or_ends_its_line(text: str) -> None:
    target = ProbeTarget(SAMPLE.pools[0], "trusted", text, text, text)
    shown = (Shown(None, text, Outcome.ADMITTED), Shown(WAYS[0], text, Outcome.UNKNOWN, "", text))
    at = datetime(2026, 1, 1, tzinfo=UTC)
    nodes = (evidence.PoolNodes("shared", 1, {}),)
    run = ProofRun(SAMPLE, text, text, at, (Tried(target, shown),), (Untried(SAMPLE.pools[1], "trusted", text),))
    report = valid(json.loads(proof_report.render("json", replace(run, nodes=nodes))))
    texts = [report["kubernetes"], report["policy"]["installed"], report["targets"][0]["resource"]]
    texts += [each["message"] for each in report["targets"][0]["ways"]]
    assert all(each.isprintable() and len(each) <= 1000 for each in texts)
    for name in ("sarif", "openreports", "html", "in-toto", "junit", "table"):
        assert "\x1b" not in proof_report.render(name, run)
