"""Merges values in a kustomization into those of a chart, as kustomize does (kyaml/yaml/merge2/merge2.go).

kustomize reads the values of a file as YAML 1.2, and helm reads them as YAML 1.1.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import yaml

from webhook.documents import yaml_versions


def merged(text: bytes, own: Mapping[str, Any], inline: Mapping[str, Any], merge: str) -> tuple[list[bytes], str]:
    """Return the values that helm gets, and why kustomize may make others, if it may.

    `own` are the values of a file with this text, by its first document. `merge` says which of both count.
    """
    if merge == "replace":
        return [json.dumps(inline, sort_keys=True).encode()], ""
    doubts = list[str]()
    loader = yaml.CSafeLoader(text.removeprefix(b"\xef\xbb\xbf"))
    try:
        node = loader.get_node() if loader.check_node() else None
        read = _read(own, node, set(), doubts.append)
    except (yaml.YAMLError, RecursionError):
        read = own
        doubts.append("values that are not plain YAML")
    finally:
        loader.dispose()
    if b"$openapi" in text or '"$patch"' in json.dumps([own, inline]):
        doubts.append("directives in its values")
    under, over = (inline, read) if merge == "merge" else (read, inline)
    return [json.dumps(_merged(under, over, doubts.append), sort_keys=True).encode()], next(iter(doubts), "")


def _read(
    value: Any, node: yaml.Node | None, seen: set[int], doubt: Callable[[str], None], *, listed: bool = False
) -> Any:
    """Return a value of helm's as kustomize reads it.

    It leaves out null values that are written as nothing, unless they are `listed`.
    """
    if node is None:
        return value
    if id(node) in seen or not node.tag.startswith("tag:yaml.org,2002:"):
        doubt("anchors or tags in its values")
        return value
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode):
        plain = "" if node.style else str(node.value)
        unlike = yaml_versions.is_unlike(plain)
        if unlike and not isinstance(value, bool):
            doubt(_OTHERWISE)
        return plain if unlike and isinstance(value, bool) else value
    if isinstance(node, yaml.SequenceNode):
        both = zip(value, node.value, strict=False) if isinstance(value, list) else ()
        return [_read(each, part, seen, doubt, listed=True) for each, part in both]
    found = dict[str, Any]()
    for key, part in node.value:
        name = str(key.value)
        if not isinstance(key, yaml.ScalarNode) or not isinstance(value, Mapping) or name not in value:
            doubt("anchors or tags in its values" if name == "<<" else _OTHERWISE)
        elif listed or value[name] is not None or part.value:
            found[name] = _read(value[name], part, seen, doubt, listed=listed)
    return found


_OTHERWISE = "values that kustomize and helm read otherwise"


def _merged(under: Any, over: Any, doubt: Callable[[str], None]) -> Any:
    """Return a value with another one merged over it. A null value there removes the one under it."""
    if not isinstance(over, Mapping):
        return over
    below = under if isinstance(under, Mapping) else {}
    if {"apiVersion", "kind"} <= {*below, *over} and below:
        doubt("an object in its values")
    found = {key: value for key, value in below.items() if key not in over}
    return found | {key: _merged(below.get(key), value, doubt) for key, value in over.items() if value is not None}
