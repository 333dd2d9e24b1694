"""Reports namespaces of a run that get their trust from labels or bindings in the run's own files."""

from collections.abc import Iterable, Iterator

from webhook.facts.rights import RIGHT
from webhook.facts.snapshot import Facts
from webhook.model import Problem
from webhook.policy.model import Policy
from webhook.scan.results import Judged
from webhook.text.words import listed, shown


def brought(policy: Policy, before: Facts, after: Facts, judged: Iterable[Judged]) -> Iterator[Problem]:
    """Yield a warning for each namespace with objects in a run that grants it trust by a Namespace's labels or by RBAC.

    `before` are the facts without those of the run, and `after` all of them. The author of a file can write both; in a
    cluster only administrators of the policy may write these labels, and only those who have a right may bind it.
    """
    first = dict[str, Judged]()
    for each in judged:
        first.setdefault(each.namespace, each)
    for namespace, one in first.items():
        if policy.asks_rbac and (new := after.rights.holders(namespace) - before.rights.holders(namespace)):
            yield Problem(
                one.file,
                one.line,
                f"the same run binds the right to {RIGHT} in namespace {shown(namespace, quotes=False)} to "
                f"{listed([shown(name, quotes=False) for _, name in sorted(new)], 3)}, which grants trust there; an "
                "administrator of the policy has to approve that binding",
            )
        labels, known = after.namespaces.get(namespace), before.namespaces.get(namespace)
        had = () if known is None else policy.grants_reaching(namespace, known)
        if labels is None or set(policy.grants_reaching(namespace, labels)) <= {*had, *_by_name(policy, namespace)}:
            continue
        keys = sorted(key for key in policy.namespace_keys if key in labels and labels[key] != (known or {}).get(key))
        said = listed([shown(f"{key}={labels[key]}", quotes=False) for key in keys], 3)
        yield Problem(
            one.file,
            one.line,
            f"the same run labels namespace {shown(namespace, quotes=False)} with {said}, which grants trust there; "
            "an administrator of the policy has to approve that label",
        )


def _by_name(policy: Policy, namespace: str) -> Iterable[object]:
    """Return the grants that need no label but the one that the API server sets."""
    return policy.grants_reaching(namespace, {"kubernetes.io/metadata.name": namespace})
