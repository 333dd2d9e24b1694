"""Who may do what in a cluster, and what those are told who may not."""

import json

from tests.e2e.control_plane import Cluster, User
from tests.e2e.objects import Object


def role(name: str, *rules: Object) -> Object:
    """A ClusterRole."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": rules,
    }


def bound(kind: str, name: str, to: str, user: str, **where: str) -> Object:
    """A binding of a kind, which gives a ClusterRole to a user."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, **where},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": to},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }


def refusal(cluster: Cluster, user: User | None, *arguments: str, item: Object | None = None) -> str:
    """Return what is said to a kubectl command that has to fail."""
    done = cluster.kubectl(*arguments, user=user, stdin=json.dumps(item) if item else None)
    assert done.returncode, done.stdout
    return done.stderr
