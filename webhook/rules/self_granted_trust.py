"""A user who is no administrator writes a label that decides what a namespace may have.

Grants, exemptions, overrides, tenants of pools, and the lists of who may claim devices select namespaces by labels.
A user who writes one of these labels could give a namespace trust, or take it away. So only administrators may create a
namespace with such a label, change the label, or remove it: a selector may also require that a label is absent. The
rule also guards `resource.kubernetes.io/admin-access`, whatever the policy selects by. In a namespace with that label
claims may take devices that others hold, and the API server checks the label, not its author (kubernetes
pkg/registry/resource/utils.go). A controller that makes namespaces with such labels has to be an administrator.

Way out: ask an administrator of the policy to write the label.
"""

from collections.abc import Iterator

from webhook.api.objects import Labelled
from webhook.catalog.gpu_requests import ADMIN_ACCESS
from webhook.cel.clauses import Clause, RequestKind
from webhook.cel.policies import include
from webhook.cel.write import any_of, array
from webhook.model import Finding
from webhook.policy.model import Policy
from webhook.review import Review
from webhook.text.words import shown

SINCE = "0.1"


def check(review: Review[Labelled]) -> Iterator[Finding]:
    """Flag labels that decide what a namespace may have, unless an administrator writes them."""
    item, policy = review.subject, review.policy
    requester = item.requester
    if item.kind != "Namespace" or requester is None or policy.administrators.include(requester):
        return
    before = item.old.labels if item.old else {}
    for key in sorted(policy.namespace_keys):
        if item.labels.get(key) != before.get(key):
            yield Finding(
                ("metadata", "labels", key),
                f"user {shown(requester.username)} may not write this label: {_reason(key, policy)}; leave it as it "
                f"was, or ask an administrator of policy {policy.name}",
            )


def _reason(key: str, policy: Policy) -> str:
    if key == ADMIN_ACCESS:
        return "it lets claims take devices that others hold"
    return f"policy {policy.name} selects namespaces by it"


def fallback(policy: Policy) -> Iterator[Clause]:
    """Exact: the fallback gives the same verdict as the webhook."""
    keys = array(sorted(policy.namespace_keys))
    yield Clause(
        any_of((f"{keys}.all(k, variables.now[?k] == variables.before[?k])", include(policy.administrators))),
        f"only an administrator of policy {policy.name} may write this label, by which it selects namespaces; leave it "
        "as it was, or ask one of them",
        places=f"{keys}.filter(k, variables.now[?k] != variables.before[?k]).join(', ')",
        asked=(RequestKind.NAMESPACES,),
    )
