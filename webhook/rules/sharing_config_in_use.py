"""A sharing configuration is deleted, whole or by key, while something uses it.

Nothing happens at first: what runs has read it. At the next restart, which may be weeks later, the device plugin's
pods do not start for want of their volume, or the config-manager exits for want of the key and starts over without
end (k8s-device-plugin cmd/config-manager/main.go, #364). The deletion of a whole namespace is let through: it has been
decided elsewhere, and would only hang.

Way out: have the ClusterPolicy, the DaemonSet or the nodes that the message names use another first.
"""

from collections.abc import Iterator

from webhook.deviceplugin.review import ConfigMapReview
from webhook.deviceplugin.usage import readers, some, users
from webhook.model import Finding, Path
from webhook.text.words import shown

NAMESPACE_CONTROLLER = "system:serviceaccount:kube-system:namespace-controller"


def check(review: ConfigMapReview) -> Iterator[Finding]:
    """Flag the deletion of what is read, and keys that go while they are used."""
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
        yield Finding((), f"ConfigMap {shown(old.name)} is used by {names}; have it use another first")
        return
    used = users(reading, (*old.data, *old.binary_data), review.facts)
    for place, keys in (("data", old.data), ("binaryData", old.binary_data)):
        for key in keys:
            path: Path = (place, key)
            if key in now:
                continue
            if nodes := used.get(key):
                yield Finding(path, f"is used by {some(nodes)}; give them another key first")
            elif by := next((each for each in reading if each.key == key), None):
                yield Finding(path, f"is the key that {by.kind} {by.name} uses by default; name another there first")
