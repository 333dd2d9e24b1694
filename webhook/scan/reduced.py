"""Reduces a cluster's objects to the parts that are read, as a file for Git.

The parts are those that `Facts.of` reads, and those by which rules judge DaemonSets and running pods: exemptions are
written from them. Everything else is left out: images of pods, variables, most annotations, and ConfigMaps that share
no GPU.
"""

import json
from collections.abc import Callable, Iterable, Mapping

from webhook.allowance import Allowance
from webhook.api.fields import group_kind
from webhook.api.metadata import labels_of, name_of, namespace_of
from webhook.api.objects import CONFIG_MAP, ConfigMap
from webhook.api.pods import POD
from webhook.deviceplugin.configmaps import configs
from webhook.documents import goyaml_writer
from webhook.facts import images, rights
from webhook.facts.installations import PluginInstallation
from webhook.facts.kinds import KINDS, RESOURCES, kept, slim
from webhook.facts.snapshot import Facts
from webhook.model import Object
from webhook.policy.model import Policy

_Key = tuple[tuple[int, str], str, str]


def reduced(objects: Iterable[Object], policy: Policy) -> list[Object]:
    """Return the parts of some API objects that are read, sorted by kind, namespace and name.

    `policy` names the ConfigMaps, namespaces and labels that are read in any case. Facts of the result are the facts of
    the objects, but for ConfigMaps that no plugin reads; reducing it again changes nothing.
    """
    latest: dict[_Key, Object] = {}
    for item in objects:
        key = _key(item)
        part = slim(item, policy) if key else None
        if key is None:
            continue
        before = latest.pop(key, None)  # it replaces an earlier namesake, as in Facts.of
        if part is None:
            continue
        if (
            before is not None
            and KINDS[group_kind(part)].adds_up
            and (labels := {**labels_of(before), **labels_of(part)})
        ):
            part = {**part, "metadata": {**part["metadata"], "labels": labels}}
        latest[key] = part
    parts = [latest[key] for key in sorted(latest)]
    parts = rights.needed(parts, rights.shipped(parts))
    found = [part for part in parts if group_kind(part) == CONFIG_MAP]
    chosen = _config_maps(found, Facts.of(parts).installations, policy)
    pods = _pods(part for part in parts if group_kind(part) == POD)
    others = [part for part in parts if group_kind(part) not in (CONFIG_MAP, POD)]
    return [*others, *chosen, *pods]


def json_text(objects: Iterable[Object]) -> str:
    """Write objects as a List in JSON, each on a line of its own, so that a diff shows what changed."""
    lines = ",\n".join(json.dumps(item, sort_keys=True) for item in objects)
    return f'{{"apiVersion": "v1", "kind": "List", "items": [\n{lines}\n]}}\n'


def yaml_text(objects: Iterable[Object]) -> str:
    """Write objects as a List in YAML."""
    items = json.loads(json.dumps([*objects], sort_keys=True))
    return goyaml_writer.write({"apiVersion": "v1", "kind": "List", "items": items})


FORMS: Mapping[str, Callable[[Iterable[Object]], str]] = {"json": json_text, "yaml": yaml_text}
"""The forms of the file; the first is read five times as fast."""


def _key(item: Object) -> _Key | None:
    """Return the key that sorts an object and identifies a later replacement; None for an object that is no fact."""
    of, name = group_kind(item), name_of(item)
    if of not in KINDS or not name:
        return None
    namespace = namespace_of(item) if RESOURCES[of].namespaced else ""
    return (KINDS[of].order, of[1]), namespace, name


# ConfigMaps


def _config_maps(
    parts: Iterable[Object], installations: Iterable[PluginInstallation], policy: Policy
) -> Iterable[Object]:
    """Keep the texts that the device plugin reads, or that look as if they were meant for it.

    In the sharing namespaces lists of images are kept too, and the keys of all others, which show that a name is taken.
    If nothing is kept, the first ConfigMap is named, which shows that ConfigMaps were listed.
    """
    parts, installations = [*parts], [*installations]
    homes = policy.sharing_namespaces | {each.namespace for each in installations}
    chosen = []
    for part in parts:
        metadata = part["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        readers = tuple(
            each
            for each in installations
            if each.config_map == name and namespace in homes and each.namespace in ("", namespace)
        )
        texts = {key: text for key, text in part["data"].items() if text is not None}
        view = ConfigMap(name, namespace, texts, {})
        read = {config.key for config in configs(view, policy, readers, Allowance())}
        if read or namespace in policy.sharing_namespaces or (namespace, name) in policy.config_maps:
            listed = name == images.LIST and namespace in policy.sharing_namespaces
            data = {key: text if listed or key in read else None for key, text in part["data"].items()}
            chosen.append({**part, "data": data})
    return chosen or [{**part, "data": {}} for part in parts[:1]]


# Pods


def _pods(parts: Iterable[Object]) -> list[Object]:
    """Keep each pod that has a GPU. Of other pods that are alike, keep one."""
    seen: set[str] = set()
    chosen = []
    for part in parts:
        if kept(part) is None:
            spec = {key: value for key, value in part["spec"].items() if key != "nodeName"}
            metadata = {key: value for key, value in part["metadata"].items() if key != "name"}
            alike = json.dumps([metadata, spec], sort_keys=True)
            if alike in seen:
                continue
            seen.add(alike)
        chosen.append(part)
    return chosen
