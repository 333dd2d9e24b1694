"""A sharing configuration, or a key of it, is deleted while it is in use.

Nothing happens at first, because running plugins have read it already. At the next restart, which may be weeks later,
the device plugin's pods do not start because their volume is missing, or the config-manager exits because the key is
missing, and starts over without end (k8s-device-plugin cmd/config-manager/main.go, #364). The rule allows the deletion
of a whole namespace: that was decided elsewhere, and a refusal would only make it hang.

Way out: point the ClusterPolicy, the DaemonSet or the nodes that the message names at another configuration first.
"""

from collections.abc import Iterator

from webhook.deviceplugin.review import ConfigMapReview
from webhook.deviceplugin.usage import readers, some, users
from webhook.model import Finding, Path
from webhook.text.words import shown

SINCE = "0.1"

NAMESPACE_CONTROLLER = "system:serviceaccount:kube-system:namespace-controller"


def check(review: ConfigMapReview) -> Iterator[Finding]:
    """Flag the deletion of ConfigMaps that are read, and of keys that are used."""
    config_map = review.subject
    old = config_map.old
    if old is None or (config_map.requester and config_map.requester.username == NAMESPACE_CONTROLLER):
        return
    reading = readers(old.namespace, old.name, review.policy, review.facts)
    if not reading:
        return
    now = {*config_map.data, *config_map.binary_data}
    if config_map.deleted:
        names = ", ".join(f"{each.kind} {each.name}" for each in reading)
        yield Finding((), f"ConfigMap {shown(old.name)} is used by {names}; point them at another ConfigMap first")
        return
    used = users(reading, (*old.data, *old.binary_data), review.facts)
    for place, keys in (("data", old.data), ("binaryData", old.binary_data)):
        for key in keys:
            path: Path = (place, key)
            if key in now:
                continue
            if nodes := used.get(key):
                yield Finding(path, f"key {shown(key)} is used by {some(nodes)}; give them another key first")
            elif by := next((each for each in reading if each.key == key), None):
                yield Finding(path, f"key {shown(key)} is the default of {by.kind} {by.name}; name another there first")
