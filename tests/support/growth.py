"""Objects of which one list or map is longer, for tests of what entries cost."""

import copy
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

from tests import ROOT
from tests.support.pod_fields import POD_SPEC, RECORDED
from webhook.api.pods import CONTAINER_LISTS
from webhook.documents.documents import read
from webhook.model import Path as Place
from webhook.model import dotted

ALL = os.environ.get("GROWTH") == "all"

Grow = Callable[[int], dict[str, Any]]
"""Makes an object of which one list or map is so many times as long."""

KINDS = sorted((ROOT / "tests/kinds").glob("*.yaml"))
FIRST = {"pod", "deployment", "cron-job", "job-set", "ray-cluster", "workflow", "spark-application", "volcano-job"}
"""One kind for each shape in which templates are kept; the other kinds are tried by `make fuzz`."""


def places(value: Any, path: Place = ()) -> Iterator[Place]:
    """Where a list or a map stands that has anything in it, of a list in its first item alone."""
    if isinstance(value, dict) and value:
        yield path
        for key, each in value.items():
            yield from places(each, (*path, key))
    elif isinstance(value, list) and value:
        yield path
        yield from places(value[0], (*path, 0))


def longer(item: dict[str, Any], path: Place, times: int) -> dict[str, Any]:
    """A copy of an object of which what stands at a place is so many times as long; what has a name gets another."""
    item = copy.deepcopy(item)
    there: Any = item
    for key in path:
        there = there[key]
    if isinstance(there, dict):
        for key, value in list(there.items()):
            there |= {f"{key}{n}": copy.deepcopy(value) for n in range(times)}
    else:
        there += [_renamed(value, n) for n in range(times) for value in there[:]]
    return item


def _renamed(value: Any, number: int) -> Any:
    value = copy.deepcopy(value)
    if isinstance(value, dict) and isinstance(value.get("name"), str) and "value" not in value:
        value["name"] += str(number)
    return value


def texts(item: dict[str, Any]) -> Iterator[tuple[Place, Any]]:
    """Return what the texts of a ConfigMap hold, where they can be read."""
    data = item.get("data") if item.get("kind") == "ConfigMap" else None
    for key, text in data.items() if isinstance(data, dict) else ():
        documents, problems = read(text, "text.yaml") if isinstance(text, str) else ([], [])
        if len(documents) == 1 and not problems and isinstance(documents[0].value, dict):
            yield ("data", key), documents[0].value


def growths(item: dict[str, Any]) -> Iterator[tuple[Place, Grow]]:
    """Every place of an object where something can be made longer, with what does so."""
    for path in places(item):
        if path:
            yield path, lambda times, path=path: longer(item, path, times)  # type: ignore[misc]
    for path, value in texts(item):
        for inner in places(value):

            def within(times: int, path: Place = path, value: Any = value, inner: Place = inner) -> dict[str, Any]:
                return {**item, "data": {**item["data"], path[1]: json.dumps(longer(value, inner, times))}}

            yield ("text", *inner), within


def shape(path: Place) -> str:
    return dotted(tuple(0 if isinstance(key, int) else key for key in path))


def sample(kind: str, depth: int = 0) -> Any:
    """A value of a type of the API, with one entry in each list and map; as deep as anything is read."""
    if kind.startswith("list of "):
        return [sample(kind.removeprefix("list of "), depth)]
    if kind.startswith("map of "):
        return {"nvidia.com/gpu": sample(kind.removeprefix("map of "), depth)}
    fields = FIELDS.get(kind.removeprefix("io.k8s."))
    if fields is not None:
        return {name: sample(of, depth + 1) for name, of in fields.items()} if depth < DEEPEST else {}
    return {"boolean": True, "integer": 1}.get(kind, "1")


FIELDS = json.loads(RECORDED.read_text("utf-8"))
DEEPEST = 6


def pods() -> Iterator[tuple[Place, dict[str, Any]]]:
    """Pods that ask for a GPU, each with one field more of a PodSpec or of a container, and where that stands."""
    spec = sample(POD_SPEC)
    own = {"name": "a", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    metadata = {"name": "p", "namespace": "vision", "annotations": {"slicewarden.dev/x": "", "cdi.k8s.io/x": ""}}
    pod: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [own]}}
    yield ("metadata",), pod
    for field, value in spec.items():
        if field not in CONTAINER_LISTS:
            yield ("spec", field), {**pod, "spec": {**pod["spec"], field: value}}
            continue
        yield ("spec", field), {**pod, "spec": {**pod["spec"], field: [own]}}
        for name, inner in value[0].items() if field == "containers" or ALL else ():
            yield ("spec", field, 0, name), {**pod, "spec": {**pod["spec"], field: [{**own, name: inner}]}}
