"""The namespaces of platforms and network plugins, which have to start before any webhook.

A node without its network plugin runs no other pod, the webhook's neither. So where the registration asked about it, a
cluster that lost all its nodes would stay down. `policy init` names those that exist under `leaveAlone`. Plugins in
`kube-system` need no row: Amazon's VPC CNI, Azure CNI, Cilium, Antrea, Weave Net, kube-router, Kube-OVN and Multus.
"""

from typing import NamedTuple

from webhook.catalog.names import Names


class Platform(NamedTuple):
    """A platform: the labels of nodes by which it is known, and its namespaces, where no tenant may create anything."""

    name: str
    node_labels: tuple[str, ...]
    namespaces: Names


PLATFORMS = (
    # openshift/machine-config-operator templates/*/kubelet.service.yaml; openshift/apiserver-library-go and
    # openshift-apiserver pkg/project/apiserver/registry/projectrequest refuse such projects to users.
    Platform("OpenShift", ("node.openshift.io/os_id",), Names(("openshift-*",))),
    # cloud.google.com/kubernetes-engine/docs/concepts/autopilot-security, /docs/how-to/managed-namespaces;
    # cloud.google.com/stackdriver/docs/managed-prometheus/setup-managed
    Platform("GKE", ("cloud.google.com/gke-nodepool",), Names(("gke-managed-*", "gke-gmp-system", "gmp-system"))),
    # learn.microsoft.com/azure/aks/use-network-policies: Calico as AKS installs it
    Platform("AKS", ("kubernetes.azure.com/cluster",), Names(("calico-system", "tigera-operator"))),
)


class NetworkPlugin(NamedTuple):
    """A network plugin: the namespace and the name of its DaemonSet, and the namespaces that have to start."""

    namespace: str
    daemon_set: str
    needs: tuple[str, ...] = ()


NETWORK_PLUGINS = (
    # tigera/operator pkg/common/common.go, pkg/render/node.go
    NetworkPlugin("calico-system", "calico-node", ("tigera-operator",)),
    NetworkPlugin("kube-flannel", "kube-flannel-ds"),  # flannel-io/flannel Documentation/kube-flannel.yml
    NetworkPlugin("ovn-kubernetes", "ovnkube-node"),  # ovn-kubernetes/ovn-kubernetes dist/templates
    NetworkPlugin("cilium", "cilium"),  # cilium/cilium install/kubernetes/cilium, in a namespace of its own
    NetworkPlugin("antrea-system", "antrea-agent"),  # antrea-io/antrea build/charts/antrea, in one of its own
    # openshift/cluster-network-operator bindata/network; also known by the platform
    NetworkPlugin("openshift-ovn-kubernetes", "ovnkube-node", ("openshift-network-operator",)),
    NetworkPlugin("openshift-multus", "multus"),
    NetworkPlugin("openshift-sdn", "sdn", ("openshift-network-operator",)),
)
"""Network plugins outside `kube-system`."""
