"""Lints of device classes and of the devices that drivers publish."""

from collections.abc import Iterator

from webhook.facts.kinds import gpu_cluster
from webhook.facts.parts import VENDOR
from webhook.gpu.device_classes import devices_of, unjudged
from webhook.lints.base import Linted, LintFinding, Table, at
from webhook.model import Action
from webhook.text.words import listed, shown


def shared_device(of: Linted) -> Iterator[LintFinding]:
    """A pool of unshared GPUs has a device class whose devices several claims may use at once.

    Such claims, from any namespace, get the same GPU without isolation. Drivers publish such devices with
    `allowMultipleAllocations`, as NVIDIA's does with `--consumable-shares`. The lint needs ResourceSlices among the
    facts.

    Way out: set the pool's `sharing` to time-slicing, with the trust that this requires, or let the class select
    devices that are not shared.
    """
    for path, pool in at("pools", of.policy.pools):
        for place, name in enumerate(pool.device_classes):
            shared = [device for device in devices_of(name, of.facts) if device.shared]
            missing = of.facts.device_classes and not name.endswith("*") and name not in of.facts.device_classes
            if shared and not pool.shared and not missing:
                where = listed(sorted({device.node or device.name for device in shared}), 3)
                yield LintFinding(
                    (*path, "deviceClasses", place),
                    f"class {name} gives GPUs of {where} to several claims at once, and pool {pool.name} has sharing "
                    f"{pool.sharing}; set sharing: time-slicing, or select other devices",
                )


def uncounted_device(of: Linted) -> Iterator[LintFinding]:
    """A shared pool without `maxMemory` has a device class whose claims need not take any memory of a device.

    Then any number of claims may share one GPU, as with `--consumable-shares=unlimited` of NVIDIA's driver. The lint
    needs ResourceSlices among the facts.

    Way out: set `maxMemory` for the pool, so that every claim has to say how much it takes.
    """
    for path, pool in at("pools", of.policy.pools):
        names = [name for name in pool.device_classes if any(each.uncounted for each in devices_of(name, of.facts))]
        if names and pool.shared and pool.max_memory is None:
            yield LintFinding(
                (*path, "deviceClasses"),
                f"claims for {listed(names, 3)} take no memory unless they say so, so any number share one GPU of pool "
                f"{pool.name}; set maxMemory",
            )


def labelless_pool(of: Linted) -> Iterator[LintFinding]:
    """A pool selects nodes by labels of GPU Feature Discovery, which a GPUCluster does not run.

    With a GPUCluster the GPU Operator runs NVIDIA's DRA driver, and neither a device plugin nor GPU Feature Discovery
    (gpu-operator api/nvidia/v1alpha1): no node gets an `nvidia.com/gpu.*` label, and the pool never holds a pod.

    Way out: list the driver's `deviceClasses` in the pool, and leave out `nodes` and `resources`. Or select the nodes
    by labels of your own.
    """
    clusters = tuple(of.facts.table(gpu_cluster.TABLE))
    if not clusters or any(label.startswith(_LABELS) for node in of.facts.nodes for label in node.labels):
        return
    for path, pool in at("pools", of.policy.pools):
        keys = [r.key for r in pool.nodes.requirements if r.key.startswith(_LABELS) and not r.matches({})]
        if keys:
            yield LintFinding(
                (*path, "nodes"),
                f"no node has {keys[0]}, and GPUCluster {clusters[0]} runs nothing that writes it, so "
                f"pool {pool.name} never holds a pod; list deviceClasses instead, or select other labels",
            )


_LABELS = f"{VENDOR}gpu."


def missing_class(of: Linted) -> Iterator[LintFinding]:
    """A device class of a pool does not exist.

    Claims for it wait until it exists: it was deleted or renamed, or its driver is not installed. A class with that
    name decides which devices the pool's claims get, so only administrators may write one (`foreign-device-class`). The
    lint needs DeviceClasses among the facts, and reads only names without `*`.

    Way out: install the driver, correct the name, or remove the class from the pool.
    """
    if not of.facts.device_classes:
        return
    for path, pool in at("pools", of.policy.pools):
        for index, name in enumerate(pool.device_classes.patterns):
            if "*" not in name and name not in of.facts.device_classes:
                yield LintFinding(
                    (*path, "deviceClasses", index),
                    f"there is no DeviceClass {shown(name)}, so claims for it wait; install its driver, or "
                    "correct the name",
                )


def unjudged_class(of: Linted) -> Iterator[LintFinding]:
    """A device class of GPUs offers them as a resource that the policy does not know.

    Every pod that requests the resource gets such a GPU, and counts as a pod without one. The rule `unlisted-resource`
    refuses such a class when it is written, so this one is older than the webhook. The lint needs DeviceClasses among
    the facts.

    Way out: add the name to `gpus.resources`, or take `extendedResourceName` out of the class.
    """
    for name, resource in unjudged(of.policy, of.facts):
        yield LintFinding(
            ("spec", "gpus", "resources"),
            f"DeviceClass {shown(name)} offers GPUs as {shown(resource)}, which the policy does not know, so pods "
            "request them unjudged; add the name, or take extendedResourceName out of the class",
        )


LINTS: Table = {
    shared_device: Action.DENY,
    uncounted_device: Action.WARN,
    labelless_pool: Action.DENY,
    missing_class: Action.WARN,
    unjudged_class: Action.DENY,
}
