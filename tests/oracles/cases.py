"""List what was disagreed on once, and its neighbours: asked about in every run (`python -m tests.oracles.record`)."""

from typing import Any

from tests.oracles import choices
from tests.oracles.containers import FOLDER
from tests.oracles.pods import VOLUMES


def pod(*containers: dict[str, Any], **annotations: str) -> dict[str, Any]:
    """A pod of these containers that may run beside GPUs."""
    each = [{"name": f"c{number}", **container} for number, container in enumerate(containers)]
    metadata = {"name": "any", "namespace": "vision", "annotations": annotations}
    spec = {"containers": each, "tolerations": [{"key": "slicewarden.dev/pool", "operator": "Exists"}]}
    if any("volumeMounts" in container for container in containers):
        spec["volumes"] = list(VOLUMES)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def mounting(path: str, volume: str = "null", **more: Any) -> dict[str, Any]:
    """A container with a mount."""
    return {"volumeMounts": [{"name": volume, "mountPath": path}], **more}


def saying(*env: str, **more: Any) -> dict[str, Any]:
    """A container with variables."""
    entries = [dict(zip(("name", "value"), entry.split("=", 1), strict=True)) for entry in env]
    return {"env": entries, **more}


GPU: dict[str, Any] = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
SEEN = "NVIDIA_VISIBLE_DEVICES"

PODS: dict[str, dict[str, Any]] = {
    "nothing": pod({}),
    "a GPU": pod(GPU),
    "a GPU, and one without": pod(GPU, {}),
    "a mount that is the request all": pod(mounting(f"{FOLDER}all")),
    "the same beside a GPU": pod(mounting(f"{FOLDER}s/all", **GPU)),
    "a relative mount": pod(mounting(f"{FOLDER[1:]}/all")),
    "a mount by way of another folder": pod(mounting("/var/lib/../run//nvidia-container-devices/./all")),
    "a mount of a claim": pod(mounting(f"{FOLDER}/all", "claimed")),
    "a mount of null in other words": pod(mounting(f"{FOLDER}/all", "odd")),
    "a mount for a channel": pod(mounting(f"{FOLDER}imex/0", **GPU)),
    "a mount for a CDI device": pod(mounting(f"{FOLDER}/cdi/nvidia.com/gpu/all")),
    "a mount of something else": pod(mounting(f"{FOLDER}/all", "empty")),
    "a mount by the other name": pod(mounting(f"{FOLDER[4:]}/all")),
    "a mount beside the folder": pod(mounting("/var/run/nvidia-container-device")),
    "a mount that leaves the folder": pod(mounting(f"{FOLDER}/../all")),
    "all": pod(saying(f"{SEEN}=all")),
    "all beside a GPU": pod(saying(f"{SEEN}=all", **GPU)),
    "void": pod(saying(f"{SEEN}=void")),
    "nothing said": pod(saying(f"{SEEN}=")),
    "void with a blank": pod(saying(f"{SEEN}= void")),
    "void in a list": pod(saying(f"{SEEN}=all,void")),
    "none": pod(saying(f"{SEEN}=none")),
    "none, and a switch": pod(saying(f"{SEEN}=none", "NVIDIA_NVSWITCH=enabled")),
    "none, and the rest closed": pod(saying(f"{SEEN}=none", "NVIDIA_NVSWITCH=", "NVIDIA_IMEX_CHANNELS=")),
    "void after all": pod(saying(f"{SEEN}=all", f"{SEEN}=void")),
    "all after void": pod(saying(f"{SEEN}=void", f"{SEEN}=all")),
    "a channel beside a GPU": pod(saying("NVIDIA_IMEX_CHANNELS=0", **GPU)),
    "storage beside a GPU": pod(saying("NVIDIA_GDS=enabled", **GPU)),
    "storage alone": pod(saying("NVIDIA_GDS=enabled")),
    "a version": pod(saying("CUDA_VERSION=9.0")),
    "what only narrows": pod(saying("NVIDIA_DRIVER_CAPABILITIES=all", "NVIDIA_REQUIRE_CUDA=cuda>=12", **GPU)),
    "an annotation of CDI": pod({}, **{"cdi.k8s.io/a": "nvidia.com/gpu=all"}),
    "an annotation that only sounds so": pod({}, **{"acdi.k8s.io/a": "nvidia.com/gpu=all"}),
    "privileged": pod({"securityContext": {"privileged": True}}),
}


def term(key: str, operator: str, *values: str) -> dict[str, Any]:
    """A condition."""
    return {"key": key, "operator": operator, "values": [*values]}


def on_labels(*conditions: dict[str, Any]) -> dict[str, Any]:
    """A term."""
    return {"matchExpressions": [*conditions]}


MEMORY = "nvidia.com/gpu.memory"
CARDS = [
    choices.named("t4", {MEMORY: "15360", "k": "a", "n": "-5"}),
    choices.named("a100", {MEMORY: "81920", "n": "0" * 30 + "7"}),
    choices.named("new", {}),
]
NAMED = {"matchFields": [term("metadata.name", "In", "t4")]}
TERMS: dict[str, list[dict[str, Any]]] = {
    **{
        f"memory {op} {value[-8:]}, {len(value)}": [on_labels(term(MEMORY, op, value))]
        for op in ("Gt", "Lt")
        for value in (
            "20000",
            "0" * 20 + "20000",
            "0" * 58 + "20000",
            "0" * 59 + "20000",
            "+20000",
            "-1",
            "2_0",
            "",
            "9223372036854775808",
        )
    },
    "a number with many zeros": [on_labels(term("n", "Gt", "6"))],
    "a number below nothing": [on_labels(term("n", "Lt", "0"))],
    "no term": [],
    "an empty one": [{}],
    "an empty one, and another": [{}, on_labels(term("k", "Exists"))],
    "a name": [NAMED],
    "another name": [{"matchFields": [term("metadata.name", "NotIn", "t4")]}],
    "two names": [{"matchFields": [term("metadata.name", "In", "t4", "a100")]}],
    "a name, and a label": [{**NAMED, **on_labels(term("k", "In", "a"))}],
    "a name, and a label that it lacks": [{**NAMED, **on_labels(term("k", "DoesNotExist"))}],
    "a field that is none": [{"matchFields": [term("spec.x", "NotIn", "y")]}],
    "a value that is no label's": [on_labels(term("k", "NotIn", "no label"))],
    "a key that is no label's": [on_labels(term("-", "NotIn", "a"))],
    "none of no values": [on_labels(term("k", "NotIn"))],
    "there, with a value": [on_labels(term("k", "Exists", "a"))],
    "an operator that is none": [on_labels(term("k", "in", "a"))],
    "one that cannot be read, and another": [on_labels(term("k", "in", "a")), on_labels(term("k", "In", "a"))],
}
SELECTIONS = {name: {"pod": choices.pod({}, terms), "nodes": CARDS} for name, terms in TERMS.items()}

NUMBERS = (*choices.DIGITS, *choices.ODD, *choices.STRANGE, *choices.LONG)
QUANTITIES = (
    *NUMBERS,
    *(
        "1e3",
        "1E3",
        "1e+3",
        "1e-3",
        "1e",
        "1E",
        "1e0003",
        "1e30",
        "1Ki",
        "1K",
        "1ki",
        "1.5Gi",
        ".5",
        "5.",
        "1.0",
        "100m",
    ),
    *(
        "1n",
        "0.1n",
        "1.0000000001",
        "-0.1n",
        "1u",
        "8Ei",
        "9E",
        "1.5",
        "0.5Ki",
        "-1",
        "+1",
        "1 Ki",
        "1e1.5",
        "1kk",
        "0x1",
    ),
    *("0" * 50 + "1", "1." + "0" * 50, "0" * 50 + ".5k"),
)
