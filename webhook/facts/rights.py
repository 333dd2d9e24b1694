"""The right of trust in RBAC: to `use` `trustlevels/trusted` of the API group `slicewarden.dev`.

The API has no such resource. RBAC can grant rights to resources that do not exist, and a SubjectAccessReview can ask
about them (kubernetes pkg/apis/rbac/v1/evaluation_helpers.go).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from webhook.api.fields import group_kind
from webhook.api.lenient import mapping, mappings, sequence, string
from webhook.model import Object
from webhook.text.words import shown

GROUP, RESOURCE, NAME, VERB = "slicewarden.dev", "trustlevels", "trusted", "use"
"""The right, in the words of RBAC."""

RIGHT = f"{VERB} {RESOURCE}.{GROUP}/{NAME}"
"""The right in a message: the verb, the resource with its group, and the name."""

ROLE = "slicewarden-trusted"
"""The ClusterRole in manifests/ that has the right and nothing else."""

RBAC = "rbac.authorization.k8s.io"

ROLES, BINDINGS = ("Role", "ClusterRole"), ("RoleBinding", "ClusterRoleBinding")

KINDS = frozenset((RBAC, kind) for kind in (*ROLES, *BINDINGS))
"""The group and kind of the objects that give rights."""


ALL_ACCOUNTS = "system:serviceaccounts"
"""The group of all service accounts of a cluster."""


class Account(NamedTuple):
    """A service account. An account without a name stands for all accounts of its namespace."""

    namespace: str
    name: str

    @property
    def user(self) -> str:
        """The user name of the account in the API server; empty for all accounts of a namespace."""
        return f"system:serviceaccount:{self.namespace}:{self.name}" if self.name else ""

    @property
    def groups(self) -> tuple[str, str]:
        """The account's groups, as `authorizer.serviceAccount` has them in CEL: without `system:authenticated`.

        Source: kubernetes staging/src/k8s.io/apiserver/pkg/authentication/serviceaccount/util.go, MakeGroupNames.
        """
        return ALL_ACCOUNTS, f"system:serviceaccounts:{self.namespace}"

    @property
    def possible(self) -> bool:
        """Whether the API server can have such an account, by the length and the characters of its names."""
        return all(map(_SAFE.fullmatch, (self.namespace, self.name or self.namespace)))


ANYONE = Account("NAMESPACE", "ACCOUNT")
"""Stands for an account in a text that is written before the account is known."""

_SAFE = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""The name of a namespace or a service account (apimachinery pkg/util/validation, IsDNS1123Subdomain)."""


def command(account: Account) -> str:
    """Return the command that gives an account the right in its namespace, for an administrator to run.

    Invalid names of namespaces and accounts become placeholders, so that nobody pastes them into a shell.
    """
    if not account.possible:
        account = ANYONE
    who = f"--serviceaccount={account.namespace}:{account.name}" if account.name else f"--group={account.groups[1]}"
    return f"kubectl create rolebinding {ROLE} --clusterrole={ROLE} {who} --namespace={account.namespace}"


SHIPPED: Object = {
    "apiVersion": f"{RBAC}/v1",
    "kind": "ClusterRole",
    "metadata": {"name": ROLE},
    "rules": [{"apiGroups": [GROUP], "resources": [RESOURCE], "resourceNames": [NAME], "verbs": [VERB]}],
}
"""The same ClusterRole as in manifests/base/rbac.yaml."""

_OF_EVERY_CLUSTER = "cluster-admin"
"""The ClusterRole that every API server makes when it starts, with every right.

Source: kubernetes plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go, ClusterRoles.
"""


def shipped(objects: Iterable[Object]) -> list[Object]:
    """Return the ClusterRole of our manifests if it must be assumed to exist, else nothing.

    It is not assumed if the objects include a ClusterRole with its name, or `cluster-admin`: then they list all roles
    of a cluster, and a role that is missing was deleted.
    """
    spoken = {("ClusterRole", "", name) for name in (ROLE, _OF_EVERY_CLUSTER)}
    return [] if any(group_kind(item) in KINDS and _name(item) in spoken for item in objects) else [SHIPPED]


class Rights:
    """Answers which accounts have the right of trust.

    This base class answers for none, as if no bindings were known.
    """

    unknown = "no Role or RoleBinding is among the facts; add them to the facts, or ask the cluster with --live"
    """Why an answer is missing, and what to do, in a few words."""

    def held(self, _: Account) -> bool | None:
        """Whether an account has the right; None if that is unknown. Never waits."""
        return None

    def holders(self, _: str) -> set["Holder"]:
        """Return the accounts and groups of a namespace that are known to have the right there."""
        return set()

    def noting(self) -> list[Account]:
        """Start a list of the accounts that this thread asks `held` about without an answer, and return the list."""
        return []

    def ask(self, accounts: Iterable[Account]) -> None:
        """Wait until the rights of these accounts are known, or until the request for them has failed."""


UNREAD = Rights()


class GrantedRight(Rights):
    """The right of trust as RBAC's roles and bindings grant it (kubernetes pkg/registry/rbac/validation/rule.go).

    A binding to a missing role grants nothing. The exception is the ClusterRole of the manifests, which is assumed to
    exist unless a cluster's roles are listed (`shipped`). An aggregated ClusterRole has the rules that are written in
    it.
    """

    unknown = ""

    def __init__(self, objects: Iterable[Object]) -> None:
        self.objects = items = [*objects]
        roles = {_name(item): giving(item) for item in (*items, *shipped(items)) if item.get("kind") in ROLES}
        self._holders: dict[str, set[Holder]] = {}
        broad = []
        for item in items:
            rules = roles.get(given_by(item)) if item.get("kind") in BINDINGS else None
            if rules:
                kind, space, name = _name(item)
                holders = set(_subjects(item, space))
                self._holders.setdefault(space, set()).update(holders)
                if some := sorted(_broadly(rules, holders)):
                    broad.append((f"{kind} {shown(f'{space}/{name}'.lstrip('/'), quotes=False)}", some))
        self.broad: Sequence[tuple[str, list[str]]] = broad
        """Bindings by which accounts hold the right though no rule names it, or all accounts of the cluster do."""

    def held(self, account: Account) -> bool:
        """Whether an account has the right in its namespace."""
        names = {("Group", group) for group in account.groups} | ({("User", account.user)} if account.name else set())
        return any(not names.isdisjoint(self._holders.get(space, ())) for space in (account.namespace, ""))

    def holders(self, namespace: str) -> set["Holder"]:
        """Return the accounts of a namespace, and groups of its accounts, that have the right in that namespace."""
        groups = {("Group", group) for group in Account(namespace, "").groups}
        start = Account(namespace, " ").user.rstrip()
        return {
            holder
            for space in (namespace, "")
            for holder in self._holders.get(space, ())
            if holder in groups or (holder[0] == "User" and holder[1].startswith(start))
        }


def giving(role: Object) -> list[Mapping[str, Any]]:
    """Return the rules of a Role or ClusterRole that grant the right of trust."""
    return [rule for rule in mappings(role.get("rules")) if _gives(rule)]


def _gives(rule: Mapping[str, Any]) -> bool:
    names = sequence(rule.get("resourceNames"))
    return (
        any(verb in ("*", VERB) for verb in sequence(rule.get("verbs")))
        and any(group in ("*", GROUP) for group in sequence(rule.get("apiGroups")))
        and any(resource in ("*", RESOURCE) for resource in sequence(rule.get("resources")))
        and (not names or NAME in names)
    )


Holder = tuple[str, str]
"""The kind of a subject, `User` or `Group`, and its name."""

_USER = "system:serviceaccount:"


def _broadly(rules: Iterable[Mapping[str, Any]], holders: Iterable[Holder]) -> Iterator[str]:
    """Yield the accounts, as `namespace:name`, that have the right only through `*`, and the group of all accounts."""
    wild = all("*" in (*rule["verbs"], *rule["apiGroups"], *rule["resources"]) for rule in rules)
    for kind, name in holders:
        if kind == "Group" and name == ALL_ACCOUNTS:
            yield name
        elif wild and kind == "User" and name.startswith(_USER):
            yield shown(name.removeprefix(_USER), quotes=False)


Named = tuple[str, str, str]
"""Kind, namespace (empty if cluster-scoped) and name."""


def given_by(binding: Object) -> Named:
    """Return the role to which a binding refers."""
    to = mapping(binding.get("roleRef"))
    kind = string(to.get("kind"))
    return kind, _name(binding)[1] if kind == "Role" else "", string(to.get("name"))


def needed(objects: Iterable[Object], beside: Iterable[Object] = ()) -> list[Object]:
    """Return the objects without those bindings whose role does not grant the right of trust.

    Roles in `beside` are considered too, but not returned.
    """
    items = [*objects]
    known = (item for item in (*items, *beside) if group_kind(item) in KINDS and item["kind"] in ROLES)
    roles = {_name(item) for item in known if giving(item)}
    others = [group_kind(item) not in KINDS or item["kind"] in ROLES or given_by(item) in roles for item in items]
    return [item for item, stays in zip(items, others, strict=True) if stays]


def kept(item: Object) -> Object | None:
    """Return the part of a role or binding that is read; None if it does not concern the right of trust.

    A ClusterRole with the name of the one in the manifests is always kept, because it replaces the assumed one.
    """
    if item.get("kind") in ROLES:
        rules = giving(item)
        return {"rules": rules} if rules or _name(item) == _name(SHIPPED) else None
    return {"roleRef": mapping(item.get("roleRef")), "subjects": mappings(item.get("subjects"))}


def _name(item: Object) -> Named:
    metadata, kind = mapping(item.get("metadata")), string(item.get("kind"))
    space = "" if kind.startswith("Cluster") else string(metadata.get("namespace")) or "default"
    return kind, space, string(metadata.get("name"))


def _subjects(binding: Object, namespace: str) -> Iterator[Holder]:
    for each in mappings(binding.get("subjects")):
        kind, name = string(each.get("kind")), string(each.get("name"))
        if kind == "ServiceAccount":
            if space := string(each.get("namespace")) or namespace:
                yield "User", Account(space, name).user
        else:
            yield kind, name
