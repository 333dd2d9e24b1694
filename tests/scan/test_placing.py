"""Workloads that are admitted and played: counts, refusals, sharing, what is left, and the comparison of sharing."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from webhook import rules
from webhook.cli.main import main
from webhook.documents.files import alone
from webhook.engine.engine import Engine
from webhook.policy.model import Policy
from webhook.reports import placing_report
from webhook.scan import advice
from webhook.scan.placing import Placing, placing
from webhook.scheduling.scores import Strategy
from webhook.text.terminal import PLAIN

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


def test_pods_of_a_shared_node_are_named_to_each_other(play: Callable[..., Placing]) -> None:
    first, second = play(pod("a", annotations=TRUST), pod("b", annotations=TRUST)).places
    assert (first.shares, second.shares) == (("team/b",), ("team/a",))
    assert first.risk.startswith("no wall")


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


def test_a_daemon_set_has_a_pod_for_each_node(play: Callable[..., Placing], cluster: list[Object]) -> None:
    daemon = workload("DaemonSet", {"template": {"spec": {"containers": [{"name": "c", "image": "x"}]}}})
    placed = play(daemon)
    nodes = [item["metadata"]["name"] for item in cluster if item["kind"] == "Node"]
    assert [place.outcome and place.outcome.pod.node for place in placed.places] == nodes
    assert where(placed)[0] == "cpu"


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


def test_what_is_left_is_told_by_pool(play: Callable[..., Placing]) -> None:
    left = {(each.pool, each.resource): each for each in play(pod("whole", 2)).left}
    assert (left["exclusive", GPU].offered, left["exclusive", GPU].free) == (10, 8)


def test_what_is_not_counted_is_noted(play: Callable[..., Placing], cluster: list[Object]) -> None:
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "x"}]}}
    assert play(pod("a", affinity=apart)).notes == ("affinity between pods is not counted; 1 pod of these has some",)
    for item in cluster:
        if item["kind"] == "Node":
            item["status"] = {"allocatable": {key: n for key, n in item["status"]["allocatable"].items() if "/" in key}}
    assert play(pod("a")).notes[0].startswith("cpu and memory are not counted")


def test_more_pods_than_can_be_played_are_a_problem(play: Callable[..., Placing]) -> None:
    placed = play(workload("Deployment", {"replicas": 10**9, "template": {"spec": spec()}}))
    assert [str(problem) for problem in placed.problems] == [
        "Deployment team/w: makes more than 10000 pods with those before it; play fewer at a time"
    ]


# The comparison


def rows(placed: Placing, policy: Policy) -> dict[str, advice.Row]:
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
    assert all(each in advice.table(compared) for each in advice.ASSUMED)
    assert json.loads(advice.write(compared))["assumed"] == [*advice.ASSUMED]


def test_nothing_is_compared_without_a_gpu(sample_policy: Policy) -> None:
    placed = placing([alone(pod("p"))], [], Engine(sample_policy, rules.walk()))
    assert advice.table(advice.compare(placed, sample_policy)) == "No GPU is known: nothing to compare.\n"


# The reports and the command


def test_the_table_and_the_json_say_the_same(play: Callable[..., Placing]) -> None:
    placed = play(pod("slice", annotations=TRUST), pod("bad", nodeName="x"), pod("large", 4), pod("larger", 8))
    text = placing_report.table(placed, PLAIN)
    value = json.loads(placing_report.write(placed))
    assert [each["pod"] for each in value["pods"]] == [f"team/{name}" for name in ("slice", "bad", "large", "larger")]
    assert value["summary"] == {"pods": 4, "waiting": placed.waiting, "refused": 1}
    for place in placed.places:
        assert place.player.name in text
    assert value["pods"][3]["waitsBecause"][f"Insufficient {GPU}"] == 1
    assert f"waits    team/larger\n         1 Insufficient {GPU}, " in text


@pytest.mark.parametrize("strategy", [each.value for each in Strategy])
def test_the_command_plays_files(tmp_path: Path, capsys: pytest.CaptureFixture[str], strategy: str) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(yaml.safe_dump_all([GRANTED, pod("slice", annotations=TRUST)]), "utf-8")
    status = main(["place", str(file), "--facts", str(NODES), "--strategy", strategy])
    assert status == 0
    assert "on t4-shared (pool shared): 1 of nvidia.com/gpu" in capsys.readouterr().out


def test_the_command_says_that_there_is_nothing_to_play(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(yaml.safe_dump(GRANTED), "utf-8")
    assert main(["place", str(file), "--facts", str(file)]) == 2
    errors = capsys.readouterr().err
    assert "error: the facts have no node to play with" in errors
    assert "error: no pod and no template of one in" in errors
