"""`slicewarden place` beside the real kube-scheduler: 500 random scenes, and 150 in which a pod has to evict others.

Each scene has nodes and pods of its own in one cluster: a label keeps the pods on the nodes of their scene. The nodes
and pods that are played are those that the API server stores.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config

from tests.e2e import control_plane
from tests.e2e.control_plane import Cluster, User, eventually
from webhook.scheduling import filters, scores
from webhook.scheduling.infos import NodeInfo, PodInfo, node_info, pod_info
from webhook.scheduling.play import cheapest, victims_on
from webhook.scheduling.scores import Strategy

Object = dict[str, Any]

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"
BATCH = 16
"""Scenes that play at once: with at most six nodes each, fewer than the 100 of which the scheduler scores only some."""
SPREADING, EVICTING = 500, 150


@pytest.fixture(scope="module")
def cluster(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """An API server and a scheduler: without other controllers nodes and pods stay as they are written."""
    with control_plane.serving(tmp_path_factory.mktemp("place"), programs) as started:
        kubeconfig = started.kubeconfig(User("system:kube-scheduler"))
        flags = [f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--secure-port=0"]
        started.start("kube-scheduler", started.binaries / "kube-scheduler", *flags)
        yield started


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> Iterator[client.CoreV1Api]:
    with config.new_client_from_config(str(cluster.kubeconfig())) as connection:  # type: ignore[no-untyped-call]
        core = client.CoreV1Api(connection)
        core.create_namespace({"metadata": {"name": "scenes"}})
        core.create_namespaced_service_account("scenes", {"metadata": {"name": "default"}})
        classes = client.SchedulingV1Api(connection)
        for value in (10, 20, 1000):
            classes.create_priority_class({"metadata": {"name": f"p{value}"}, "value": value})
        yield core


# Scenes


def thrown(seed: str) -> random.Random:
    return random.Random(seed)  # noqa: S311 - dice for a test


def nodes_of(scene: int, dice: random.Random) -> list[Object]:
    sizes = [("4", "16Gi"), ("8", "16Gi"), ("8", "32Gi"), ("16", "64Gi"), ("3900m", "15Gi")]
    nodes = []
    for number in range(dice.randint(3, 6)):
        cpu, memory = dice.choice(sizes)
        offered = {"cpu": cpu, "memory": memory, "pods": dice.choice(["3", "110"])}
        if dice.random() < 0.7:
            offered[GPU] = str(dice.choice([1, 2, 4, 8]))
        if dice.random() < 0.2:
            offered[MIG] = "7"
        taints = []
        if dice.random() < 0.3:
            taints.append({"key": "pool", "value": dice.choice("ab"), "effect": "NoSchedule"})
        if dice.random() < 0.2:
            taints.append({"key": "old", "effect": "PreferNoSchedule"})
        labels = {"scene": str(scene), "disk": dice.choice(["ssd", "hdd"]), "size": str(dice.randint(1, 9))}
        spec: Object = {"taints": taints, **({"unschedulable": True} if dice.random() < 0.05 else {})}
        metadata = {"name": f"scene-{scene}-node-{number}", "labels": labels}
        nodes.append({"metadata": metadata, "spec": spec, "status": {"allocatable": offered, "capacity": offered}})
    return nodes


def pod_of(scene: int, number: int, dice: random.Random, priority: int = 0) -> Object:
    containers = [container(f"c{index}", dice) for index in range(dice.choice([1, 1, 2]))]
    spec: Object = {
        "containers": containers,
        "nodeSelector": {"scene": str(scene)},
        "terminationGracePeriodSeconds": 0,
        # Without a controller nodes keep the taint of those that have not started.
        "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}],
    }
    if dice.random() < 0.3:
        first = container("first", dice)
        if dice.random() < 0.5:
            first["restartPolicy"] = "Always"
        spec["initContainers"] = [first]
    if dice.random() < 0.5:
        spec["tolerations"].append(
            dice.choice(
                [
                    {"key": "pool", "operator": "Equal", "value": dice.choice("ab")},
                    {"key": "pool", "operator": "Exists", "effect": "NoSchedule"},
                    {"operator": "Exists"},
                ]
            )
        )
    if dice.random() < 0.2:
        spec["nodeSelector"]["disk"] = "ssd"
    affinity: Object = {}
    if dice.random() < 0.2:
        terms = [
            {"matchExpressions": [{"key": "size", "operator": dice.choice(["Gt", "Lt"]), "values": ["4"]}]},
            {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["hdd"]}]},
        ]
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms[: dice.randint(1, 2)]}
    if dice.random() < 0.2:
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {
                "weight": dice.randint(1, 100),
                "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]},
            },
            {
                "weight": dice.randint(1, 100),
                "preference": {"matchExpressions": [{"key": "size", "operator": "Gt", "values": ["5"]}]},
            },
        ]
    if affinity:
        spec["affinity"] = {"nodeAffinity": affinity}
    if priority:
        spec["priorityClassName"] = f"p{priority}"
    return {"metadata": {"name": f"scene-{scene}-pod-{number}", "labels": {"scene": str(scene)}}, "spec": spec}


def strong(scene: int, dice: random.Random) -> Object:
    """Return a pod of the highest priority that nearly every node is open to, and few have room for."""
    pod = pod_of(scene, 9, dice, 1000)
    resources = {"limits": {GPU: str(dice.choice([1, 2, 4]))}, "requests": {"cpu": "3"}}
    pod["spec"] |= {"containers": [{"name": "c", "image": "none", "resources": resources}], "initContainers": []}
    pod["spec"]["tolerations"].append({"operator": "Exists"})
    return pod


def container(name: str, dice: random.Random) -> Object:
    limits = {}
    if dice.random() < 0.6:
        limits[dice.choice([GPU, GPU, GPU, MIG])] = str(dice.choice([1, 1, 1, 2]))
    requests = {key: value for key, value in (("cpu", "700m"), ("memory", "3Gi")) if dice.random() < 0.6}
    if dice.random() < 0.2:
        limits["cpu"] = "1500m"
    return {"name": name, "image": "none", "resources": {"limits": limits, "requests": requests}}


# The real scheduler


def create(api: client.CoreV1Api, nodes: list[Object]) -> None:
    for node in nodes:
        api.create_node(node)
        api.patch_node_status(node["metadata"]["name"], {"status": node["status"]})


def settled(api: client.CoreV1Api) -> dict[str, Object]:
    """Wait until every pod has a node, or the scheduler has found none; return them by name."""
    pods: list[Object] = []

    def looked() -> bool:
        pods[:] = stored(api, "pods")
        return all(pod["spec"].get("nodeName") or found_none(pod["status"]) for pod in pods)

    assert eventually(looked, 60)
    return {pod["metadata"]["name"]: pod for pod in pods}


def found_none(status: Object) -> bool:
    return bool(status.get("conditions")) and not status.get("nominatedNodeName")


def stored(api: client.CoreV1Api, kind: str) -> list[Object]:
    listed = api.list_node() if kind == "nodes" else api.list_namespaced_pod("scenes")
    return list(api.api_client.sanitize_for_serialization(listed)["items"])


def clear(api: client.CoreV1Api) -> None:
    api.delete_collection_namespaced_pod("scenes", grace_period_seconds=0)
    assert eventually(lambda: not stored(api, "pods"))
    api.delete_collection_node()


def played(api: client.CoreV1Api, scene: int) -> dict[str, NodeInfo]:
    infos = (node_info(node) for node in stored(api, "nodes"))
    return {info.name: info for info in infos if info.labels["scene"] == str(scene)}


def differs(pod: PodInfo, nodes: dict[str, NodeInfo], real: str) -> str:
    """Say how the scheduler's choice differs from those that would be played; empty if it is one of them."""
    fitting = [node for node in nodes.values() if not any(filters.reasons(pod, node))]
    expected = [node.name for node in scores.best(pod, fitting, Strategy.SPREAD)]
    if real in expected or not (real or expected):
        return ""
    return f"{pod.name}: the scheduler took {real or 'none'}, and {expected or 'none'} was played"


def test_it_takes_the_nodes_that_the_scheduler_takes(api: client.CoreV1Api) -> None:
    dice, differences, landed, waited = thrown("spread"), list[str](), 0, 0
    for first in range(0, SPREADING, BATCH):
        scenes = range(first, min(first + BATCH, SPREADING))
        create(api, [node for scene in scenes for node in nodes_of(scene, dice)])
        made = [(scene, number) for number in range(7) for scene in scenes]
        for scene, number in made:
            api.create_namespaced_pod("scenes", pod_of(scene, number, dice))
        pods, stages = settled(api), {scene: played(api, scene) for scene in scenes}
        for scene, number in made:
            item = pods[f"scene-{scene}-pod-{number}"]
            real = item["spec"].pop("nodeName", "")
            info = pod_info(item, item["metadata"]["name"])
            if said := differs(info, stages[scene], real):
                differences.append(said)
            if real:
                landed += 1
                stages[scene][real].add(info)
            else:
                waited += 1
        clear(api)
    assert differences == []
    assert landed > SPREADING
    assert waited > SPREADING / 4


def test_it_evicts_the_pods_that_the_scheduler_evicts(api: client.CoreV1Api) -> None:
    dice, differences, evicted = thrown("evict"), list[str](), 0
    for first in range(0, EVICTING, BATCH):
        scenes = range(first, min(first + BATCH, EVICTING))
        create(api, [node for scene in scenes for node in nodes_of(scene, dice)])
        made = [(scene, number) for number in range(9) for scene in scenes]
        for scene, number in made:  # in falling order, so that they do not evict each other
            api.create_namespaced_pod("scenes", pod_of(scene, number, dice, (20, 10, 0)[number // 3]))
        before = settled(api)
        for number, name in enumerate(sorted(before, key=lambda name: int(name.rpartition("-")[2]))):
            # Among pods of one priority the one that started first is spared first.
            start = f"2026-01-01T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z"
            api.patch_namespaced_pod_status(name, "scenes", {"status": {"startTime": start}})
        for scene in scenes:
            api.create_namespaced_pod("scenes", strong(scene, dice))
        after = settled(api)
        for scene in scenes:
            stage, known = played(api, scene), dict[str, PodInfo]()
            order = sorted((name for name in before if name.startswith(f"scene-{scene}-")), key=lambda n: n[-1])
            for name in order:
                if real := before[name]["spec"].get("nodeName"):
                    known[name] = pod_info(before[name], name)
                    stage[real].add(known[name])
            item = after[f"scene-{scene}-pod-9"]
            real = item["spec"].pop("nodeName", "")
            gone = {name for name in known if name not in after}
            info = pod_info(item, item["metadata"]["name"])
            evicted += len(gone)
            if any(not any(filters.reasons(info, node)) for node in stage.values()) or not real:
                if said := differs(info, stage, real):
                    differences.append(said)
                continue
            candidates = [
                (node, victims)
                for node in stage.values()
                if not filters.obstacle(info, node) and (victims := victims_on(info, node))
            ]
            expected = {node.name: {victim.name for victim in victims} for node, victims in cheapest(candidates)}
            if expected.get(real) != gone:
                differences.append(f"{info.name}: took {real} from {sorted(gone)}, and {expected} was played")
        clear(api)
    assert differences == []
    assert evicted > EVICTING / 4
