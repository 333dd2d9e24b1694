"""A sharing configuration is edited, and running device plugins do not read it.

Neither the GPU Operator nor the device plugin watches the ConfigMap (k8s-device-plugin cmd/config-manager/main.go,
gpu-operator#1144). An edit takes effect when the device plugin's pods next start, on each node at another time. The
message says which nodes it concerns, and which command makes it take effect on all of them at once. The rule only
warns.

Way out: run the command after the edit.
"""

from collections.abc import Iterator

from webhook.deviceplugin.configmaps import changed
from webhook.deviceplugin.review import ConfigMapReview
from webhook.deviceplugin.usage import daemon_sets, some
from webhook.model import Finding

SINCE = "0.1"


def check(review: ConfigMapReview) -> Iterator[Finding]:
    """Flag changed keys that nodes use."""
    config_map = review.subject
    if config_map.old is None or not review.readers:
        return
    restarts = " && ".join(
        f"kubectl -n {namespace} rollout restart daemonset/{name}"
        for namespace, name in daemon_sets(review.readers, review.policy)
    )
    for path, _ in changed(config_map):
        if nodes := review.users.get(str(path[-1])):
            yield Finding(
                path, f"this edit takes effect on {some(nodes)} only after a restart; run {restarts}", advice=True
            )
