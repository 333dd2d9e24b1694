"""Tells which device classes are for GPUs: by the policy, by the facts, by known names."""

from enum import Enum

from webhook.catalog import gpu_requests
from webhook.facts.snapshot import Facts
from webhook.policy.model import Policy


class Class(Enum):
    """A device class: of GPUs, of other devices, or one of which nothing is known."""

    GPU = "GPU"
    OTHER = "other"
    UNKNOWN = "unknown"


def sort_of(name: str, policy: Policy, facts: Facts) -> Class:
    """Tell what a device class is for. What the policy says counts first, then the drivers that the class selects."""
    forms = policy.forms
    if forms.classes_named:
        return Class.GPU if name in forms.device_classes else Class.OTHER
    selectors = facts.device_classes.get(name, "")
    if any(f'"{driver}"' in selectors for driver in gpu_requests.GPU_CLASSES):
        return Class.GPU
    if name not in forms.device_classes:
        return Class.OTHER
    if name in gpu_requests.GPU_CLASSES:
        return Class.GPU
    if any(f'"{driver}"' in selectors for driver in gpu_requests.OTHER_CLASSES):
        return Class.OTHER
    return Class.UNKNOWN
