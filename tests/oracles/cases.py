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

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: door}\n"
IN_JSON = '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "door"}}'
SERVICE = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n"
DEFINITION = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: x}\n"
ITEMS = "items:\n- apiVersion: v1\n  kind: Pod\n  metadata: {name: door}\n"
MANIFESTS = {
    "a pod": POD,
    "a List": f"apiVersion: v1\nkind: List\n{ITEMS}",
    "a List without a version": f"kind: List\n{ITEMS}",
    "a Service that is a List": SERVICE + ITEMS,
    "a ConfigMap that is a List, its items first": f"{ITEMS}apiVersion: v1\nkind: ConfigMap\n",
    "a kind that is glanced at, and a List": DEFINITION + ITEMS,
    "the same with a blank": DEFINITION + ITEMS.replace(":", " :", 1),
    "the same in quotes": DEFINITION + ITEMS.replace("items", '"items"', 1),
    "a List without its items": "apiVersion: v1\nkind: List\nitems:\n",
    "items that are no list": f"{DEFINITION}items: {{}}\n",
    "a typed list": "apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: door}\n",
    "a typed list of another kind": "apiVersion: v1\nkind: ConfigMap\nitems:\n- metadata: {name: one}\n",
    "a typed list whose items have versions": "apiVersion: v1\nkind: PodList\nitems:\n- apiVersion: v1\n",
    "a List in a List": "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: List\n  "
    + ITEMS.replace("\n", "\n  ").rstrip(" "),
    "items that are no list in a List": "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: A, items: 1}\n",
    **{
        f"a marker with {name}": f"{DEFINITION}---{marker}\n{POD}"
        for name, marker in {
            "nothing": "",
            "a blank": " ",
            "a comment": " # c",
            "a comment at once": "#c",
            "a vertical tab": "\v",
            "a form feed": "\f",
            "a no-break space": "\xa0",
            "another line's end": "\u2028",
            "a next line": "\x85#",
            "a carriage return": "\r",
            "a byte order mark": "\ufeff",
            "a separator of files": "\x1c",
            "a word": " a",
            "a key": "a: b",
            "a dash": "-",
        }.items()
    },
    "two markers": f"{DEFINITION}---\n---#c\n{POD}",
    "two markers with a line between": f"{DEFINITION}---\n\n---#c\n{POD}",
    "a marker in the margin of a text": 'a: "\n---x\n"\n---\n' + POD,
    "a directive": f"%YAML 1.1\n---\n{POD}",
    "the end of a document": f"{SERVICE}...\n{POD}",
    "line ends of Windows": f"{SERVICE}---\n{POD}".replace("\n", "\r\n"),
    "carriage returns": f"{SERVICE}---\n{POD}".replace("\n", "\r"),
    "a text that ends with the file": f"{POD}data:\n  a: |\n    x",
    "a byte order mark": f"\ufeff{POD}",
    "two byte order marks": f"\ufeff\ufeff{POD}",
    "a byte order mark before a key": f"{POD}\ufeffkind: Service\n",
    "a byte order mark before a document": f"{SERVICE}---\n\ufeff{POD}",
    "a byte order mark within a text": f"{POD}data: {{a: 'b \ufeff'}}\n",
    "a namespace that is no text": f"kind: List\n{ITEMS}".replace("name: door", "name: door, namespace: on"),
    "an escaped kind": 'apiVersion: v1\n"k\\u0069nd": Pod\nmetadata: {name: door}\n',
    "an escaped kind, and a mistake": 'a: \x0b\n---\napiVersion: v1\n"k\\u0069nd": Pod\nmetadata: {name: door}\n',
    "a kind in base64, and a mistake": "---\napiVersion: v1\n!!binary a2luZA==: Pod\nmetadata: {name: door}\n---\n: [",
    "a mistake, and braces in a comment": f"{POD}a: {{{{ x }}}}\n# {{{{ x }}}}\n---\n{POD}",
    "a pod, and a mistake, and braces in a comment": f"# {{{{ x }}}}\n{POD}---\na: [\n",
    "a repeated key": f"{POD}kind: Service\n",
    **{
        f"a key that is the number {key}": f"{POD}data: {{{key}: a}}\n"
        for key in (
            "18446744073709551616",
            "1e6",
            "1e39",
            "1e-5",
            "0.10",
            "-0.0",
            "123456.75",
            "1e3",
            "1e-60",
            "16777217.0",
            "3.4028235e38",
            "3.4028236e38",
            "1e-45",
            "0.00012345",
            "99999.95",
            "1.17549435e-38",
            "12345678.9",
            "9007199254740993.0",
            "33554430.5",
        )
    },
    "JSON": IN_JSON,
    "JSON twice": IN_JSON + IN_JSON,
    "JSON and YAML": f"{IN_JSON}\n---\n{POD}",
    "JSON and YAML in the next line": f"{IN_JSON}\n{POD}",
    "JSON and YAML after an indented marker": f"{IN_JSON}\n  ---\n{POD}",
    "JSON, and JSON after a marker": f"{IN_JSON}\n---\n{IN_JSON}",
    "JSON twice and YAML": f"{IN_JSON}{IN_JSON}\n---\n{POD}",
    "JSON after a byte order mark": f"{IN_JSON}\ufeff{IN_JSON}",
    "JSON in YAML's clothes": "{apiVersion: v1, kind: Pod, metadata: {name: door}}",
    "the same after a no-break space": "\xa0{apiVersion: v1, kind: Pod, metadata: {name: door}}",
    "the same after two blanks": "\x85\u3000{apiVersion: v1, kind: Pod, metadata: {name: door}}",
    "JSON after very many blanks": " " * 4096 + IN_JSON.replace("door", "a\x85b"),
    "JSON with a brace that is missing": IN_JSON[:-1],
    "JSON with half a character": IN_JSON.replace("door", "\\ud800"),
}
