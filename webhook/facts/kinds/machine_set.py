"""Reads MachineDeployments and MachineSets of the Cluster API and of OpenShift: the GPU nodes that they can make."""

from webhook.api.lenient import mapping, string
from webhook.api.metadata import name_of
from webhook.api.resources import Resource
from webhook.facts import parts, scaling
from webhook.facts.kind import Fact, Part, Table
from webhook.facts.scaling import ScaledNodes
from webhook.model import Object
from webhook.policy.model import Policy

RESOURCES = (
    Resource("cluster.x-k8s.io", "v1beta2", "machinedeployments", "MachineDeployment", namespaced=True),
    Resource("cluster.x-k8s.io", "v1beta2", "machinesets", "MachineSet", namespaced=True),
    Resource("machine.openshift.io", "v1beta1", "machinesets", "MachineSet", namespaced=True),
)
TABLE = Table[tuple[str, str, str], ScaledNodes]("machines")


def read(item: Object, namespace: str, name: str) -> Fact:
    """Read the nodes that an object can make; None if they have no GPUs.

    Also None for the MachineSet of a MachineDeployment, which makes the same nodes. OpenShift writes the labels of
    nodes into the spec of the machine.
    """
    metadata = mapping(item.get("metadata"))
    template = mapping(mapping(item.get("spec")).get("template"))
    machine = mapping(template.get("spec"))
    openshift = string(item.get("apiVersion")).startswith("machine.openshift.io/")
    labels = mapping(mapping((machine if openshift else template).get("metadata")).get("labels"))
    synced = labels if openshift else {key: value for key, value in labels.items() if _reaches_nodes(key)}
    kind = string(item.get("kind"))
    found = scaling.of_machines(kind, name, mapping(metadata.get("annotations")), synced, machine)
    return TABLE.row((kind, namespace, name), None if metadata.get("ownerReferences") else found)


_SYNCED = (".node.cluster.x-k8s.io", ".node-restriction.kubernetes.io")


def _reaches_nodes(key: str) -> bool:
    """Whether the Cluster API writes a label of a machine on its node (cluster-api api/core machine_types.go)."""
    domain = key.partition("/")[0]
    return domain == "node-role.kubernetes.io" or f".{domain}".endswith(_SYNCED)


def kept(item: Object) -> Part:
    """Keep the template, the annotations of capacity, and whether it has an owner."""
    template = mapping(mapping(item.get("spec")).get("template"))
    machine = mapping(template.get("spec"))
    metadata = mapping(item.get("metadata"))
    said = mapping(metadata.get("annotations"))
    more: dict[str, object] = {}
    if annotations := {key: said[key] for key in said if key.startswith(_READ)}:
        more["annotations"] = annotations
    if metadata.get("ownerReferences"):
        more["ownerReferences"] = [{"name": name_of(item)}]
    spec: dict[str, object] = parts.filled(machine, "taints")
    if labels := mapping(mapping(machine.get("metadata")).get("labels")):
        spec["metadata"] = {"labels": labels}
    own = mapping(mapping(template.get("metadata")).get("labels"))
    return {
        "metadata": more,
        "spec": {"template": {**({"metadata": {"labels": own}} if own else {}), "spec": spec}},
    }


_READ = ("capacity.cluster-autoscaler.kubernetes.io/", "machine.openshift.io/GPU")


def slim(item: Object, _: Policy) -> Part:
    """Keep the same parts as `kept`."""
    return kept(item)
