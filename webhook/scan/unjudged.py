"""Finds containers and GPUs in objects of kinds that are not judged, so that none is skipped silently."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from webhook.api.fields import group_kind
from webhook.api.lenient import mapping, string
from webhook.catalog.device_variables import NONE, VISIBLE, VOID
from webhook.catalog.gpu_requests import OTHER_CLASSES
from webhook.documents.documents import read
from webhook.documents.files import Item, items
from webhook.model import Object, Path, dotted
from webhook.policy.resources import GPUResources
from webhook.scan.values import MAKES
from webhook.text.words import shown


class UnjudgedPlace(NamedTuple):
    """A place in an object that is not judged: it has a container, uses a GPU, or makes other objects there.

    `name` is the object's namespace and name. The line is that of the path, or of the nearest parent in the file.
    `resource` is the GPU's resource, or its profile; empty for a container, and for a GPU without such a name. `use`
    says what the object does with a GPU, or that it makes others; empty for a container.
    """

    file: str
    line: int
    name: str
    path: str
    resource: str = ""
    use: str = ""

    @property
    def text(self) -> str:
        """The words for a message: what the object does at the path."""
        return f"{self.use or 'holds a container'} at {self.path}"

    @property
    def of_profile(self) -> bool:
        """Whether the place names only a profile with the GPU. The profile's contents are known to its controller."""
        return bool(self.resource) and "/" not in self.resource

    @property
    def place(self) -> str:
        """The file and line; only the file of an object without lines."""
        return f"{self.file}:{self.line}" if self.line else self.file

    @property
    def value(self) -> Object:
        """The place as JSON."""
        resource = {"resource": self.resource} if self.resource else {}
        use = {"use": self.use} if self.use and not self.resource else {}
        return {"file": self.file, "line": self.line, "name": self.name, "path": self.path, **resource, **use}


OF_NODES = frozenset((("karpenter.sh", "NodeClaim"), ("karpenter.sh", "NodeOverlay"), ("karpenter.sh", "NodePool")))
"""Kinds that name the GPUs of nodes, and make no pods (kubernetes-sigs/karpenter pkg/apis)."""

MOST = 10
"""Maximum number of places reported per object; GPUs come first."""


def places(item: Item, gpus: GPUResources) -> tuple[UnjudgedPlace, ...]:
    """Return the places of an object where it has a container or names one of the resources that are GPUs.

    The work is linear in the text of the object: a value that anchors repeat is examined once.
    """
    if group_kind(item.value) in OF_NODES:
        return ()
    name = _name(item.value)
    found: dict[bool, list[tuple[Path, _Use]]] = {True: [], False: []}
    for step, use in _found(item.value, gpus):
        kept = found[use is not _CONTAINER]
        if len(kept) < MOST:
            kept.append((_path(step), use))
    return tuple(
        UnjudgedPlace(item.document.file, item.line(path), name, dotted(path), use.resource, use.text)
        for path, use in (*found[True], *found[False])[:MOST]
    )


def makes(item: Item) -> tuple[UnjudgedPlace, ...]:
    """Return the first place where an object describes other objects to create, if these are never rendered here."""
    spec = mapping(item.value.get("spec"))
    paths = [("spec", key) for key in MAKES.get(group_kind(item.value), ()) if spec.get(key)][:1]
    return tuple(
        UnjudgedPlace(item.document.file, item.line(path), _name(item.value), dotted(path), use="makes objects")
        for path in paths
    )


def uses_gpu(value: Any, gpus: GPUResources) -> bool:
    """Whether a document, such as a chart's values, uses a GPU anywhere."""
    return isinstance(value, dict) and any(use is not _CONTAINER for _, use in _found(value, gpus))


def within_texts(item: Item, gpus: GPUResources) -> Iterator[UnjudgedPlace]:
    """Yield the first use of a GPU in each object that is a text in a ConfigMap, from which a program may create it."""
    for key, text in mapping(item.value.get("data")).items():
        if not (isinstance(text, str) and _KIND.search(text) and may_have_places(text, gpus)):
            continue
        for document in read(text, item.document.file)[0]:
            for inner in items([document])[0]:
                for place in [each for each in places(inner, gpus) if each.use][:1]:
                    title = shown(f"{inner.value['kind']} {place.name}".strip(), quotes=False)
                    use = f"holds {title}, which {place.use}"
                    line = item.line(("data", key), place.line)
                    yield place._replace(line=line, name=_name(item.value), path=dotted(("data", key)), use=use)


_KIND = re.compile(r"""^[ \t{]*["']?kind["']?[ \t]*:""", re.MULTILINE)
"""The key of an object's kind in a text of YAML or JSON."""


def _name(value: Object) -> str:
    metadata = mapping(value.get("metadata"))
    return "/".join(filter(None, (string(metadata.get("namespace")), string(metadata.get("name")))))


def may_have_places(text: str, gpus: GPUResources) -> bool:
    """Check quickly whether the YAML of an object may have such places; true if only a parser can decide.

    Escapes and tags may hide a key. Without them every key is in the text as it is.
    """
    if any(sign in text for sign in _SIGNS):
        return True
    return bool(_VIRTUAL.search(text)) or any(name in gpus for name in set(_RESOURCE.findall(text)))


_RESOURCE = re.compile(r"(?<![A-Za-z0-9.-])[A-Za-z0-9.-]++/[A-Za-z0-9._-]++", re.ASCII)
"""A name with a slash. No search begins within a name, so that a long one without a slash is looked at once."""


_VIRTUAL = re.compile(r"(?<![\w./-])gpu(?![\w./-])", re.ASCII)
"""The key of a VirtualServer's GPU."""


class _Use(NamedTuple):
    """A use of a GPU: the name of its resource or profile, if it has one, and the words for it."""

    resource: str
    text: str


_CONTAINER = _Use("", "")
"""No use of a GPU that is seen: a container."""

_Step = tuple[Any, str | int] | None
"""A path from its end: the steps before it and its last key. One more step costs the same at every depth."""


def _found(value: Object, gpus: GPUResources) -> Iterator[tuple[_Step, _Use]]:
    """Yield the steps to each container, and to each use of a GPU with it, in the order of the text."""
    seen = set[int]()
    rest: list[tuple[_Step, Any]] = []
    rest += (((None, key), value[key]) for key in reversed([*value]) if key != "status")
    while rest:
        step, part = rest.pop()
        if id(part) in seen:
            continue
        if isinstance(part, dict):
            seen.add(id(part))
            inner: list[tuple[_Step, Any]] = []
            for key, each in part.items():
                if isinstance(each, (dict, list)):
                    if key not in _NO_REQUESTS:
                        inner.append(((step, key), each))
                elif isinstance(key, str) and (use := _use(key, each, part, gpus)):
                    yield (step, key), use
            if _is_virtual_gpu(step, part):
                yield step, _Use("", "asks for a GPU")
            rest += reversed(inner)
        elif isinstance(part, list):
            seen.add(id(part))
            inner = [((step, index), each) for index, each in enumerate(part) if isinstance(each, (dict, list))]
            yield from ((at, _CONTAINER) for at, each in inner if isinstance(each, dict) and _is_container(each))
            rest += reversed(inner)


def _use(key: str, value: Any, holder: Mapping[str, Any], gpus: GPUResources) -> _Use | None:
    """Return the use of a GPU in a key and value of a map, if there is one."""
    if "/" in key:
        return _Use(key, f"requests {key}") if key in gpus and _counts(value) else None
    if not isinstance(value, str) or not value:
        return None
    if key == _PROFILE:
        return _Use(value, f"asks for the profile {shown(value, quotes=False)}") if "gpu" in value.lower() else None
    if key == VISIBLE or (key == "value" and holder.get("name") == VISIBLE):
        return None if value in (VOID, NONE) else _Use("", f"sets {VISIBLE}")
    if key == "runtimeClassName":
        return _Use("", f"has the runtime class {value}") if value.startswith("nvidia") else None
    if key in _CLAIMS and value not in OTHER_CLASSES:
        return _Use("", f"claims devices by {shown(value, quotes=False)}")
    if key in _MOUNTS and value.startswith("/dev/nvidia"):
        return _Use("", f"mounts {shown(value, quotes=False)}")
    if key == "deviceName" and value.find("/") > 0:
        return _Use("", f"passes through {shown(value, quotes=False)}")
    return None


def _is_virtual_gpu(step: _Step, part: Mapping[str, Any]) -> bool:
    """Whether a map is the GPU of a VirtualServer: its `type` and `count` (coreweave/virtual-server api/v1alpha1)."""
    return step is not None and step[1] == "gpu" and isinstance(part.get("type"), str) and part["type"] != ""


_PROFILE = "resourceProfile"
"""The field in which a Model of KubeAI names GPUs, such as `nvidia-gpu-l4:1` (kubeai api/k8s/v1/model_types.go)."""

_CLAIMS = frozenset(("deviceClassName", "resourceClaimName", "resourceClaimTemplateName"))
"""Fields by which a pod or a claim gets devices (k8s.io/api core/v1, resource/v1)."""

_MOUNTS = frozenset(("hostPath", "path"))
"""Keys of a path of the node: those of a PodSpec, and those of charts' values."""

_SIGNS = ("image", _PROFILE, VISIBLE, "runtimeClassName", *_CLAIMS, "/dev/nvidia", "deviceName", "\\", "!")
"""Parts of the texts of containers and of uses of a GPU, and what may hide a key.

`deviceName` is a device of KubeVirt's (kubevirt.io/api core/v1, GPU).
"""

_NO_REQUESTS = frozenset(("annotations", "labels", "matchLabels", "nodeLabels", "nodeSelector", "selector"))
"""Maps whose keys look like resources and are labels."""


def _is_container(value: Mapping[str, Any]) -> bool:
    return all(isinstance(value.get(key), str) for key in ("name", "image"))


def _counts(value: object) -> bool:
    """Whether a value can be a number above zero. A placeholder of a template can be one."""
    if isinstance(value, str):
        return value[:1] in _FIRST and value.strip("0.") != ""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0


_FIRST = frozenset("0123456789+.$<{")
"""The first characters of numbers and placeholders."""


def _path(step: _Step) -> Path:
    path = list[str | int]()
    while step:
        step, key = step
        path.append(key)
    return tuple(reversed(path))
