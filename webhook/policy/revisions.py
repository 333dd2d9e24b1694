"""Makes and reads revisions: immutable ConfigMaps in which a controller keeps the policies that replicas load.

Each has the digest of its policy. A replica uses a revision only if its label has the digest of its content, so no
other ConfigMap can become a policy. One more ConfigMap with this label lists the releases whose replicas may begin to
serve.
"""

import json
from collections.abc import Iterable

from webhook.model import Object, Problem, Unusable
from webhook.policy import load
from webhook.policy.model import Policy
from webhook.text.words import shown

LABEL = "slicewarden.dev/revision"
"""The label of a revision, with the digest as its value; that of the releases has RELEASES as its value."""

RELEASES = "releases"
RELEASES_NAME = f"slicewarden-{RELEASES}"
KEY = "policy.json"
_PART_OF = {"app.kubernetes.io/part-of": "slicewarden"}


def name_of(digest: str) -> str:
    """Return the name of the ConfigMap in which a policy is kept."""
    return f"slicewarden-policy-{digest}"


def revision(policy: Policy, namespace: str) -> Object:
    """Make the ConfigMap in which a policy is kept."""
    return {
        **_config_map(name_of(policy.digest), namespace, policy.digest),
        "immutable": True,
        "data": {KEY: policy.written},
    }


def read(item: Object, rules: Iterable[str], *, frameworks: Iterable[str] = ()) -> Policy:
    """Read the policy of a revision. Raises Unusable, also if the label has another digest."""
    label = label_of(item)
    try:
        value = json.loads((item.get("data") or {})[KEY])
        policy = load.of_object(value, rules, frameworks=frameworks)
    except (KeyError, TypeError, ValueError) as error:
        raise Unusable((Problem(name_of(label), 0, f"has no policy in JSON under {KEY}"),)) from error
    except RecursionError as error:
        raise Unusable((Problem(name_of(label), 0, "is nested too deeply"),)) from error
    if policy.digest != label:
        text = f"its label is {shown(label, quotes=False)}, but its content is policy {policy.digest}"
        raise Unusable((Problem(name_of(label), 0, text),))
    return policy


def label_of(item: Object) -> str:
    """Return the value of the label that marks revisions; empty for any other ConfigMap."""
    return str((item["metadata"].get("labels") or {}).get(LABEL, ""))


def by_label(items: Iterable[Object]) -> dict[str, Object]:
    """Return the revisions by their digests, and the list of releases under the key RELEASES.

    A ConfigMap whose name does not match its label is left out, so no two revisions have the same digest.
    """
    found = ((label_of(item), item) for item in items)
    return {label: item for label, item in found if item["metadata"]["name"] == _named(label)}


def _named(label: str) -> str:
    return RELEASES_NAME if label == RELEASES else name_of(label)


def releases(names: Iterable[str], namespace: str) -> Object:
    """Make the ConfigMap that lists the releases whose replicas may begin to serve."""
    return {**_config_map(RELEASES_NAME, namespace, RELEASES), "data": {RELEASES: " ".join(sorted(names))}}


def admitted(item: Object) -> frozenset[str]:
    """Return the releases that the ConfigMap of `releases` lists."""
    return frozenset(str((item.get("data") or {}).get(RELEASES, "")).split())


def _config_map(name: str, namespace: str, label: str) -> Object:
    metadata = {"name": name, "namespace": namespace, "labels": {**_PART_OF, LABEL: label}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
