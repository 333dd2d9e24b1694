"""Describes which pods (by namespace and account) and users (by name and group) a part of a policy covers."""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

from webhook.api.selectors import Selector
from webhook.catalog.names import Names
from webhook.model import Requester, immutable

T = TypeVar("T")

NAME_LABEL = "kubernetes.io/metadata.name"
"""The label that holds a namespace's name. The API server sets it, and no one can change it (KEP-2161)."""


@immutable
class Scope:
    """Pods: those in named or selected namespaces, and only those of certain service accounts if any are given.

    Only in an exemption may an account end in `*` as a wildcard. A scope that is `everywhere` covers every namespace,
    known or not.
    """

    namespaces: frozenset[str]
    selector: Selector | None
    service_accounts: frozenset[str]
    everywhere: bool = False

    def covers(self, namespace: str, labels: Mapping[str, str] | None, service_account: str) -> bool:
        """Return whether the scope covers pods of a service account in a namespace with these labels.

        `labels` is None if the labels are unknown.
        """
        if namespace not in self.namespaces and not self.reaches(namespace, labels):
            return False  # most scopes: by their namespaces alone
        return not self.service_accounts or service_account in self._accounts

    @cached_property
    def _accounts(self) -> Names:
        return Names(self.service_accounts)

    def reaches(self, namespace: str, labels: Mapping[str, str] | None) -> bool:
        """Return whether the scope covers pods of some account in a namespace. Used for objects without an account."""
        if namespace in self.namespaces or self.everywhere:
            return True
        return self.selector is not None and labels is not None and self.selector.matches(labels)


class ByNamespace(Generic[T]):
    """An index of items by the namespaces that their scopes name, with which items for other namespaces are skipped.

    An item whose scope is None covers all namespaces.
    """

    def __init__(self, things: Iterable[T], scope_of: Callable[[T], Scope | None]) -> None:
        self._things = tuple(things)
        self._naming: dict[str, list[int]] = {}
        self._others: list[int] = []
        for index, thing in enumerate(self._things):
            scope = scope_of(thing)
            if scope is not None and scope.namespaces and scope.selector is None and not scope.everywhere:
                for namespace in scope.namespaces:
                    self._naming.setdefault(namespace, []).append(index)
            else:
                self._others.append(index)
        self._for_most = self._at(self._others)

    def near(self, namespace: str) -> tuple[T, ...]:
        """Return the items whose scope may cover a namespace, in their original order."""
        naming = self._naming.get(namespace)
        return self._for_most if naming is None else self._at(sorted((*naming, *self._others)))

    def _at(self, places: Iterable[int]) -> tuple[T, ...]:
        return tuple([self._things[place] for place in places])


class Requesters(NamedTuple):
    """Users who send requests, by name or by group."""

    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()

    def include(self, requester: Requester) -> bool:
        """Return whether a requester is one of them."""
        return requester.username in self.users or not self.groups.isdisjoint(requester.groups)

    @property
    def namespaces(self) -> frozenset[str]:
        """The namespaces of the service accounts among them."""
        users = (user.split(":")[2] for user in self.users if user.startswith("system:serviceaccount:"))
        groups = (group.split(":")[2] for group in self.groups if group.startswith("system:serviceaccounts:"))
        return frozenset((*users, *groups))


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
    """A grant: it lets the pods of a scope be trusted, and only in certain pools if any are named.

    With `requesters` it applies only if one of them sent the pod, or a controller made the pod from a judged template.
    With `rbac` it applies only if the pod's service account has the right of trust (webhook/facts/rights.py).
    """

    scope: Scope
    pools: frozenset[str] = frozenset()
    requesters: Requesters | None = None
    rbac: bool = False
