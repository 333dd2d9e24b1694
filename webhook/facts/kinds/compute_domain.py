"""Reads ComputeDomains: groups of nodes that share memory. For each, NVIDIA's DRA driver makes a template of claims."""

from collections.abc import Mapping
from typing import Any

from webhook.api.lenient import mapping, string
from webhook.api.resources import Resource
from webhook.facts.kind import Fact, Table
from webhook.facts.kinds.resource_claim import ClaimedRequest
from webhook.model import Object

CHANNEL_CLASS = "compute-domain-default-channel.nvidia.com"
"""The device class of these channels (dra-driver-nvidia-gpu deployments/helm, templates/deviceclass-*.yaml)."""

CHANNEL = ClaimedRequest(CHANNEL_CLASS)
"""The devices that a claim of that template requests."""

RESOURCES = (Resource("resource.nvidia.com", "v1beta1", "computedomains", "ComputeDomain", namespaced=True),)
TABLE = Table[tuple[str, str], tuple[ClaimedRequest, ...]]("channels")


def read(item: Object, namespace: str, _: str) -> Fact:
    """Read what the template of a domain requests, by the template's namespace and name."""
    template = _channel_template(mapping(item.get("spec")))
    return TABLE.row((namespace, template), (CHANNEL,) if template else None)


def _channel_template(spec: Mapping[str, Any]) -> str:
    """Return the name of the template that the driver makes for a domain's channels.

    Source: dra-driver-nvidia-gpu api/nvidia.com/resource/v1beta1/computedomain.go, ComputeDomainChannelSpec.
    """
    return string(mapping(mapping(spec.get("channel")).get("resourceClaimTemplate")).get("name"))
