"""Hypothesis strategies: JSON values, pods as tenants write them, broken reviews."""

import copy
import json
from typing import Any

from hypothesis import strategies as st

from webhook.model import Request, Requester

AWKWARD_KEYS = ("", "/", "~", "~1", "a/b", "m~0n", "-", "0", "é", " ", "x.y/z-1")

SHARING = "nvidia.com/gpu.sharing-strategy"
PRODUCT = "nvidia.com/gpu.product"
REPLICAS = "nvidia.com/gpu.replicas"
MEMORY = "nvidia.com/gpu.memory"
ZONE = "topology.kubernetes.io/zone"

LABELS = {
    SHARING: ("none", "time-slicing", "mps"),
    PRODUCT: ("Tesla-T4", "NVIDIA-A100-SXM4-80GB"),
    REPLICAS: ("0", "1", "4"),
    MEMORY: ("15360", "81920"),
    ZONE: ("a", "b"),
}
"""Every node label that a generated pod selects by, with the values that it may name."""

NAMESPACES = ("vision", "visitors", "nowhere")
"""Granted trust, granted none, and not known at all."""

TRUST = "slicewarden.dev/trust"


def json_values(max_leaves: int = 10) -> st.SearchStrategy[Any]:
    """Any JSON value."""
    scalars = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        _text(),
    )
    return st.recursive(
        scalars,
        lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_text(), inner, max_size=4)),
        max_leaves=max_leaves,
    )


def json_maps() -> st.SearchStrategy[dict[str, Any]]:
    """Any JSON object."""
    return st.dictionaries(_text(), json_values(), max_size=4)


def _text() -> st.SearchStrategy[str]:
    return st.one_of(st.sampled_from(AWKWARD_KEYS), st.text(st.characters(exclude_categories=["Cs"]), max_size=8))


EXTRA: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    (
        {},
        {},
        {},
        {"futureField": None},
        {"x/y": [{"a": [1]}], "": 0},
        {"~z": {"deep": {"er": False, "list": []}}},
    )
)
"""Fields that no version of the API knows yet."""


@st.composite
def _with(draw: st.DrawFn, required: dict[str, Any], optional: dict[str, Any]) -> dict[str, Any]:
    """A map of these fields, some of the optional ones, and unknown fields."""
    value: dict[str, Any] = draw(st.fixed_dictionaries(required, optional=optional))
    return {**draw(EXTRA), **value}


QUANTITIES = st.one_of(
    st.sampled_from((1, "1")),  # most pods ask for one
    st.sampled_from(
        (1, "1", "1000m", "1e0", 1.0, 2, "2", "2000m", 3, 8, "9", "1k", "1Ki", 0, "0", "500m", "-1", 1.5, "", "many")
    ),
    st.sampled_from(("1e999", "9" * 40, "1\n", "١", None, True, [], {"a": 1})),
)

GPUS = st.one_of(
    st.just("nvidia.com/gpu"),
    st.sampled_from(
        (
            "nvidia.com/gpu",
            "nvidia.com/gpu.shared",
            "nvidia.com/mig-1g.10gb",
            "nvidia.com/mig-3g.40gb",
            "nvidia.com/mig-",
        )
    ),
)

RESOURCES = st.one_of(
    st.dictionaries(GPUS, QUANTITIES, min_size=1, max_size=1),
    st.dictionaries(
        st.one_of(GPUS, st.sampled_from(("cpu", "memory", "amd.com/gpu", "NVIDIA.com/gpu"))), QUANTITIES, max_size=3
    ),
)

ENVIRONMENT = {
    "PYTORCH_ALLOC_CONF": (
        "per_process_memory_fraction:0.1",
        "per_process_memory_fraction:0.9",
        "expandable_segments:True",
        "expandable_segments:True, ",
        "per_process_memory_fraction:.9 , expandable_segments:True,per_process_memory_fraction:0.8",
        "backend:cudaMallocAsync",
        "per_process_memory_fraction:50%",
        "roundup_power2_divisions:[256:1,512:2]",
        "max_split_size_mb",
        "a:b;c:d",
        "",
        "$(OTHER)",
    ),
    "PYTORCH_CUDA_ALLOC_CONF": (
        "max_split_size_mb:128",
        "per_process_memory_fraction:0.1",
        "per_process_memory_fraction:0.9,large_segment_size_mb:40",
        "throw_on_cudamalloc_oom:True",
        "broken",
        "",
    ),
    "PYTORCH_HIP_ALLOC_CONF": ("expandable_segments:True", "per_process_memory_fraction:0.9", "=", ""),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": ("1", "", "0"),
    "TF_FORCE_GPU_ALLOW_GROWTH": ("true", "True", "1", ""),
    "TF_GPU_ALLOCATOR": ("cuda_malloc_async", "bogus"),
    "TF_FORCE_UNIFIED_MEMORY": ("1", "false", "$(X)"),
    "XLA_PYTHON_CLIENT_MEM_FRACTION": (".10", "0.1", "0.95", "nan", "-1", "much", ""),
    "XLA_CLIENT_MEM_FRACTION": ("0.1", "0.95", "4.0", ""),
    "XLA_PYTHON_CLIENT_PREALLOCATE": ("false", "true"),
    "XLA_PYTHON_CLIENT_ALLOCATOR": ("platform", "BFC"),
    "JAX_PJRT_CLIENT_CREATE_OPTIONS": ("allocator:platform", "allocator:bfc", "memory_fraction:0.9", ""),
    "XLA_FLAGS": ("--xla_gpu_temp_buffer_use_separate_color", "--xla_gpu_autotune_level=0", "/flags"),
    "CUPY_GPU_MEMORY_LIMIT": ("10%", "90%", "1073741824", "99999999999", "0", "0%", "1GiB", ""),
    "FLAGS_use_virtual_memory_auto_growth": ("true", "1", "False"),
    "FLAGS_gpu_memory_limit_mb": ("1024", "40960", "0", "-1", "abc", ""),
    "CUDA_MODULE_LOADING": ("EAGER", "LAZY"),
    "NVIDIA_VISIBLE_DEVICES": ("all", "void"),
    "PATH": ("/usr/bin", "line\nbreak"),
}

VALUE_FROM = st.just({"secretKeyRef": {"name": "s", "key": "k"}})


@st.composite
def env_entries(draw: st.DrawFn) -> dict[str, Any]:
    """Generate one entry of a container's env: a value, a reference, or neither."""
    name = draw(st.sampled_from(sorted(ENVIRONMENT)))
    values = st.sampled_from(ENVIRONMENT[name])
    source = draw(st.one_of(st.just("value"), st.sampled_from(("value", "valueFrom", "neither"))))
    fields: dict[str, Any] = {"value": values} if source == "value" else {}
    if source == "valueFrom":
        fields = {"valueFrom": VALUE_FROM}
    return draw(_with({"name": st.just(name), **fields}, {}))


def containers(
    resources: st.SearchStrategy[Any] | None = None, **optional: st.SearchStrategy[Any]
) -> st.SearchStrategy[dict[str, Any]]:
    """A container, asking for these resources or for any."""
    some = _with({}, {"limits": RESOURCES, "requests": RESOURCES})
    return _with(
        {
            "name": st.sampled_from(("main", "other")),
            "resources": st.one_of(some, some, st.none()) if resources is None else resources,
        },
        {
            "image": st.sampled_from(
                (
                    "registry.example/train:1",
                    "ghcr.io/huggingface/text-generation-inference:3",
                    "vllm/vllm-openai@sha256:0",
                )
            ),
            "env": st.one_of(st.lists(env_entries(), max_size=4), st.none()),
            "envFrom": st.sampled_from((None, [], [{"secretRef": {"name": "s"}}], [{"prefix": "APP_"}])),
            "command": st.sampled_from(
                (["vllm", "serve"], ["python3", "-m", "vllm.entrypoints.openai.api_server"], [])
            ),
            **optional,
        },
    )


@st.composite
def expressions(draw: st.DrawFn) -> dict[str, Any]:
    """A node selector requirement that the API server would store."""
    key = draw(st.sampled_from(sorted(LABELS)))
    operator = draw(st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")))
    if operator in ("Gt", "Lt"):
        return {"key": MEMORY, "operator": operator, "values": [draw(st.sampled_from(("0", "15360", "40000")))]}
    if operator in ("Exists", "DoesNotExist"):
        return {"key": key, "operator": operator}
    values = draw(st.lists(st.sampled_from(LABELS[key]), min_size=1, max_size=2))
    return draw(_with({"key": st.just(key), "operator": st.just(operator), "values": st.just(values)}, {}))


FIELDS = st.just([{"key": "metadata.name", "operator": "In", "values": ["node-1"]}])

TERMS = _with(
    {},
    {
        "matchExpressions": st.one_of(st.lists(expressions(), max_size=2), st.none()),
        "matchFields": st.one_of(FIELDS, st.just([])),
    },
)

AFFINITY = _with(
    {},
    {
        "nodeAffinity": st.one_of(
            st.none(),
            _with(
                {},
                {
                    "requiredDuringSchedulingIgnoredDuringExecution": st.one_of(
                        st.none(), _with({"nodeSelectorTerms": st.lists(TERMS, min_size=1, max_size=3)}, {})
                    ),
                    "preferredDuringSchedulingIgnoredDuringExecution": st.just(
                        [{"weight": 1, "preference": {"matchExpressions": [{"key": ZONE, "operator": "Exists"}]}}]
                    ),
                },
            ),
        ),
        "podAffinity": st.just({"futureField": True}),
    },
)

NODE_SELECTOR = st.one_of(
    st.dictionaries(st.just(ZONE), st.sampled_from(LABELS[ZONE])),
    st.fixed_dictionaries({}, optional={key: st.sampled_from(values) for key, values in LABELS.items()}),
)

TOLERATIONS = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {"key": st.just("slicewarden.dev/pool"), "value": st.sampled_from(("shared", "exclusive", "mig"))},
            optional={"operator": st.just("Equal"), "effect": st.sampled_from(("NoSchedule", "NoExecute"))},
        ),
        st.sampled_from(({"operator": "Exists"}, {"key": "slicewarden.dev/pool", "operator": "Exists"}, {})),
        _with({"key": st.just("other"), "tolerationSeconds": st.just(5)}, {}),
    ),
    max_size=3,
)


ANNOTATIONS = st.one_of(
    st.just({TRUST: "trusted"}),
    st.none(),
    st.just({"note": "a/b"}),
    st.fixed_dictionaries({TRUST: st.sampled_from(("trusted", "untrusted", "Trusted", "", "yes"))}),
    st.fixed_dictionaries(
        {TRUST: st.just("trusted")},
        optional={
            "slicewarden.dev/torch-version": st.sampled_from(("2.11", "2.8.1", "2.10.0+cu130", "2.10", "new")),
            "slicewarden.dev/gpu-memory": st.sampled_from(("1Gi", "600Mi", "3251Mi", "64Gi", "much")),
            "slicewarden.dev/gpu-processes": st.sampled_from(("1", "2", "3", "many")),
            "slicewarden.dev/memory-caps": st.sampled_from(("", "{}", '{"pool":"shared","fraction":"0.211","mib":1}')),
        },
    ),
)

METADATA = _with(
    {"name": st.just("train"), "namespace": st.sampled_from(NAMESPACES)},
    {"annotations": ANNOTATIONS, "labels": st.just({"app": "a"})},
)

INIT_CONTAINERS = st.lists(containers(restartPolicy=st.sampled_from(("Always", "Never", None))), max_size=2)

ONE_GPU = st.builds(
    lambda gpu, parts: {part: {gpu: 1} for part in parts},
    st.one_of(st.just("nvidia.com/gpu"), st.sampled_from(("nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb"))),
    st.sampled_from((("limits",), ("limits", "requests"))),
)


def _pods(**spec: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    selection = {
        "nodeSelector": st.one_of(st.none(), NODE_SELECTOR),
        "affinity": st.one_of(st.none(), AFFINITY, AFFINITY),
        "tolerations": st.one_of(st.none(), TOLERATIONS),
        "serviceAccountName": st.sampled_from(("default", "trainer")),
        "nodeName": st.just("node-1"),
    }
    required = {"containers": spec.pop("containers")}
    return _with(
        {
            "apiVersion": st.just("v1"),
            "kind": st.just("Pod"),
            "metadata": METADATA,
            "spec": _with(required, {**selection, **spec}),
        },
        {},
    )


ANY_PODS = _pods(containers=st.lists(containers(), max_size=2), initContainers=INIT_CONTAINERS)
GPU_PODS = _pods(containers=st.lists(containers(ONE_GPU), min_size=1, max_size=1))


def pods() -> st.SearchStrategy[dict[str, Any]]:
    """Generate a pod as a tenant may write it: well-formed, except for its quantities."""
    return st.one_of(ANY_PODS, GPU_PODS)


def gpu_pods() -> st.SearchStrategy[dict[str, Any]]:
    """Generate a pod that requests one GPU, so that its other fields matter more."""
    return GPU_PODS


def request_for(item: dict[str, Any], *, operation: str = "CREATE", old: dict[str, Any] | None = None) -> Request:
    """Return the request that an API server makes for an object."""
    group, _, version = item["apiVersion"].rpartition("/")
    metadata = item["metadata"]
    return Request(
        uid="705ab4f5-6393-11e8-b7cc-42010a800002",
        operation=operation,
        group=group,
        version=version,
        kind=item["kind"],
        subresource="",
        namespace=metadata.get("namespace", ""),
        name=metadata.get("name", ""),
        requester=Requester("system:serviceaccount:kube-system:replicaset-controller", frozenset()),
        dry_run=False,
        object=item,
        old_object=old,
    )


def review_of(item: Any, **fields: Any) -> dict[str, Any]:
    """An AdmissionReview of an object; `fields` replace those of its request."""
    group, _, version = item.get("apiVersion", "v1").rpartition("/") if isinstance(item, dict) else ("", "", "v1")
    kind = item.get("kind", "Pod") if isinstance(item, dict) else "Pod"
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": group, "version": version, "kind": kind},
        "resource": {"group": group, "version": version, "resource": f"{kind.lower()}s"},
        "operation": "CREATE",
        "namespace": "vision",
        "userInfo": {"username": "jane", "groups": ["system:authenticated"], "extra": {"scopes": ["a", "b"]}},
        "object": item,
        "oldObject": None,
        "dryRun": False,
        "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"},
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {**request, **fields}}


SHARING_CONFIG = """\
version: v1
sharing:
  timeSlicing:
    failRequestsGreaterThanOne: true
    resources:
      - name: nvidia.com/gpu
        replicas: 4
"""

CONFIG_MAP: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "time-slicing-config", "namespace": "gpu-operator"},
    "data": {"any": SHARING_CONFIG},
    "binaryData": {"more": "dmVyc2lvbjogdjEK"},
}


def workload(kind: str, pod: dict[str, Any]) -> dict[str, Any]:
    """Return a workload with this pod as its template."""
    template: dict[str, Any] = {"metadata": pod["metadata"], "spec": pod["spec"]}
    spec: dict[str, Any] = {"template": template}
    if kind == "CronJob":
        spec = {"jobTemplate": {"spec": spec}}
    group = "batch/v1" if kind in ("Job", "CronJob") else "apps/v1"
    return {"apiVersion": group, "kind": kind, "metadata": {"name": "w", "namespace": "vision"}, "spec": spec}


JUNK: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from((None, True, 0, -1, 1.5, "", "text", [], {}, [None], [[]], {"": None}, "\n\t\x1b[31m\x00", 2**63)),
    st.sampled_from(([{"name": 1}], {"nvidia.com/gpu": {"nvidia.com/gpu": 1}}, {"key": []}, ["a", 1, None])),
    json_values(max_leaves=4),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Yield the path of every value within a value."""
    children: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        children = list(value.items())
    elif isinstance(value, list):
        children = list(enumerate(value))
    return [path, *(place for key, each in children for place in places(each, (*path, key)))]


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """Return a copy of a value with another value at the path."""
    if not path:
        return new
    outcome = copy.copy(value)
    outcome[path[0]] = put(value[path[0]], path[1:], new)
    return outcome


@st.composite
def broken_reviews(draw: st.DrawFn) -> Any:
    """Generate an AdmissionReview in which up to four values, anywhere, have a wrong type."""
    pod = draw(pods())
    item = draw(st.sampled_from((pod, pod, CONFIG_MAP, workload("Deployment", pod), workload("CronJob", pod))))
    review: Any = review_of(item, operation=draw(st.sampled_from(("CREATE", "CREATE", "UPDATE", "DELETE", "CONNECT"))))
    if draw(st.booleans()):
        review["request"]["oldObject"] = item
    for _ in range(draw(st.integers(0, 4))):
        inside = [place for place in places(review) if place[:2] == ("request", "object")]
        anywhere = places(review)
        place = (
            draw(st.sampled_from(inside or anywhere)) if draw(st.integers(0, 4)) else draw(st.sampled_from(anywhere))
        )
        review = put(review, place, draw(JUNK))
    return review


YAML_TEXTS = (
    SHARING_CONFIG,
    "---\na: &x [1, 2]\nb: *x\nc: {<<: {d: 1}, e: !!str 2}\n...\n---\n# only this\n---\n- |\n  text\n- 'q'\n",
    json.dumps({"a": [1, {"b": None}], "c": "\u00e9\n"}, indent=2),
    '%YAML 1.1\n%TAG ! tag:example.com,2000:\n---\n? key\n: !!binary "aGk="\n',
)

YAML_PIECES = (
    *"\n\t\r :-?,[]{}#&*!|>'\"%@`~<.0e\x00\x1b\x85\ufeff\u2028",
    "---",
    "...",
    "<<: ",
    "*x",
    "&x ",
    "!!binary ",
    "!!int ",
    "0x",
    "1e",
    ".inf",
    "\\ud800",
    "\n  - ",
)


@st.composite
def mutilated_yaml(draw: st.DrawFn) -> str:
    """Generate YAML from which pieces were cut out, and into which others were inserted."""
    text = draw(st.sampled_from(YAML_TEXTS))
    for _ in range(draw(st.integers(1, 5))):
        start = draw(st.integers(0, len(text)))
        end = start + draw(st.integers(0, 6))
        piece = draw(st.one_of(st.sampled_from(YAML_PIECES), st.text(max_size=3)))
        text = text[:start] + piece + text[end:]
    return text
