"""Decides whether kubectl would create something that is judged from the documents of a file."""

from collections.abc import Iterable
from typing import Any

from webhook.api import admission
from webhook.api.devices import DeviceClaim
from webhook.api.fields import group_kind
from webhook.api.lenient import mapping, mappings
from webhook.api.objects import ConfigMap, PodGroup, Revision, Subject, judges, unpaid
from webhook.api.pods import Pod
from webhook.catalog.workloads import BUILT_IN
from webhook.documents import files
from webhook.documents.documents import Document
from webhook.model import Malformed, Object

SHARING = "sharing"
"""A part of the text of each sharing configuration."""


def creates(documents: Iterable[Document]) -> bool:
    """Whether kubectl would create an object from some documents that is judged, or has a container."""
    return any(is_created(item.value) for item in files.items(documents)[0])


def is_created(value: Object) -> bool:
    """Whether kubectl would create an object with pods or claims, or a sharing configuration.

    An API server refuses patches of Kubernetes' own workloads, since a container needs an image, and a workload of the
    group `apps` a selector (kubernetes pkg/apis/core/validation, pkg/apis/apps/validation). No pod comes of other kinds
    without an image either, unless their controllers know one: for a container without a name, as KServe's `model`.
    """
    kind = group_kind(value)
    if kind in BUILT_IN and kind[0] == "apps" and not mapping(mapping(value.get("spec")).get("selector")):
        return False
    if judges(*kind):
        try:
            request = admission.decode(admission.wrap(value))
            return any(map(_is_whole, unpaid(request, value)))
        except (Malformed, admission.NotAReview):  # kubectl fails, unless another version of the API reads it otherwise
            pass
    return _has_container(value)


def _is_whole(subject: Subject) -> bool:
    if isinstance(subject, Pod):
        specs = [each.spec for each in subject.containers]
        return bool(subject.unread or specs) and all(each.get("image") or "name" not in each for each in specs)
    if isinstance(subject, DeviceClaim):
        return bool(subject.requests)
    if isinstance(subject, ConfigMap):
        return any(SHARING in text for text in subject.data.values())
    return isinstance(subject, (PodGroup, Revision))


def _has_container(value: Object) -> bool:
    """Whether a value has a list of containers with images, or requests of devices, anywhere."""
    left = [each for key, each in value.items() if key not in ("metadata", "status")]
    while left:
        each: Any = left.pop()
        if isinstance(each, dict):
            containers = mappings(each.get("containers"))
            if containers and all("image" in one for one in containers):
                return True
            if mapping(each.get("devices")).get("requests"):
                return True
            left += each.values()
        elif isinstance(each, list):
            left += each
    return False
