"""An API server on which the fallback is tried: its flags, its namespaces, and a tenant with every right by RBAC."""

from tests.e2e.access import allowed, bound
from tests.e2e.control_plane import Cluster, User
from tests.support.policies import FACTS, facts_of

TENANT = User("tenant", ("system:authenticated",))
"""May do everything by RBAC, and is no administrator of the policy."""
FLAGS = ("--disable-admission-plugins=ServiceAccount,RuntimeClass",)
"""No controller makes service accounts here, and nobody makes runtime classes."""
FACTS_OF = facts_of(FACTS)
CREATE = ("create", "--dry-run=server", "--filename=-")


def prepare(cluster: Cluster) -> None:
    """Make the namespaces of the facts, and let the tenant do everything."""
    cluster.wait_until("the namespaces are there", lambda: cluster.kubectl("get", "ns", "kube-system").returncode == 0)
    spaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(labels)}}
        for name, labels in FACTS_OF.namespaces.items()
    ]
    assert cluster.apply(*spaces).returncode == 0
    assert cluster.apply(bound("ClusterRoleBinding", "tenant", "cluster-admin", TENANT.name)).returncode == 0
    allowed(cluster, TENANT, "create", "pods")
