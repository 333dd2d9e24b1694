"""A sharing configuration would keep NVIDIA's device plugin from starting.

Kubernetes stores any text in a ConfigMap. The plugin reads it at its next start, which may be weeks later, and exits:
the node then offers no GPU at all. Two texts that do this are `timeSlicing.replicas` without `resources`, which many
tutorials show, and `replicas: 1` (k8s-device-plugin v0.20.0 api/config/v1). The rule reads all that the plugin reads:
also the section (`timeSlicing` or `mps`) that is not in force, the flags, and values that only GPU Feature Discovery
uses.

The rule assumes that the node has a GPU, and that MPS_ROOT is set as by the Helm chart and the GPU Operator. It does
not know other environment variables that override a flag of the text. It refuses texts that it cannot judge, and says
so: those with more than 100 levels or 5,000 values, and YAML that readers interpret differently.

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
