"""Finds containers and GPUs in objects of kinds that are not judged, so that none is skipped silently."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from webhook.api.lenient import mapping, string
from webhook.documents.files import Item
from webhook.model import Object, Path, dotted
from webhook.policy.resources import GPUResources


class UnjudgedPlace(NamedTuple):
    """A container, or a number of a GPU `resource`, at a path of an object that is not judged.

    `name` is the object's namespace and name. The line is that of the path, or of the nearest parent in the file.
    """

    file: str
    line: int
    name: str
    path: str
    resource: str = ""

    @property
    def text(self) -> str:
        """The words for a message: what the object does at the path."""
        return f"{'names a GPU' if self.resource else 'holds a container'} at {self.path}"

    @property
    def of_profile(self) -> bool:
        """Whether the GPU is in a profile of a name, which its controller knows."""
        return bool(self.resource) and "/" not in self.resource

    @property
    def value(self) -> Object:
        """The place as JSON."""
        resource = {"resource": self.resource} if self.resource else {}
        return {"file": self.file, "line": self.line, "name": self.name, "path": self.path, **resource}


MOST = 10
"""Maximum number of places reported per object; GPUs come first."""


def places(item: Item, gpus: GPUResources) -> tuple[UnjudgedPlace, ...]:
    """Return the places of an object where it has a container or names one of the resources that are GPUs.

    The work is linear in the text of the object: a value that anchors repeat is examined once.
    """
    metadata = mapping(item.value.get("metadata"))
    name = "/".join(filter(None, (string(metadata.get("namespace")), string(metadata.get("name")))))
    found: dict[bool, list[tuple[Path, str]]] = {True: [], False: []}
    for step, resource in _found(item.value, gpus):
        kept = found[bool(resource)]
        if len(kept) < MOST:
            kept.append((_path(step), resource))
    return tuple(
        UnjudgedPlace(item.document.file, item.line(path), name, dotted(path), resource)
        for path, resource in (*found[True], *found[False])[:MOST]
    )


def may_have_places(text: str, gpus: GPUResources) -> bool:
    """Check quickly whether the YAML of an object may have such places; true if only a parser can decide.

    Escapes and tags may hide a key. Without them every key is in the text as it is.
    """
    if any(sign in text for sign in _SIGNS):
        return True
    return any(name in gpus for name in set(_RESOURCE.findall(text)))


_RESOURCE = re.compile(r"[A-Za-z0-9.-]++/[A-Za-z0-9._-]++", re.ASCII)

_Step = tuple[Any, str | int] | None
"""A path from its end: the steps before it and its last key. One more step costs the same at every depth."""


def _found(value: Object, gpus: GPUResources) -> Iterator[tuple[_Step, str]]:
    """Yield the steps to each container, and to each number of a GPU with its name, in the order of the text."""
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
                elif isinstance(key, str) and "/" in key and key in gpus and _counts(each):
                    yield (step, key), key
                elif key == _PROFILE and isinstance(each, str) and "gpu" in each.lower():
                    yield (step, key), each
            rest += reversed(inner)
        elif isinstance(part, list):
            seen.add(id(part))
            inner = [((step, index), each) for index, each in enumerate(part) if isinstance(each, (dict, list))]
            yield from ((at, "") for at, each in inner if isinstance(each, dict) and _is_container(each))
            rest += reversed(inner)


_PROFILE = "resourceProfile"
"""The field in which a Model of KubeAI names GPUs, such as `nvidia-gpu-l4:1` (kubeai api/k8s/v1/model_types.go)."""

_SIGNS = ("image", _PROFILE, "\\", "!")
"""Parts of the texts of containers and profiles, and what may hide a key."""

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
