"""`slicewarden place` beside the real kube-scheduler: 500 random scenes, and 150 in which a pod has to evict others.

Each scene has nodes, devices and pods of its own in one cluster: a label keeps the pods on the nodes of their scene.
`place` plays the objects that the API server stores. The pods of a scene come one after the other, and one that waits
leaves again: else a later one could make room for it at an unknown time.
"""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config

from tests.e2e import control_plane
from tests.e2e.control_plane import Cluster, User, eventually
from webhook.placing.claiming import Claims, claims_among
from webhook.placing.scheduling import scores
from webhook.placing.scheduling.allocation import AllocationError
from webhook.placing.scheduling.filters import Filters
from webhook.placing.scheduling.infos import PodInfo, node_info, pod_info
from webhook.placing.scheduling.play import candidates_for, cheapest
from webhook.placing.scheduling.scores import Strategy
from webhook.placing.scheduling.stage import ClusterState

Object = dict[str, Any]

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"
BATCH = 16
"""Scenes that play at once: with at most six nodes each, fewer than the 100 of which the scheduler scores only some."""
SPREADING, EVICTING = 500, 150
DRIVER, ADMIN_ACCESS = "gpu.example.com", "resource.kubernetes.io/admin-access"
HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
RESOURCE = "example.com/gpu"
"""A resource that stands for a device class, and that no node's device plugin has."""


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
        core.create_namespace({"metadata": {"name": "scenes", "labels": {ADMIN_ACCESS: "true", "team": "red"}}})
        core.create_namespaced_service_account("scenes", {"metadata": {"name": "default"}})
        classes = client.SchedulingV1Api(connection)
        for value in (10, 20, 1000):
            classes.create_priority_class({"metadata": {"name": f"p{value}"}, "value": value})
        for name, (expression, more) in CLASSES.items():
            spec = {"selectors": [{"cel": {"expression": expression}}], **more}
            made = {**API, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}
            custom(core).create_cluster_custom_object("resource.k8s.io", "v1", "deviceclasses", made)
        yield core


API = {"apiVersion": "resource.k8s.io/v1"}
CLASSES: dict[str, tuple[str, Object]] = {
    "any": (f'device.driver == "{DRIVER}"', {}),
    "shared": (f'device.driver == "{DRIVER}" && device.allowMultipleAllocations', {}),
    "model-a": (f'device.attributes["{DRIVER}"].?model.orValue("") == "a"', {}),
    "large": (f'device.capacity["{DRIVER}"].memory.compareTo(quantity("30Gi")) >= 0', {}),
    "new": (f'device.attributes["{DRIVER}"].driverVersion.isGreaterThan(semver("570.0.0"))', {}),
    "by-name": (f'device.driver == "{DRIVER}" && !device.allowMultipleAllocations', {"extendedResourceName": RESOURCE}),
}


def custom(api: client.CoreV1Api) -> client.CustomObjectsApi:
    return client.CustomObjectsApi(api.api_client)


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
        name = f"scene-{scene}-node-{number}"
        labels |= {HOSTNAME: name, **({ZONE: f"{scene}-{dice.choice('xy')}"} if dice.random() < 0.8 else {})}
        spec: Object = {"taints": taints, **({"unschedulable": True} if dice.random() < 0.05 else {})}
        metadata = {"name": name, "labels": labels}
        nodes.append({"metadata": metadata, "spec": spec, "status": {"allocatable": offered, "capacity": offered}})
    return nodes


def slices_of(nodes: Sequence[Object], dice: random.Random) -> list[Object]:
    """Devices of some nodes: whole, shared by memory, and cut like MIG; and at times one that all nodes reach."""
    made: list[Object] = []
    for node in nodes:
        name = node["metadata"]["name"]
        if dice.random() < 0.5:
            continue
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        devices = [device(f"gpu-{index}", dice) for index in range(dice.randint(1, 3))]
        if dice.random() < 0.3:  # a card and its halves
            pool["resourceSliceCount"] = 2
            counters = {"memory": {"value": "40Gi"}}
            made.append(
                slice_of(f"{name}-counters", pool, name, sharedCounters=[{"name": "card", "counters": counters}])
            )
            devices += [part("card", "40Gi"), part("half-0", "20Gi"), part("half-1", "20Gi")]
        made.append(slice_of(name, pool, name, devices=devices))
    if dice.random() < 0.2:
        scene = nodes[0]["metadata"]["labels"]["scene"]
        terms = [{"matchExpressions": [{"key": "scene", "operator": "In", "values": [scene]}]}]
        pool = {"name": f"scene-{scene}", "generation": 1, "resourceSliceCount": 1}
        made.append(
            slice_of(pool["name"], pool, None, nodeSelector={"nodeSelectorTerms": terms}, devices=[device("far", dice)])
        )
    return made


def slice_of(name: str, pool: Object, node: str | None, **more: Any) -> Object:
    spec = {"driver": DRIVER, "pool": pool, **({"nodeName": node} if node else {}), **more}
    return {**API, "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


def device(name: str, dice: random.Random) -> Object:
    memory: Object = {"value": dice.choice(["16Gi", "40Gi"])}
    made: Object = {
        "name": name,
        "attributes": {"uuid": {"string": name}, "driverVersion": {"version": dice.choice(["565.1.0", "580.95.5"])}},
    }
    if dice.random() < 0.7:
        made["attributes"]["model"] = {"string": dice.choice("ab")}
    if dice.random() < 0.5:
        made["allowMultipleAllocations"] = True
        if dice.random() < 0.6:
            memory["requestPolicy"] = dice.choice(
                [
                    {"default": "4Gi", "validRange": {"min": "1Gi", "step": "1Gi"}},
                    {"default": "4Gi", "validRange": {"min": "2Gi", "max": "8Gi"}},
                    {"default": "8Gi", "validValues": ["4Gi", "8Gi", "16Gi"]},
                ]
            )
    if dice.random() < 0.1:
        made["taints"] = [{"key": "worn", "value": "yes", "effect": dice.choice(["NoSchedule", "NoExecute"])}]
    return {**made, "capacity": {"memory": memory}}


def part(name: str, memory: str) -> Object:
    attributes = {"uuid": {"string": name}, "driverVersion": {"version": "580.95.5"}}
    uses = [{"counterSet": "card", "counters": {"memory": {"value": memory}}}]
    return {"name": name, "attributes": attributes, "capacity": {"memory": {"value": memory}}, "consumesCounters": uses}


def claim_of(name: str, dice: random.Random) -> Object:
    requests: list[Object] = []
    for index in range(dice.choice([1, 1, 1, 2])):
        if dice.random() < 0.15:
            alternatives = [{"name": f"s{number}", **asked(dice)} for number in range(2)]
            requests.append({"name": f"r{index}", "firstAvailable": alternatives})
        else:
            admin = {"adminAccess": True} if dice.random() < 0.1 else {}
            requests.append({"name": f"r{index}", "exactly": {**asked(dice), **admin}})
    devices: Object = {"requests": requests}
    if dice.random() < 0.3:
        attribute = dice.choice([f"{DRIVER}/uuid", f"{DRIVER}/model"])
        devices["constraints"] = [{dice.choice(["matchAttribute", "distinctAttribute"]): attribute}]
    return {
        **API,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "scenes"},
        "spec": {"devices": devices},
    }


def asked(dice: random.Random) -> Object:
    made: Object = {"deviceClassName": dice.choice([name for name in CLASSES if name != "by-name"])}
    if dice.random() < 0.5:
        made["capacity"] = {"requests": {"memory": dice.choice(["1Gi", "2500Mi", "4Gi", "12Gi"])}}
    if dice.random() < 0.15:
        made["selectors"] = [
            {"cel": {"expression": f'device.capacity["{DRIVER}"].memory.isLessThan(quantity("20Gi"))'}}
        ]
    if dice.random() < 0.2:
        made["tolerations"] = [{"key": "worn", "operator": "Exists"}]
    mode = dice.random()
    if mode < 0.1:
        made["allocationMode"] = "All"
    elif mode < 0.25:
        made["count"] = 2
    return made


def peers(dice: random.Random) -> Object:
    """Affinity between the pods of a scene, by their label `app`."""
    made: Object = {}
    for kind in ("podAffinity", "podAntiAffinity"):
        if dice.random() < 0.12:
            made.setdefault(kind, {})["requiredDuringSchedulingIgnoredDuringExecution"] = [term(dice)]
        if dice.random() < 0.12:
            weighted = [{"weight": dice.randint(1, 100), "podAffinityTerm": term(dice)}]
            made.setdefault(kind, {})["preferredDuringSchedulingIgnoredDuringExecution"] = weighted
    return made


def term(dice: random.Random) -> Object:
    made: Object = {"topologyKey": dice.choice([HOSTNAME, ZONE]), "labelSelector": selecting(dice)}
    if dice.random() < 0.3:
        made["namespaceSelector"] = dice.choice(
            [{}, {"matchLabels": {"team": "red"}}, {"matchLabels": {"team": "blue"}}]
        )
    return made


def selecting(dice: random.Random) -> Object:
    app = dice.choice("abc")
    return dice.choice(
        [{"matchLabels": {"app": app}}, {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [app]}]}]
    )


def spread(dice: random.Random) -> Object:
    made: Object = {
        "maxSkew": dice.choice([1, 1, 2]),
        "topologyKey": dice.choice([HOSTNAME, ZONE]),
        "whenUnsatisfiable": dice.choice(["DoNotSchedule", "ScheduleAnyway"]),
        "labelSelector": selecting(dice),
    }
    if made["whenUnsatisfiable"] == "DoNotSchedule" and dice.random() < 0.2:
        made["minDomains"] = dice.choice([2, 3])
    if dice.random() < 0.2:
        made["nodeTaintsPolicy"] = dice.choice(["Honor", "Ignore"])
    return made


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
    spec["affinity"] = {**({"nodeAffinity": affinity} if affinity else {}), **within(scene, peers(dice))}
    if dice.random() < 0.25:
        spec["topologySpreadConstraints"] = [within(scene, spread(dice))]
    if priority:
        spec["priorityClassName"] = f"p{priority}"
    labels = {"scene": str(scene), "app": dice.choice("abc")}
    return {"metadata": {"name": f"scene-{scene}-pod-{number}", "labels": labels}, "spec": spec}


def within(scene: int, value: Any) -> Any:
    """Let all label selectors select in this scene alone."""
    if isinstance(value, list):
        return [within(scene, each) for each in value]
    if not isinstance(value, dict):
        return value
    made = {key: within(scene, each) for key, each in value.items()}
    if "labelSelector" in made:
        selector = made["labelSelector"]
        made["labelSelector"] = {**selector, "matchLabels": {**selector.get("matchLabels", {}), "scene": str(scene)}}
    return made


def claiming(pod: Object, dice: random.Random) -> list[Object]:
    """Let some pods have a claim, or ask for a device by a resource; return the claims."""
    spec, fate = pod["spec"], dice.random()
    if fate < 0.1:
        spec["containers"][0]["resources"]["limits"] |= {RESOURCE: str(dice.choice([1, 1, 2]))}
    if fate < 0.6:
        return []
    name = pod["metadata"]["name"]
    spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": name}]
    spec["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    return [claim_of(name, dice)]


def strong(scene: int, dice: random.Random) -> Object:
    """Return a pod of the highest priority that nearly every node is open to, and few have room for."""
    pod = pod_of(scene, 9, dice, 1000)
    resources = {"limits": {GPU: str(dice.choice([1, 2, 4]))}, "requests": {"cpu": "3"}}
    pod["spec"] |= {"containers": [{"name": "c", "image": "none", "resources": resources}], "initContainers": []}
    pod["spec"]["tolerations"].append({"operator": "Exists"})
    if dice.random() < 0.7:
        del pod["spec"]["affinity"]
        pod["spec"].pop("topologySpreadConstraints", None)
        pod["spec"]["nodeSelector"].pop("disk", None)
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


def create(api: client.CoreV1Api, nodes: list[Object], slices: Sequence[Object] = ()) -> None:
    for item in slices:
        custom(api).create_cluster_custom_object("resource.k8s.io", "v1", "resourceslices", item)
    for node in nodes:
        raw(api.create_node, node)
        raw(api.patch_node_status, node["metadata"]["name"], {"status": node["status"]})


def settled(api: client.CoreV1Api) -> dict[str, Object]:
    """Wait until every pod has a node, or the scheduler has found none; return them by name."""
    pods: list[Object] = []

    def looked() -> bool:
        pods[:] = stored(api, "pods")
        return all(pod["spec"].get("nodeName") or found_none(pod["status"]) for pod in pods)

    assert eventually(looked)
    return {pod["metadata"]["name"]: pod for pod in pods}


def found_none(status: Object) -> bool:
    return bool(status.get("conditions")) and not status.get("nominatedNodeName")


def stored(api: client.CoreV1Api, kind: str) -> list[Object]:
    listed = raw(api.list_node) if kind == "nodes" else raw(api.list_namespaced_pod, "scenes")
    return list(json.loads(listed)["items"])


def raw(call: Callable[..., Any], *arguments: Any) -> bytes:
    """Call the API without the client's own reading of objects, which takes longer than the scheduler."""
    return bytes(call(*arguments, _preload_content=False).data)


def of_devices(api: client.CoreV1Api) -> list[Object]:
    """The classes, slices and claims that are stored."""
    found: list[Object] = []
    plurals = {"DeviceClass": "deviceclasses", "ResourceSlice": "resourceslices", "ResourceClaim": CLAIMS}
    for kind, plural in plurals.items():
        listed: Any = custom(api).list_cluster_custom_object("resource.k8s.io", "v1", plural)
        found += ({**API, "kind": kind, **item} for item in listed["items"])
    return found


CLAIMS = "resourceclaims"


def clear(api: client.CoreV1Api) -> None:
    api.delete_collection_namespaced_pod("scenes", grace_period_seconds=0)
    assert eventually(lambda: not stored(api, "pods"))
    api.delete_collection_node()
    objects = custom(api)
    objects.delete_collection_cluster_custom_object("resource.k8s.io", "v1", "resourceslices")
    of_namespace = ("resource.k8s.io", "v1", "scenes", CLAIMS)
    left: Any = objects.list_namespaced_custom_object(*of_namespace)
    for item in left["items"]:
        if item["metadata"].get("finalizers"):  # no controller takes the devices back
            freed = {"metadata": {"finalizers": None}}
            objects.patch_namespaced_custom_object(*of_namespace, item["metadata"]["name"], freed)
    objects.delete_collection_namespaced_custom_object(*of_namespace)


class Scene:
    """A scene as it is played, beside the real one."""

    def __init__(self, nodes: Sequence[Object], devices: Sequence[Object]) -> None:
        names = {node["metadata"]["name"] for node in nodes}
        self.nodes = {node["metadata"]["name"]: node_info(node) for node in nodes}
        scene = nodes[0]["metadata"]["labels"]["scene"]
        own = [
            {key: value for key, value in item.items() if key != "status"}
            for item in devices
            if item["kind"] != "ResourceSlice" or item["spec"]["pool"]["name"] in {*names, f"scene-{scene}"}
        ]
        self.claims: Claims = claims_among(own)
        self.stage = ClusterState([*self.nodes.values()], self.claims.stock)

    def info(self, item: Object) -> PodInfo:
        """Read a pod as the API server stores it, without its node."""
        bare = {**item, "spec": {key: value for key, value in item["spec"].items() if key != "nodeName"}}
        name = item["metadata"]["name"]
        info = pod_info(bare, name, namespaces={"scenes": {"team": "red", ADMIN_ACCESS: "true"}})
        if self.claims.unplayed:
            missing = "no devices" if item["spec"].get("resourceClaims") or RESOURCE in info.asks else ""
            return replace(info, missing=missing)
        claims, missing = self.claims.of(item["spec"], "scenes", name)
        return replace(info, claims=claims, missing=missing, by_class=self.claims.classes_for(info.asks))

    def differs(self, info: PodInfo, real: str) -> str:
        """Put a pod where it really is; say how that differs from where it would be played to; empty if it does not."""
        filters = Filters(info, self.stage)
        try:
            fitting = [node for node in self.stage.nodes if filters.fits(node)]
        except AllocationError:  # the scheduler gives it up, too
            fitting = []
        expected = [node.name for node in scores.best(filters, fitting, self.stage.nodes, Strategy.SPREAD)]
        agrees = real in expected or not (real or expected)
        if real:
            self.stage.put(info, self.nodes[real], filters.allocations.get(real, ((),) * len(info.claims)))
        return (
            "" if agrees else f"{info.name}: the scheduler took {real or 'none'}, and {expected or 'none'} was played"
        )


def scenes_of(api: client.CoreV1Api, scenes: Sequence[int]) -> dict[int, Scene]:
    nodes, devices = stored(api, "nodes"), of_devices(api)
    by_scene = {
        scene: [node for node in nodes if node["metadata"]["labels"]["scene"] == str(scene)] for scene in scenes
    }
    return {scene: Scene(of, devices) for scene, of in by_scene.items()}


def devices_of(items: Sequence[Object], name: str) -> list[str]:
    """The devices of a claim by its status."""
    for item in items:
        if item["metadata"]["name"] == name and item["kind"] == "ResourceClaim":
            allocation = item.get("status", {}).get("allocation", {}).get("devices", {})
            return [f"{each['pool']}/{each['device']}" for each in allocation.get("results", ())]
    return []


def rounds(
    api: client.CoreV1Api, scenes: dict[int, Scene], pods: Sequence[dict[int, Object]], seen: Counter[str]
) -> list[str]:
    """Create the pods round by round, one in each scene, and play them; return how both differ."""
    differences = []
    for of_round in pods:
        for item in of_round.values():
            raw(api.create_namespaced_pod, "scenes", item)
        real = settled(api)
        for scene, made in of_round.items():
            item = real[made["metadata"]["name"]]
            info, node = scenes[scene].info(item), item["spec"].get("nodeName", "")
            if said := scenes[scene].differs(info, node):
                differences.append(said)
            seen.update({"landed" if node else "waited": 1})
            seen.update(kind for kind, there in kinds(info).items() if there and node)
            if not node:
                api.delete_namespaced_pod(info.name, "scenes", grace_period_seconds=0)
    return differences


def kinds(info: PodInfo) -> dict[str, bool]:
    return {
        "affinity": bool(info.together or info.apart or info.liked),
        "spread": bool(info.spreads),
        "claims": bool(info.claims),
        "by class": bool(info.by_class),
    }


def test_it_takes_the_nodes_and_the_devices_that_the_scheduler_takes(api: client.CoreV1Api) -> None:
    dice, differences, seen = thrown("spread"), list[str](), Counter[str]()
    for first in range(0, SPREADING, BATCH):
        batch = range(first, min(first + BATCH, SPREADING))
        nodes = {scene: nodes_of(scene, dice) for scene in batch}
        pods = [{scene: pod_of(scene, number, dice) for scene in batch} for number in range(7)]
        for of_round in pods:
            for claim in (claim for pod in of_round.values() for claim in claiming(pod, dice)):
                custom(api).create_namespaced_custom_object("resource.k8s.io", "v1", "scenes", CLAIMS, claim)
        slices = [item for of in nodes.values() for item in slices_of(of, dice)]
        create(api, [node for of in nodes.values() for node in of], slices)
        scenes = scenes_of(api, batch)
        differences += rounds(api, scenes, pods, seen)
        stored_claims = of_devices(api)
        for scene in scenes.values():
            for each in scene.claims.named.values():
                if each.users:
                    played = ["/".join(one.device.id[1:]) for one in each.held or ()]
                    if played != (real := devices_of(stored_claims, each.users[0])):
                        differences.append(f"{each.users[0]}: has {real}, and {played} was played")
        clear(api)
    assert differences == []
    assert seen["landed"] > SPREADING
    assert all(seen[kind] > SPREADING / 10 for kind in ("waited", "affinity", "spread", "claims", "by class"))


def test_it_evicts_the_pods_that_the_scheduler_evicts(api: client.CoreV1Api) -> None:
    dice, differences, evicted, seen = thrown("evict"), list[str](), 0, Counter[str]()
    for first in range(0, EVICTING, BATCH):
        batch = range(first, min(first + BATCH, EVICTING))
        create(api, [node for scene in batch for node in nodes_of(scene, dice)])
        scenes = scenes_of(api, batch)
        # In falling order, so that they do not evict each other.
        pods = [
            {scene: pod_of(scene, number, dice, (20, 10, 0)[number // 3]) for scene in batch} for number in range(9)
        ]
        differences += rounds(api, scenes, pods, seen)
        before = settled(api)
        for number, name in enumerate(sorted(before, key=lambda name: int(name.rpartition("-")[2]))):
            # Among pods of one priority the one that started first is spared first.
            start = f"2026-01-01T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z"
            raw(api.patch_namespaced_pod_status, name, "scenes", {"status": {"startTime": start}})
        for scene in batch:
            raw(api.create_namespaced_pod, "scenes", strong(scene, dice))
        after = settled(api)
        for scene, played in scenes.items():
            item = after[f"scene-{scene}-pod-9"]
            real, info = item["spec"].get("nodeName", ""), played.info(item)
            gone = {name for name in before if name.startswith(f"scene-{scene}-") and name not in after}
            evicted += len(gone)
            filters = Filters(info, played.stage)
            if any(filters.fits(node) for node in played.stage.nodes) or not real:
                if said := played.differs(info, real):
                    differences.append(said)
                continue
            candidates = candidates_for(info, played.stage)
            expected = {node.name: {victim.name for victim in victims} for node, victims in cheapest(candidates)}
            if expected.get(real) != gone:
                differences.append(f"{info.name}: took {real} from {sorted(gone)}, and {expected} was played")
        clear(api)
    assert differences == []
    assert evicted > EVICTING / 6
