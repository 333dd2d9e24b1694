"""Lists the namespaces of platforms and network plugins, which have to start before any webhook.

A node without its network plugin runs no other pod, not even the webhook's. If API servers asked the webhook about the
plugin's pods, a cluster that lost all its nodes would stay down. `policy init` lists these namespaces under
`leaveAlone`: those of platforms that the cluster runs on, and those of network plugins that nodes name. Plugins in
`kube-system` need no row: Amazon's VPC CNI, Azure CNI, Weave Net, kube-router, Kube-OVN and Multus.
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
    """A network plugin that may run outside `kube-system`: the namespace and the name of its DaemonSet there.

    `reason` is what it writes into the condition NetworkUnavailable of each node; empty if it writes none. `words` are
    parts of the names that its DaemonSets have in `kube-system`. `needs` are other namespaces that have to start.
    """

    namespace: str
    daemon_set: str
    reason: str
    words: tuple[str, ...]
    needs: tuple[str, ...] = ()


NETWORK_PLUGINS = (
    # tigera/operator pkg/common/common.go, pkg/render/node.go
    NetworkPlugin("calico-system", "calico-node", "CalicoIsUp", ("calico", "canal"), ("tigera-operator",)),
    # flannel-io/flannel Documentation/kube-flannel.yml, pkg/subnet/kube
    NetworkPlugin("kube-flannel", "kube-flannel-ds", "FlannelIsUp", ("flannel", "canal")),
    # cilium/cilium install/kubernetes/cilium, operator/option; GKE's is anetd
    NetworkPlugin("cilium", "cilium", "CiliumIsUp", ("cilium", "anetd")),
    NetworkPlugin("ovn-kubernetes", "ovnkube-node", "", ("ovnkube",)),  # ovn-kubernetes/ovn-kubernetes dist/templates
    NetworkPlugin("antrea-system", "antrea-agent", "", ("antrea",)),  # antrea-io/antrea build/charts/antrea
)
"""Network plugins outside `kube-system`, but for those of a platform."""
