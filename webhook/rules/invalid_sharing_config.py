"""A sharing configuration on which NVIDIA's device plugin refuses to start.

Kubernetes stores any text in a ConfigMap. The plugin reads it when it next starts, which may be weeks later,
and exits: the node then offers no GPU at all. `timeSlicing.replicas` without `resources`, which many
tutorials show, is such a text; so is `replicas: 1` (k8s-device-plugin v0.20.0 api/config/v1). All of it is read as the
plugin reads it: the YAML, the section that is not in force, flags, and what is only meant for GPU Feature Discovery.
Taken for granted are a GPU on the node, and MPS_ROOT as the Helm chart and the GPU Operator set it; other variables
that would override a flag of the text are not. What no configuration needs is not read at all, and said to be so: more
than 100 levels or 5,000 values, and forms on which YAML's own readers differ.

Way out: correct the place that the message names. To share nothing, leave `sharing` out.
"""

from collections.abc import Iterator

from webhook.deviceplugin.review import ConfigMapReview
from webhook.documents.goyaml import Unread
from webhook.model import Finding

_REFUSES = "the device plugin would not start on it"


def check(review: ConfigMapReview) -> Iterator[Finding]:
    """Flag texts that the plugin cannot read, and values that it refuses."""
    for config in review.configs:
        if isinstance(config.error, Unread):
            yield config.finding((), f"{config.error}, which the device plugin may read but this check does not")
        elif config.error is not None:
            yield config.finding((), f"{config.error}; {_REFUSES}")
        for inner, message in config.refused:
            yield config.finding(inner, f"{message}; {_REFUSES}")
