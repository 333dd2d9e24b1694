"""NVIDIA's device plugin would not start with a sharing configuration.

Kubernetes stores any text in a ConfigMap. The plugin reads it at its next start, which may be weeks later, and exits:
the node then offers no GPU at all. `timeSlicing.replicas` without `resources`, which many tutorials show, is such a
text; so is `replicas: 1` (k8s-device-plugin v0.20.0 api/config/v1). The rule reads the text as the plugin does: the
YAML, the section that is not in use, flags, and values that only GPU Feature Discovery reads.

The rule assumes a GPU on the node, and MPS_ROOT as the Helm chart and the GPU Operator set it. It does not know other
variables that override a flag of the text. It does not read texts that no configuration needs, and says so: more than
100 levels or 5,000 values, and YAML that readers interpret differently.

Way out: correct the place that the message names. To share nothing, leave `sharing` out.
"""

from collections.abc import Iterator

from webhook.deviceplugin.review import ConfigMapReview
from webhook.documents.marks import UnsupportedText
from webhook.model import Finding

SINCE = "0.1"

_REFUSES = "the device plugin would not start"

_WAY_OF_PLACEHOLDERS = "; if Flux fills this in, check the folder together with Flux's Kustomization"


def check(review: ConfigMapReview) -> Iterator[Finding]:
    """Flag texts that the plugin cannot read, and values that it refuses."""
    for config in review.configs:
        if isinstance(config.error, UnsupportedText):
            yield config.finding((), f"Slicewarden cannot judge this text: {config.error}; simplify it")
        elif config.error is not None:
            yield config.finding((), f"{_REFUSES}: {config.error}")
        for inner, message in config.refused:
            way = _WAY_OF_PLACEHOLDERS if '"${' in message else ""
            yield config.finding(inner, f"{_REFUSES}: {message}{way}")
