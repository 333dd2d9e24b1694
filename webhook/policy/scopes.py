"""The pods and users that a part of a policy is about: pods by namespace and account, users by name and group."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from webhook.api.selectors import Selector
from webhook.catalog.names import Names
from webhook.model import Requester, immutable

NAME_LABEL = "kubernetes.io/metadata.name"
"""The label that holds a namespace's name. The API server sets it, and no one can change it (KEP-2161)."""


@immutable
class Scope:
    """Pods: those in named or selected namespaces, and only those of certain service accounts if any are given.

    Only in an exemption may an account end in `*`, and stand for all that begin so.
    """

    namespaces: frozenset[str]
    selector: Selector | None
    service_accounts: frozenset[str]

    def covers(self, namespace: str, labels: Mapping[str, str] | None, service_account: str) -> bool:
        """Tell whether it has the pods of a service account in a namespace with these labels (None: unknown)."""
        if namespace not in self.namespaces and (self.selector is None or not self.reaches(namespace, labels)):
            return False  # most scopes: by their namespaces alone
        return not self.service_accounts or service_account in self._accounts

    @cached_property
    def _accounts(self) -> Names:
        return Names(self.service_accounts)

    def reaches(self, namespace: str, labels: Mapping[str, str] | None) -> bool:
        """Tell whether it has pods of any account in a namespace. This is for objects that run under no account."""
        if namespace in self.namespaces:
            return True
        return self.selector is not None and labels is not None and self.selector.matches(labels)


@dataclass(frozen=True, slots=True)
class Requesters:
    """Users who send requests, by name or by group."""

    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()

    def include(self, requester: Requester) -> bool:
        """Tell whether a requester is one of them."""
        return requester.username in self.users or not self.groups.isdisjoint(requester.groups)


SCHEDULER = "system:kube-scheduler"
"""Kubernetes' own scheduler (kubernetes staging/src/k8s.io/apiserver/pkg/authentication/user/user.go)."""

CONTROLLERS = frozenset(
    (
        "system:kube-controller-manager",
        *(
            f"system:serviceaccount:kube-system:{name}"
            for name in (
                "cronjob-controller",
                "daemon-set-controller",
                "deployment-controller",
                "job-controller",
                "replicaset-controller",
                "replication-controller",
                "resource-claim-controller",
                "statefulset-controller",
            )
        ),
    )
)
"""The controllers that make pods, workloads and claims from the templates of Kubernetes' own kinds.

Source: kubernetes plugin/pkg/auth/authorizer/rbac/bootstrappolicy/controller_policy.go.
"""


@immutable
class Grant:
    """Lets the pods of a scope be trusted, and only in certain pools if any are named.

    With `requesters` it applies only if one of them sent the pod, or a controller made the pod from a judged template.
    """

    scope: Scope
    pools: frozenset[str] = frozenset()
    requesters: Requesters | None = None
