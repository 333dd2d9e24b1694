"""Workloads that are admitted and played: counts, refusals, sharing, what is left, and the comparison of sharing."""

import bisect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests import ROOT
from tests.support import node_agents, policies
from tests.support.starting import objects
from tests.support.usage_books import STEADY, book, usage
from webhook import rules
from webhook.cli import main as cli
from webhook.cli.commands import place
from webhook.documents.files import alone
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Action
from webhook.placing import advice, players
from webhook.placing.placing import Placing, placing
from webhook.placing.scheduling import selectors
from webhook.placing.scheduling.scores import Strategy
from webhook.policy.model import Policy
from webhook.reports import placing_report
from webhook.scan.judge import judge
from webhook.scan.results import Judged
from webhook.text.terminal import PLAIN
from webhook.usage import document
from webhook.usage.advice import CONTEXT

Object = dict[str, Any]
GPU = "nvidia.com/gpu"
TRUST = {"slicewarden.dev/trust": "trusted"}
NODES = Path(__file__).parents[1] / "e2e" / "nodes.yaml"
GRANTED: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team", "labels": TRUST}}


def spec(gpus: int = 1, **more: Any) -> Object:
    return {"containers": [{"name": "c", "image": "x", "resources": {"limits": {GPU: gpus}}}], **more}


def pod(name: str, gpus: int = 1, annotations: Object | None = None, **more: Any) -> Object:
    metadata = {"name": name, "namespace": "team", "annotations": annotations or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec(gpus, **more)}


def workload(kind: str, inside: Object, version: str = "apps/v1") -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "w", "namespace": "team"}, "spec": inside}


@pytest.fixture
def cluster() -> list[Object]:
    return [*yaml.safe_load_all(NODES.read_text("utf-8")), GRANTED]


@pytest.fixture
def play(sample_policy: Policy, cluster: list[Object]) -> Callable[..., Placing]:
    engine = Engine(sample_policy, rules.walk())

    def run(*objects: Object, **how: Any) -> Placing:
        return placing([alone(item) for item in objects], cluster, engine, **how)

    return run


def where(placed: Placing) -> list[str]:
    return [place.outcome.node if place.outcome else "refused" for place in placed.places]


def test_a_pod_lands_in_its_pool_as_the_webhook_steers_it(play: Callable[..., Placing]) -> None:
    placed = play(pod("slice", annotations=TRUST), pod("whole"))
    assert where(placed) == ["t4-shared", "a100-exclusive"]
    assert [place.pool and place.pool.name for place in placed.places] == ["shared", "exclusive"]


def test_what_admission_denies_does_not_play(play: Callable[..., Placing]) -> None:
    placed = play(pod("bad", nodeName="t4-shared"), pod("good"))
    assert where(placed) == ["refused", "a100-exclusive"]
    assert placed.places[0].player.refused[0].startswith("chosen-node: ")
    assert placed.refused == 1


QUEUED = "\n".join(
    (
        "apiVersion: slicewarden.dev/v1alpha1",
        "kind: GPUSharingPolicy",
        "metadata: {name: queued}",
        "spec:",
        "  pools:",
        "    - name: cards",
        f"      resources: [{GPU}]",
        "      nodes: {matchExpressions: [{key: nvidia.com/gpu.product, operator: Exists}]}",
        "      sharing: none",
        "      trust: [trusted, untrusted]",
        "      queue: {kueue: true, names: [team-*]}",
    )
)


@pytest.mark.parametrize("queue", ["team-a", "other", None])
@pytest.mark.parametrize(("kind", "version"), [("Job", "batch/v1"), ("Deployment", "apps/v1"), ("Pod", "v1")])
def test_a_queue_is_looked_for_where_check_looks_for_it(
    cluster: list[Object], kind: str, version: str, queue: str | None
) -> None:
    """Kueue reads its label on the workload, so the pods that its controller makes need none."""
    engine = Engine(policies.policy_of(QUEUED), rules.walk())
    item = workload(kind, spec() if kind == "Pod" else {"template": {"spec": spec()}}, version)
    item["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    judged = judge(alone(item), engine, Facts.of(cluster))
    assert isinstance(judged, Judged)
    (place,) = placing([alone(item)], cluster, engine).places
    denials = [f"{each.rule}: {each.finding.message}" for each in judged.verdict.having(Action.DENY)]
    assert [*place.player.refused] == denials
    assert bool(denials) is (queue != "team-a")


def test_pods_of_a_shared_node_are_named_to_each_other(play: Callable[..., Placing]) -> None:
    first, second = play(pod("a", annotations=TRUST), pod("b", annotations=TRUST)).places
    assert (first.shares, second.shares) == (("team/b",), ("team/a",))
    assert first.risk.startswith("no isolation")


@pytest.mark.parametrize(
    ("item", "count"),
    [
        (workload("Deployment", {"replicas": 3, "template": {"spec": spec()}}), 3),
        (workload("Deployment", {"template": {"spec": spec()}}), 1),
        (workload("Deployment", {"replicas": 0, "template": {"spec": spec()}}), 0),
        (workload("Job", {"parallelism": 2, "template": {"spec": spec()}}, "batch/v1"), 2),
        (
            workload(
                "JobSet",
                {
                    "replicatedJobs": [
                        {
                            "name": "j",
                            "replicas": 2,
                            "template": {"spec": {"parallelism": 3, "template": {"spec": spec()}}},
                        }
                    ]
                },
                "jobset.x-k8s.io/v1alpha2",
            ),
            6,
        ),
    ],
    ids=["replicas", "one", "none", "parallelism", "both"],
)
def test_a_workload_is_as_many_pods_as_it_says(play: Callable[..., Placing], item: Object, count: int) -> None:
    assert len(play(item).places) == count


def test_a_job_starts_no_more_pods_than_it_completes(play: Callable[..., Placing]) -> None:
    job = workload("Job", {"parallelism": 10, "completions": 2, "template": {"spec": spec()}}, "batch/v1")
    assert len(play(job).places) == 2


def test_the_webhook_is_not_asked_about_a_namespace_that_it_leaves_alone(play: Callable[..., Placing]) -> None:
    plain = pod("plain", nodeName="t4-shared")
    plain["metadata"]["namespace"] = "kube-system"
    assert play(plain).refused == 0


def test_a_pod_that_runs_already_is_not_played_again(play: Callable[..., Placing], cluster: list[Object]) -> None:
    known, other = pod("known", nodeName="t4-shared"), pod("other", nodeName="t4-shared")
    cluster.append(known)
    placed = play(known, {**other, "status": {"phase": "Running"}}, pod("new"))
    assert where(placed) == ["a100-exclusive"]
    assert placed.notes == ("2 pods of the files run already, by the facts",)
    assert {(each.pool, each.resource): each.free for each in placed.left}["shared", GPU] == 2


def daemon(**inside: Any) -> Object:
    return workload("DaemonSet", {"template": {"spec": {"containers": [{"name": "c", "image": "x"}], **inside}}})


EVERYWHERE = [{"operator": "Exists"}]


def test_a_daemon_set_has_a_pod_for_each_node(play: Callable[..., Placing], cluster: list[Object]) -> None:
    placed = play(daemon(tolerations=EVERYWHERE))
    nodes = [item["metadata"]["name"] for item in cluster if item["kind"] == "Node"]
    assert [player.info.node for player in placed.players] == nodes


def test_a_daemon_set_has_no_pod_on_nodes_that_it_does_not_select_or_tolerate(
    play: Callable[..., Placing], cluster: list[Object]
) -> None:
    assert where(play(daemon())) == ["cpu"]
    chosen = {"kubernetes.io/hostname": "t4-shared"}
    for inside in ({"nodeSelector": chosen}, {"nodeName": "t4-shared"}):
        placed = play(daemon(tolerations=EVERYWHERE, **inside))
        assert [player.info.node for player in placed.players] == ["t4-shared"]
        assert play(daemon(**inside)).players == ()
    for node in cluster:
        node.setdefault("spec", {})["unschedulable"] = True
    assert where(play(daemon())) == ["cpu"]


def test_pods_that_run_hold_what_they_hold(play: Callable[..., Placing], cluster: list[Object]) -> None:
    cluster += [
        {**pod(f"old-{number}", nodeName="t4-shared"), "status": {"phase": phase}}
        for number, phase in enumerate(("Running", "Running", "Running", "Running", "Succeeded"))
    ]
    (place,) = play(pod("new", annotations=TRUST)).places
    assert place.outcome is not None
    assert not place.outcome.node
    assert play(pod("new", annotations=TRUST)).left[-2].free == 0


def test_priorities_decide_where_all_arrive_at_once(play: Callable[..., Placing], cluster: list[Object]) -> None:
    cluster.append(
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 9}
    )
    pods = [*(pod(f"low-{n}", annotations=TRUST) for n in range(4)), pod("high", 1, TRUST, priorityClassName="high")]
    in_order = play(*pods)
    assert [each.name for each in in_order.places[4].outcome.evicted] == ["team/low-3"]  # type: ignore[union-attr]
    at_once = play(*pods, at_once=True)
    assert where(at_once) == ["t4-shared"] * 3 + ["", "t4-shared"]
    assert not any(place.outcome.evicted for place in at_once.places if place.outcome)


def test_a_priority_class_that_is_not_known_is_noted(play: Callable[..., Placing], cluster: list[Object]) -> None:
    pods = [pod("a", priorityClassName="high"), pod("b", priorityClassName="system-node-critical")]
    note = "PriorityClass high is not among the facts: played with priority 0"
    assert play(*pods).notes == (note,)
    assert note in placing_report.table(play(*pods), PLAIN)
    cluster.append(
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 9}
    )
    assert play(*pods).notes == ()


def test_what_is_left_is_told_by_pool(play: Callable[..., Placing]) -> None:
    left = {(each.pool, each.resource): each for each in play(pod("whole", 2)).left}
    assert (left["exclusive", GPU].offered, left["exclusive", GPU].free) == (10, 8)


def test_pods_of_a_workload_spread_over_hosts_though_it_says_nothing_of_it(
    play: Callable[..., Placing], cluster: list[Object]
) -> None:
    """The scheduler's default for a Deployment: one node does not get all of them, as it does those of a Job."""
    for node in cluster:
        node.get("spec", {}).pop("taints", None)
    template = {"metadata": {"labels": {"app": "a"}}, "spec": spec(0)}
    deployed = {"replicas": 3, "selector": {"matchLabels": {"app": "a"}}, "template": template}
    assert len({*where(play(workload("Deployment", deployed)))}) == 3
    together = {"parallelism": 3, "template": template}
    assert {*where(play(workload("Job", together, "batch/v1")))} == {"cpu"}


def test_pods_that_are_to_be_apart_are(play: Callable[..., Placing]) -> None:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"}}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    pods = [pod(f"p{number}", affinity=apart) for number in range(4)]
    for each in pods:
        each["metadata"]["labels"] = {"app": "a"}
    placed = play(*pods)
    assert where(placed) == ["a100-exclusive", "", "", ""]
    assert "node(s) didn't match pod anti-affinity rules" in placed.places[-1].outcome.reasons  # type: ignore[union-attr]


# Claims

DRIVER, CLASS = "gpu.example.com", "shared-gpu.example.com"


def of_devices(kind: str, name: str, spec: Object, namespace: str | None = None) -> Object:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


@pytest.fixture
def sharing(cluster: list[Object]) -> list[Object]:
    """A card of 16Gi on t4-shared that claims share, and a class for it."""
    memory = {"value": "16Gi", "requestPolicy": {"default": "4Gi", "validRange": {"min": "1Gi"}}}
    card = {"name": "gpu-0", "allowMultipleAllocations": True, "capacity": {"memory": memory}}
    pool = {"name": "t4-shared", "generation": 1, "resourceSliceCount": 1}
    slices = {"driver": DRIVER, "nodeName": "t4-shared", "pool": pool, "devices": [card]}
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}" && device.allowMultipleAllocations'}}
    cluster += [
        of_devices("ResourceSlice", "s", slices),
        of_devices("DeviceClass", CLASS, {"selectors": [selector], "extendedResourceName": "example.com/gpu"}),
    ]
    return cluster


def template(memory: str, name: str = "quarter") -> Object:
    request = {"name": "gpu", "exactly": {"deviceClassName": CLASS, "capacity": {"requests": {"memory": memory}}}}
    annotated = {"metadata": {"annotations": TRUST}, "spec": {"devices": {"requests": [request]}}}
    return of_devices("ResourceClaimTemplate", name, annotated, "team")


def claiming(name: str, **entry: str) -> Object:
    """A pod with a claim; untainted nodes of the sample have no devices, so it tolerates every taint."""
    claims = [{"name": "gpu", **entry}] if entry else []
    made = pod(name, 0, TRUST, resourceClaims=claims, tolerations=[{"operator": "Exists"}])
    made["spec"]["containers"][0]["resources"] = (
        {"claims": [{"name": "gpu"}]} if entry else {"limits": {"example.com/gpu": 1}}
    )
    return made


@pytest.fixture
def claims(sharing: list[Object]) -> Callable[..., Placing]:
    """Play by a policy that lets everything pass, so that the claims alone decide."""
    text = "\n".join(
        (
            "apiVersion: slicewarden.dev/v1alpha1",
            "kind: GPUSharingPolicy",
            "metadata: {name: claims}",
            "spec:",
            "  pools:",
            f"    - {{name: slices, sharing: time-slicing, trust: [trusted], deviceClasses: [{CLASS}]}}",
            "  gpus: {claims: [{namespaces: [team]}]}",
            '  rules: {"*": Audit}',
        )
    )
    engine = Engine(policies.policy_of(text), rules.walk())
    return lambda *objects, **how: placing([alone(item) for item in objects], sharing, engine, **how)


def test_claims_share_a_device_until_its_memory_is_taken(claims: Callable[..., Placing]) -> None:
    pods = [claiming(f"p{number}", resourceClaimTemplateName="quarter") for number in range(5)]
    placed = claims(template("4Gi"), *pods)
    assert where(placed) == ["t4-shared"] * 4 + [""]
    first = placed.places[0]
    assert [device.id[2] for device in first.held] == ["gpu-0"]
    assert first.shares == ("team/p1", "team/p2", "team/p3")
    assert first.risk.startswith("no isolation")
    assert placed.places[4].outcome.reasons["cannot allocate all claims"] > 0  # type: ignore[union-attr]
    (left,) = [each for each in placed.left if each.resource == f"devices of {CLASS}"]
    assert (left.pool, left.offered, left.free) == ("slices", 1, 0)


BOUNDED = "\n".join(
    (
        "apiVersion: slicewarden.dev/v1alpha1",
        "kind: GPUSharingPolicy",
        "metadata: {name: bounded}",
        "spec:",
        "  pools:",
        f"    - {{name: slices, sharing: time-slicing, trust: [trusted], deviceClasses: [{CLASS}], maxMemory: 4Gi}}",
        "  trust: {grants: [{namespaceSelector: {matchLabels: {slicewarden.dev/trust: trusted}}}]}",
        "  gpus: {claims: [{namespaces: [team]}]}",
        "  rules: {broad-toleration: Audit}",
    )
)


@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate"])
@pytest.mark.parametrize("memory", ["4Gi", "8Gi"])
def test_a_pod_whose_claim_is_denied_is_refused(sharing: list[Object], kind: str, memory: str) -> None:
    made = template(memory)
    if kind == "ResourceClaim":
        made = {**made, "kind": kind, **made["spec"], "metadata": {**made["metadata"], "annotations": TRUST}}
    engine = Engine(policies.policy_of(BOUNDED), rules.walk())
    items = [made, claiming("a", **{f"{kind[0].lower()}{kind[1:]}Name": "quarter"})]
    placed = placing([alone(item) for item in items], sharing, engine)
    (refused,) = (place.player.refused for place in placed.places)
    assert placed.refused == (memory == "8Gi")
    assert all(reason.startswith(f"{kind} quarter is refused: unsized-claim: ") for reason in refused)
    assert where(placed) == (["refused"] if memory == "8Gi" else ["t4-shared"])


def test_pods_that_name_one_claim_share_what_it_got(claims: Callable[..., Placing]) -> None:
    claim = of_devices("ResourceClaim", "one", template("12Gi")["spec"]["spec"], "team")
    placed = claims(claim, claiming("a", resourceClaimName="one"), claiming("b", resourceClaimName="one"))
    assert where(placed) == ["t4-shared"] * 2
    assert placed.places[1].shares == ("team/a",)


def test_a_class_that_is_asked_for_as_a_resource_is_claimed(claims: Callable[..., Placing]) -> None:
    """Without a request for memory each takes the default, a quarter."""
    assert where(claims(*(claiming(f"p{number}") for number in range(5)))) == ["t4-shared"] * 4 + [""]


def test_what_running_pods_hold_is_taken(claims: Callable[..., Placing], sharing: list[Object]) -> None:
    result = {
        "request": "gpu",
        "driver": DRIVER,
        "pool": "t4-shared",
        "device": "gpu-0",
        "consumedCapacity": {"memory": "13Gi"},
    }
    claim = of_devices("ResourceClaim", "held", template("13Gi")["spec"]["spec"], "team")
    sharing.append({**claim, "status": {"allocation": {"devices": {"results": [result]}}}})
    running = claiming("there", resourceClaimName="held")
    running["spec"]["nodeName"] = "t4-shared"
    sharing.append(running | {"status": {"phase": "Running"}})
    assert where(claims(template("4Gi"), claiming("a", resourceClaimTemplateName="quarter"))) == [""]
    placed = claims(template("2Gi"), claiming("a", resourceClaimTemplateName="quarter"))
    assert where(placed) == ["t4-shared"]
    assert placed.places[0].shares == ("team/there",)


def test_a_pod_waits_for_a_claim_or_a_class_that_is_not_there(
    claims: Callable[..., Placing], sharing: list[Object]
) -> None:
    (waits,) = claims(claiming("a", resourceClaimTemplateName="none")).places
    assert [*waits.outcome.reasons] == ['resourceclaimtemplate "none" not found']  # type: ignore[union-attr]
    sharing[:] = [item for item in sharing if item["kind"] != "DeviceClass"]
    (waits,) = claims(template("4Gi"), claiming("a", resourceClaimTemplateName="quarter")).places
    assert [*waits.outcome.reasons] == [f"device class {CLASS} does not exist"]  # type: ignore[union-attr]


def test_each_pod_whose_claims_are_not_played_says_so(
    claims: Callable[..., Placing], sharing: list[Object], monkeypatch: pytest.MonkeyPatch
) -> None:
    asks = (template("4Gi"), claiming("a", resourceClaimTemplateName="quarter"))
    with monkeypatch.context() as without:
        without.setattr(selectors, "reader", lambda: None)
        placed = claims(*asks)
        assert any("device classes of" in note and "[claims]" in note for note in placed.notes)
        text = placing_report.table(placed, PLAIN)
        assert "pip install '.[claims]'" in " ".join(text.split())
        assert "(no pool)" not in text
    sharing[:] = [item for item in sharing if item["kind"] != "ResourceSlice"]
    placed = claims(*asks)
    assert placed.places[0].player.unplayed == ("no ResourceSlice is among the facts",)
    assert "its claims are not counted: no ResourceSlice is among the facts" in placing_report.table(placed, PLAIN)


def test_facts_without_cpu_are_noted(play: Callable[..., Placing], cluster: list[Object]) -> None:
    for item in cluster:
        if item["kind"] == "Node":
            item["status"] = {"allocatable": {key: n for key, n in item["status"]["allocatable"].items() if "/" in key}}
    assert play(pod("a")).notes[0].startswith("cpu and memory are not counted")


def test_more_pods_than_can_be_played_are_a_problem(
    play: Callable[..., Placing], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert players.MAX_PODS == 10_000
    monkeypatch.setattr(players, "MAX_PODS", 100)
    placed = play(workload("Deployment", {"replicas": 10**9, "template": {"spec": spec()}}))
    assert [str(problem) for problem in placed.problems] == [
        "Deployment team/w: makes more than 100 pods with those before it; play fewer at a time"
    ]


def schema_of(kind: str) -> Object:
    schema: Object = json.loads((ROOT / "docs/schemas" / f"{kind.lower()}.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return schema


def test_the_report_is_as_its_published_schema_says(
    play: Callable[..., Placing], claims: Callable[..., Placing], sample_policy: Policy
) -> None:
    evicting = [pod(f"low-{n}", 2, TRUST) for n in range(2)]
    for placed in (
        play(pod("whole", 2), pod("refused", 2, TRUST), pod("waits", 64), *evicting),
        claims(
            template("4Gi"), claiming("a", resourceClaimTemplateName="quarter"), claiming("b", resourceClaimName="x")
        ),
    ):
        jsonschema.validate(json.loads(placing_report.write(placed)), schema_of("PlacingReport"))
    for used in ({}, {("team", "Pod/p"): 4416}):
        compared = advice.write(advice.compare(play(pod("whole", 2)), sample_policy), used)
        jsonschema.validate(json.loads(compared), schema_of("SharingAdvice"))


# The comparison


def rows(placed: Placing, policy: Policy) -> dict[str, advice.OptionResult]:
    return {row.division.name: row for row in advice.compare(placed, policy)}


def test_slices_hold_more_pods_and_refuse_several_gpus(play: Callable[..., Placing], sample_policy: Policy) -> None:
    placed = play(*(pod(f"p-{n}") for n in range(20)), pod("many", 2))
    found = rows(placed, sample_policy)
    whole, halves = found["whole GPUs"], found["time-slicing, 2 slices"]
    assert halves.devices == 2 * whole.devices
    assert (halves.many, whole.many) == (1, 0)
    assert halves.land == 20
    assert whole.land + whole.wait == 21
    assert whole.wait > 0


def test_a_pod_with_more_memory_than_any_slice_is_refused(play: Callable[..., Placing], sample_policy: Policy) -> None:
    placed = play(pod("large", annotations={"slicewarden.dev/gpu-memory": "60Gi"}))
    found = rows(placed, sample_policy)
    assert (found["whole GPUs"].land, found["whole GPUs"].large) == (1, 0)
    assert found["time-slicing, 8 slices"].large == 1


def test_a_pod_with_much_memory_lands_on_a_large_card(play: Callable[..., Placing], sample_policy: Policy) -> None:
    placed = play(*(pod(f"p-{n}", annotations={"slicewarden.dev/gpu-memory": "30Gi"}) for n in range(40)))
    assert rows(placed, sample_policy)["whole GPUs"].wait > 20


def test_mig_is_offered_where_a_card_has_it(play: Callable[..., Placing], sample_policy: Policy) -> None:
    found = rows(play(pod("p")), sample_policy)
    assert found["MIG, 1g.10gb"].devices > found["MIG, 3g.40gb"].devices > found["whole GPUs"].devices


def test_a_pod_fits_no_mig_device_that_is_smaller_than_the_name_says(
    play: Callable[..., Placing], sample_policy: Policy
) -> None:
    placed = play(pod("p", annotations={"slicewarden.dev/gpu-memory": "9900Mi"}))
    row = rows(placed, sample_policy)["MIG, 1g.10gb"]
    assert (row.memory, row.land) == (9000, 1)
    assert 0 < row.whole < row.devices  # it lands on a card that stays whole


def test_the_advice_says_what_it_assumes(play: Callable[..., Placing], sample_policy: Policy) -> None:
    compared = advice.compare(play(pod("p")), sample_policy)
    assert all(each in advice.table(compared) for each in advice.assumed({}))
    assert "without one, any slice will do" in advice.table(compared)
    assert json.loads(advice.write(compared))["assumed"] == advice.assumed({})


def test_a_measured_need_counts_for_pods_of_one_gpu_without_the_annotation(
    play: Callable[..., Placing], sample_policy: Policy
) -> None:
    asking = {"slicewarden.dev/gpu-memory": "1Gi"}
    placed = play(pod("known"), pod("other"), pod("asks", annotations=asking), pod("many", 2))
    known = {("team", f"Pod/{name}"): 60_000 for name in ("known", "asks", "many", "gone")}
    assert advice.measured(placed, known) == {("team", "Pod/known"): 60_000}
    before = rows(placed, sample_policy)
    after = {row.division.name: row for row in advice.compare(placed, sample_policy, known)}
    assert after.keys() == before.keys()
    for name, row in after.items():
        assert row.large == before[name].large + (name != "whole GPUs"), name
        assert row.land + row.wait + row.large + row.many == 4
    assert after["whole GPUs"] == before["whole GPUs"]


def test_a_slice_must_have_room_for_the_context_and_a_mig_device_need_not(
    play: Callable[..., Placing], sample_policy: Policy
) -> None:
    """As in `slicewarden advise`: a framework's cap is smaller than its slice."""
    placed = play(pod("p"))

    def most(name: str) -> int:
        """The largest need that fits a device of this division."""

        def large(need: int) -> int:
            known = {("team", "Pod/p"): need}
            return {row.division.name: row.large for row in advice.compare(placed, sample_policy, known)}[name]

        return bisect.bisect_left(range(200_000), 1, key=large) - 1

    whole = most("whole GPUs")
    assert [most("MPS, 2 slices"), most("time-slicing, 4 slices")] == [whole // 2 - CONTEXT, whole // 4 - CONTEXT]
    assert most("MIG, 3g.40gb") == 36_000


@pytest.mark.parametrize(
    ("peaks", "used"),
    [(STEADY, [{"namespace": "vision", "workload": "Deployment/web", "needMiB": 4416}]), ([9900] * 48, [])],
)
def test_advice_uses_the_usage_record_where_the_need_is_known(
    peaks: list[int], used: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "w.yaml").write_text(
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: vision}, "
        f"spec: {{replicas: 3, template: {{spec: {ASKING}}}}}}}"
    )
    record = usage(book(peaks, namespace="vision", workload="Deployment/web"), len(peaks))
    (tmp_path / "node-1.json").write_text(document.write(record))
    words = ["place", str(tmp_path / "w.yaml"), "--facts", str(NODES), "--advise"]
    files = ["--usage", str(tmp_path / "node-1.json")]
    cli.main([*words, *files, "--format", "json"])
    found = json.loads(capsys.readouterr().out)
    assert found["measured"] == used
    assert ("its usage record shows" in found["assumed"][3]) == bool(used)
    cli.main([*words, *files])
    table = capsys.readouterr().out
    assert ("vision     Deployment/web      4416" in table) == bool(used)
    cli.main(words)
    plain = capsys.readouterr().out
    assert "need MiB" not in plain
    assert (plain == table) == (not used)


def test_the_agents_of_a_cluster_are_asked_and_none_is_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = usage(book(STEADY), 48, "node-1")
    answers = {"node-1": (200, document.write(record).encode())}
    with node_agents.cluster(tmp_path, answers, ["node-1"]) as options:
        assert place._needs((), options[1], None, live=True) == {("team", "Deployment/d"): 4416}
        assert place._needs((), options[1], None, live=False) == {}
    assert capsys.readouterr().err == ""
    with node_agents.cluster(tmp_path, answers, ["node-1", "node-2"]) as options:
        assert place._needs((), options[1], None, live=True) == {}, "it may have run on node-2"
    assert capsys.readouterr().err == "note: not seen: node-2: no agent runs there\n"
    with node_agents.cluster(tmp_path, {}, ["node-1"]) as options:
        assert place._needs((), options[1], None, live=True) == {}
    assert capsys.readouterr().err == ""
    assert place._needs((), options[1], None, live=True) == {}
    assert capsys.readouterr().err.startswith("note: the usage record is not known: ")


def test_a_usage_record_is_for_advice_and_must_be_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(yaml.safe_dump(pod("p")))
    words = ["place", str(file), "--facts", str(NODES), "--usage", str(file)]
    assert cli.main(words) == 2
    assert "--usage needs --advise" in capsys.readouterr().err
    assert cli.main([*words, "--advise"]) == 2
    assert f"{file}: it is no JSON" in capsys.readouterr().err


def test_nothing_is_compared_without_a_gpu(sample_policy: Policy) -> None:
    placed = placing([alone(pod("p"))], [], Engine(sample_policy, rules.walk()))
    told = advice.table(advice.compare(placed, sample_policy))
    assert told == "No GPU is offered as a resource: devices of claims are not compared.\n"


# The reports and the command


def test_the_table_and_the_json_say_the_same(play: Callable[..., Placing]) -> None:
    placed = play(pod("slice", annotations=TRUST), pod("bad", nodeName="x"), pod("large", 4), pod("larger", 8))
    text = placing_report.table(placed, PLAIN)
    value = json.loads(placing_report.write(placed))
    assert [each["pod"] for each in value["pods"]] == [f"team/{name}" for name in ("slice", "bad", "large", "larger")]
    assert value["summary"] == {"pods": 4, "waiting": placed.waiting, "refused": 1}
    for each in placed.places:
        assert each.player.name in text
    assert value["pods"][3]["waitsBecause"][f"Insufficient {GPU}"] == 1
    assert f"waits    team/larger\n         1 Insufficient {GPU}, " in text


@pytest.mark.parametrize("strategy", [each.value for each in Strategy])
def test_the_command_plays_files(tmp_path: Path, capsys: pytest.CaptureFixture[str], strategy: str) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(yaml.safe_dump_all([GRANTED, pod("slice", annotations=TRUST)]), "utf-8")
    status = cli.main(["place", str(file), "--facts", str(NODES), "--strategy", strategy])
    assert status == 0
    assert "on t4-shared (pool shared): 1 of nvidia.com/gpu" in capsys.readouterr().out


def test_the_command_says_that_there_is_nothing_to_play(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(yaml.safe_dump(GRANTED), "utf-8")
    assert cli.main(["place", str(file), "--facts", str(file)]) == 2
    errors = capsys.readouterr().err
    assert "error: the facts have no node to play with" in errors
    assert "error: no pod and no template of one in" in errors


CLAIMING = (
    "{resourceClaims: [{name: g, resourceClaimName: g}], "
    "containers: [{name: c, image: i, resources: {claims: [{name: g}]}}]}"
)
ASKING = "{containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]}"


@pytest.mark.parametrize(("container", "noted"), [(CLAIMING, True), (ASKING, False)])
def test_advice_says_that_pods_with_claims_alone_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], container: str, noted: bool
) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(f"apiVersion: v1\nkind: Pod\nmetadata: {{name: a, namespace: vision}}\nspec: {container}\n")
    cli.main(["place", str(file), "--facts", str(NODES), "--advise"])
    done = capsys.readouterr()
    assert "whole GPUs" in done.out
    assert ("GPUs only by claims are left out" in done.err) is noted


@pytest.mark.parametrize("name", ["gke", "eks", "aks", "homelab", "operator-time-slicing"])
def test_advice_counts_what_runs(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Which sharing fits what runs here is the question that a dump is for."""
    dump, policy = str(ROOT / f"tests/clusters/{name}.yaml"), tmp_path / "policy.yaml"
    assert cli.main(["policy", "init", "--facts", dump]) == 0
    policy.write_text(capsys.readouterr().out)
    cli.main(["place", dump, "--policy", str(policy), "--facts", dump, "--advise", "--format", "json"])
    done = capsys.readouterr()
    assert "no pod asks for a GPU" not in done.err
    pods = [item for item in objects(Path(dump)) if item["kind"] == "Pod"]
    asked = [json.dumps([each.get("resources") for each in pod["spec"]["containers"]]) for pod in pods]
    asking = [text for text in asked if "nvidia.com/" in text]
    for each in json.loads(done.out)["divisions"]:
        assert each["land"] + each["wait"] + sum(each["refused"].values()) == len(asking) > 0


def test_advice_counts_a_running_pod_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A pod names its ReplicaSet, which dumps leave out; its label leads to the Deployment."""
    files = {
        "deployment": "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: vision}, "
        f"spec: {{replicas: 1, template: {{spec: {ASKING}}}}}}}",
        "pod": "{apiVersion: v1, kind: Pod, metadata: {name: web-5d-x, namespace: vision, labels: "
        "{pod-template-hash: 5d}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-5d, "
        f"uid: u, controller: true}}]}}, spec: {ASKING}, status: {{phase: Running}}}}",
    }
    for name, text in files.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    cli.main(["place", str(tmp_path), "--facts", str(NODES), "--advise", "--format", "json"])
    for each in json.loads(capsys.readouterr().out)["divisions"]:
        assert each["land"] + each["wait"] + sum(each["refused"].values()) == 1


def test_pods_of_one_object_that_are_refused_alike_are_written_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = {"hostPID": True, "tolerations": [{"operator": "Exists"}], "containers": [{"name": "c", "image": "i"}]}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": agent}
    value = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "vision"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    }
    file = tmp_path / "agent.json"
    file.write_text(json.dumps(value))
    count = len(Facts.of(objects(NODES)).nodes)
    assert cli.main(["place", str(file), "--facts", str(NODES)]) == 1
    out = capsys.readouterr().out
    assert out.count("refused  ") == 1
    assert f"refused  vision/agent ({count} pods)\n" in out
    assert cli.main(["place", str(file), "--facts", str(NODES), "--all"]) == 1
    assert capsys.readouterr().out.count("refused  ") == count
