"""The part of a policy that a fallback may read from a ConfigMap: the settings that change most often.

They are grants by the names of namespaces, and how many GPUs a pool gives to one pod. Changing them changes only the
ConfigMap: the change takes effect at once, and no policy is compiled again. If the ConfigMap is missing, the API server
refuses every request that a policy with params matches, before it evaluates the conditions. So only policies for new
pods read it, and exemptions stay in the expressions: updates and bindings by kubelets and schedulers need them.
"""

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any, NamedTuple

from webhook.cel.write import text
from webhook.engine.registration import LABELS, MADE_FROM
from webhook.model import Object
from webhook.policy.model import NAMESPACE, Policy
from webhook.policy.scopes import Grant, Scope

KIND = {"apiVersion": "v1", "kind": "ConfigMap"}

TRUST, MOST = "trust.", "maxRequest."
"""The prefixes of the ConfigMap's keys. The name of a namespace or of a pool follows.

A line under `trust.NAMESPACE` is a grant: its pools and its service accounts, each list joined by commas, and `*` for
all accounts. The value of `maxRequest.POOL` is a number.
"""

UNBOUNDED = 2**63 - 1


class Params(NamedTuple):
    """A reference to the ConfigMap from which a fallback reads settings."""

    namespace: str
    name: str

    @classmethod
    def of(cls, words: str) -> "Params":
        """Read a reference such as `NAMESPACE/NAME`, or a name in the namespace of the webhook."""
        namespace, _, name = words.rpartition("/")
        return cls(namespace or NAMESPACE, name)

    def __str__(self) -> str:
        """Write the text that `of` reads."""
        return self.name if self.namespace == NAMESPACE else f"{self.namespace}/{self.name}"

    @property
    def ref(self) -> Object:
        """The paramRef of a binding."""
        return {**self._asdict(), "parameterNotFoundAction": "Deny"}

    def config_map(self, policy: Policy) -> dict[str, Any]:
        """Make the ConfigMap with the settings of a policy."""
        metadata = {**self._asdict(), "labels": LABELS, "annotations": {MADE_FROM: policy.digest}}
        return {**KIND, "metadata": metadata, "data": data(policy)}


def data(policy: Policy) -> dict[str, str]:
    """Return the ConfigMap's data."""
    rows: dict[str, list[str]] = {}
    for grant in filter(_by_name, policy.grants):
        pools = ",".join(sorted(grant.pools or policy.pool_names))
        accounts = ",".join(sorted(grant.scope.service_accounts)) or "*"
        for namespace in grant.scope.namespaces:
            rows.setdefault(TRUST + namespace, []).append(f"{pools} {accounts}\n")
    most = {MOST + p.name: str(p.max_request) for p in policy.pools if p.max_request and not p.shared}
    return dict(sorted((most | {key: "".join(lines) for key, lines in rows.items()}).items()))


def others(policy: Policy) -> Iterator[Grant]:
    """Yield the grants, or parts of grants, that the ConfigMap cannot express and that stay in the CEL expressions."""
    for grant in policy.grants:
        if not _by_name(grant):
            yield grant
        elif grant.scope.selector is not None:
            yield replace(grant, scope=replace(grant.scope, namespaces=frozenset()))


def _by_name(grant: Grant) -> bool:
    """Whether a grant has no further conditions, so that its namespaces can be listed in a ConfigMap."""
    scope = grant.scope
    plain = Scope(scope.namespaces, scope.selector, scope.service_accounts)
    return bool(scope.namespaces) and _same(scope, plain) and _same(grant, Grant(scope, grant.pools))


def _same(one: Grant | Scope, other: Grant | Scope) -> bool:
    return all(getattr(one, field.name) == getattr(other, field.name) for field in fields(one))


def granted() -> str:
    """Return the CEL expression for the pools that the ConfigMap grants to the pod's account in its namespace."""
    rows = f"params.?data[?{text(TRUST)} + variables.space].orValue('').split('\\n').filter(l, l != '')"
    mine = "r[1].split(',').exists(a, a == '*' || a == variables.account)"
    mine = f"{rows}.map(l, l.split(' ')).filter(r, {mine})"
    return f"{mine}.map(r, r[0]).join(',').split(',').filter(p, p != '')"


def fits() -> str:
    """Return the CEL expression that is true if pool `p`, which is not shared, may give a pod this many GPUs."""
    return f"variables.count <= int(params.?data[?{text(MOST)} + p].orValue('{UNBOUNDED}'))"
