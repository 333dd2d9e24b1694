"""Measures the largest reviews that are judged, and some that are refused. Each has mostly one kind of entry."""

from collections.abc import Callable
from itertools import pairwise
from time import process_time
from typing import Any

import orjson

from bench import tables
from bench.decision import FACTS, POLICY
from bench.runs import Result, figure
from webhook.api import admission
from webhook.cli.inputs import load_engine
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.serving.processes import settle

Object = dict[str, Any]

MOST = 3 * 1024 * 1024
"""Maximum bytes of an object that an API server accepts."""

SETTINGS = ",".join(f"a{n}:1" for n in range(580))[:4000].rpartition(",")[0]


def pod(**spec: Any) -> Object:
    """Return a pod that requests a shared GPU and may be trusted."""
    gpu = {"name": "a", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    metadata = {"name": "p", "namespace": "vision", "annotations": {"slicewarden.dev/trust": "trusted"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [gpu], **spec}}


def _beside(key: str, *entries: Any) -> Object:
    item = pod()
    item["spec"]["containers"][0][key] = [*entries]
    return item


def _affinity(count: int, *operators: str) -> Object:
    terms = [{"matchExpressions": [{"key": f"k{n}", "operator": each} for each in operators]} for n in range(count)]
    required = {"nodeSelectorTerms": terms}
    return pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}})


def _asking(count: int, **more: Any) -> list[Object]:
    return [{"name": f"c{n}", "resources": {"limits": {"nvidia.com/gpu": 1}}, **more} for n in range(count)]


def _named(count: int) -> Object:
    item = pod()
    item["spec"]["containers"][0]["resources"]["limits"] = {f"nvidia.com/gpu-{n}": 1 for n in range(count)}
    return item


def _annotated(count: int) -> Object:
    item = pod()
    item["metadata"]["annotations"] |= {f"slicewarden.dev/x{n}": "" for n in range(count)}
    return item


def _workload(api: str, kind: str, spec: Object) -> Object:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": "w", "namespace": "vision"}, "spec": spec}


def _deployment(**spec: Any) -> Object:
    item = pod(**spec)
    template = {"metadata": item["metadata"], "spec": item["spec"]}
    return _workload("apps/v1", "Deployment", {"template": template})


def _job_set(count: int) -> Object:
    jobs = [{"template": {"spec": {"template": {"spec": pod()["spec"]}}}} for _ in range(count)]
    return _workload("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": jobs})


def _workflow(count: int, shared: int) -> Object:
    container = {"name": "a", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    spec = {"tolerations": [{"key": "k"}] * shared, "templates": [{"container": container}] * count}
    return _workload("argoproj.io/v1alpha1", "Workflow", spec)


def _claim(count: int) -> Object:
    requests = [
        {"name": f"r{n}", "exactly": {"deviceClassName": "gpu.nvidia.com", "adminAccess": True}} for n in range(count)
    ]
    return _workload("resource.k8s.io/v1", "ResourceClaim", {"devices": {"requests": requests}})


def _config_map(count: int) -> Object:
    metadata = {"name": "time-slicing-config", "namespace": "gpu-operator"}
    text = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 99}]}}"
    data = {f"k{n}": text for n in range(count)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


LOADER = [{"name": "LD_LIBRARY_PATH", "value": "/x"}, {"name": "LD_PRELOAD", "value": "/y"}]

KINDS: dict[str, Callable[[int], Object]] = {
    "containers": lambda n: pod(initContainers=[{"name": f"c{i}"} for i in range(n)]),
    "containers of all lists with a way": lambda n: pod(
        initContainers=[{"name": f"c{i}", "securityContext": {"privileged": True}} for i in range(n)]
    ),
    "containers that ask for a GPU": lambda n: pod(initContainers=_asking(n)),
    "containers with long settings": lambda n: pod(
        initContainers=_asking(n, env=[{"name": "PYTORCH_ALLOC_CONF", "value": SETTINGS}])
    ),
    "variables": lambda n: _beside("env", *({"name": f"V{i}", "value": "x"} for i in range(n))),
    "variables that open a way": lambda n: _beside("env", *({"name": "CUDA_VERSION", "value": "x"} for i in range(n))),
    "sources of variables": lambda n: _beside(
        "envFrom", *({"prefix": "", "secretRef": {"name": "s"}} for i in range(n))
    ),
    "mounts": lambda n: _beside("volumeMounts", *({"mountPath": f"/etc/../etc/{i}/.."} for i in range(n))),
    "resources": _named,
    "host paths": lambda n: pod(volumes=[{"hostPath": {"path": f"/data/b/c/d/e/f/{i}"}} for i in range(n)]),
    "host paths that lead to GPUs": lambda n: pod(volumes=[{"hostPath": {"path": f"/dev/x{i}"}} for i in range(n)]),
    "tolerations": lambda n: pod(tolerations=[{"operator": "Exists"}] * n),
    "terms": lambda n: _affinity(n, "Exists"),
    "terms of none": lambda n: _affinity(n, "Exists", "DoesNotExist"),
    "expressions": lambda n: _affinity(1, *["Exists"] * n),
    "labels that select": lambda n: pod(nodeSelector={f"l{i}": "x" for i in range(n)}),
    "annotations": _annotated,
    "claims of a pod": lambda n: pod(resourceClaims=[{"name": f"c{i}"} for i in range(n)]),
    "a Deployment's containers": lambda n: _deployment(initContainers=_asking(n, env=LOADER)),
    "templates": _job_set,
    "templates that share": lambda n: _workflow(n, n),
    "requests of a claim": _claim,
    "keys of a ConfigMap": _config_map,
    "entries of nothing": lambda n: pod(future=[0] * n),
}
"""Makers of objects with a number of equal entries, made as expensive as possible."""


def accepted(engine: Engine, facts: Facts, make: Callable[[int], Object]) -> tuple[int, Object]:
    """Return the largest object of this kind that is judged, and its number of entries."""

    def fits(size: int) -> bool:
        item = make(size)
        verdict = engine.validate(admission.decode(admission.wrap(item)), facts)
        return "too large to be judged" not in str(verdict.malformed) and len(orjson.dumps(item)) < MOST

    low, high = 1, 2
    while fits(high):
        low, high = high, high * 2
    while high - low > max(1, low // 50):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low, make(low)


def seconds(engine: Engine, facts: Facts, item: Object) -> tuple[float, float, float]:
    """Return CPU seconds of both calls for a creation, of an update, and between two checks of the clock."""
    body = admission.wrap(item)
    looks = [process_time()]

    def late() -> bool:
        looks.append(process_time())
        return False

    start = process_time()
    for half in (engine.mutate, engine.validate):
        request = admission.decode(body)
        admission.encode(request, half(request, facts, late))
    created = process_time() - start
    gap = max((after - before for before, after in pairwise(looks)), default=0.0)
    asked = orjson.loads(body)
    changed = orjson.loads(body)["request"]["object"]
    changed["metadata"]["labels"] = {"a": "b"}
    asked["request"] |= {"operation": "UPDATE", "oldObject": item, "object": changed}
    body = orjson.dumps(asked)
    start = process_time()
    for half in (engine.mutate, engine.validate):
        request = admission.decode(body)
        admission.encode(request, half(request, facts, late))
    return created, process_time() - start, gap


def refused_at(engine: Engine, facts: Facts, make: Callable[[int], Object], size: int, length: int) -> float:
    """Return the CPU seconds until the largest object that an API server accepts, or that can be read, is refused."""
    times = MOST / length
    while times > 1:
        try:
            return seconds(engine, facts, make(int(size * times)))[0]
        except admission.NotAReview:
            times /= 1.5
    return 0.0


def run() -> Result:
    """Measure each kind of entry at the largest size that is judged, and at the largest that an API server accepts."""
    engine, facts = load_engine(str(POLICY), str(FACTS))
    settle()
    rows, judged, gaps = [], [], []
    for name, make in KINDS.items():
        size, item = accepted(engine, facts, make)
        created, updated, gap = seconds(engine, facts, item)
        judged += [created, updated]
        gaps.append(gap)
        length = len(orjson.dumps(item))
        refused = refused_at(engine, facts, make, size, length)
        rows.append(
            (
                name,
                f"{size:,}",
                f"{length / 1000:,.0f}",
                f"{created * 1000:,.0f}",
                f"{updated * 1000:,.0f}",
                f"{gap * 1000:,.0f}",
                f"{refused * 1000:,.0f}",
            )
        )
    head = ("mostly", "most judged", "KB", "created ms", "updated ms", "gap ms", "refused ms")
    figures = [
        figure("CPU of the largest reviews, both calls", "s", judged),
        figure("between two looks at the clock", "s", gaps),
    ]
    return Result(tables.markdown(head, rows), figures)
