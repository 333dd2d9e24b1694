"""Reads how a pod itself chooses among the nodes of a pool, and finds the known nodes that match."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import chain
from typing import NamedTuple

from webhook.api.pods import Pod
from webhook.api.quantity import Amount
from webhook.api.selectors import NodeSelectorTerm, Requirement, is_label_value
from webhook.catalog.gpu_requests import IMPLICIT
from webhook.catalog.node_labels import NAMING, model
from webhook.catalog.node_taints import TRANSIENT
from webhook.facts.kinds.node import Node
from webhook.facts.snapshot import Facts
from webhook.policy.model import Pool


class Selection(NamedTuple):
    """A pod's own choice among the nodes of a pool: by labels, and by node selector terms, of which one must match."""

    labels: frozenset[tuple[str, str]] = frozenset()
    terms: frozenset[NodeSelectorTerm] | None = None

    @classmethod
    def of(cls, pod: Pod, pool: Pool) -> "Selection":
        """Read a pod's node selector and required affinity, without the parts that all nodes of the pool satisfy.

        The result is the same before and after steering. For most pods it is empty. It is also empty for a selection
        that is too large to be kept and compared with each node.
        """
        own, common, terms = pod.node_selector.items(), pool.nodes.labels.items(), pod.node_terms or ()
        if pod.node_terms is None and own <= common:
            return ANY
        most = MAX_CHOICES + len(pool.nodes.requirements) * (len(terms) + 1)
        written = len(own) + sum([len(term.expressions or ()) + len(term.fields) for term in terms])
        if len(terms) > MAX_CHOICES or written > most:
            return ANY
        chosen = cls(frozenset(own - common), _terms(pod, pool))
        conditions = chosen.conditions
        texts = [*chain(*chosen.labels), *chain(*((each.key, each.operator, *each.values) for each in conditions))]
        return chosen if len(conditions) <= MAX_CHOICES and sum(map(len, texts)) <= MAX_LETTERS else ANY

    def allows(self, node: Node) -> bool:
        """Return whether the pod may run on a node, judged by the node's labels and name."""
        return self.labelled(node) and (
            self.terms is None or any(t.matches(node.name, node.labels) for t in self.terms)
        )

    def labelled(self, node: Node) -> bool:
        """Return whether a node has the labels of the pod's node selector."""
        return all(node.labels.get(key) == value for key, value in self.labels)

    def costs_too_much(self, nodes: int) -> bool:
        """Return whether comparing the selection with this number of nodes would take too long."""
        return len(self.conditions) * nodes > MAX_CHECKS

    @property
    def conditions(self) -> list[Requirement]:
        """The number of conditions in the terms of the selection."""
        return [each for term in self.terms or () for part in term for each in part]


def _terms(pod: Pod, pool: Pool) -> frozenset[NodeSelectorTerm] | None:
    """Return a pod's node selector terms; None if it has none, and if all nodes of the pool satisfy one."""
    if pod.node_terms is None:
        return None
    own = [_own(term, pool) for term in pod.read_terms]
    return frozenset(own) if all(map(any, own)) else None


def _own(term: NodeSelectorTerm, pool: Pool) -> NodeSelectorTerm:
    return term._replace(labels=tuple(r for r in term.labels if r not in pool.nodes.requirements))


MAX_CHOICES = 100
"""The number of conditions in a pod's node selector terms that are evaluated per node: far more than any pod needs."""

MAX_LETTERS = 10_000
"""The characters of a selection, or of the names of resources, that a cache keeps: 150 labels of nodes have fewer.

An API server calls webhooks before it validates an object, so a label may have any length.
"""

MAX_CHECKS = 100_000
"""The number of conditions times nodes that are evaluated: a tenth of a second."""

ANY = Selection()


def restricted(pod: Pod, pool: Pool) -> bool:
    """Return whether a pod's own node selection allows only nodes of a pool, as it does after steering."""
    selector, terms = pod.node_selector, pod.node_terms
    open_ = [each for each in pool.nodes.requirements if not (each.key in selector and each.matches(selector))]
    if not open_ or terms is None:
        return not open_ and pool.has_nodes
    return all(term.expressions is None or all(each in term.expressions for each in open_) for term in terms)


def excluded(pod: Pod, pool: Pool) -> bool:
    """Return whether a pod's own node selection leaves no node of a pool.

    Only labels whose values the pool lists count. Each is compared with the node selector, or with one term.
    """
    listed = {key: left.listed for key, left in pool.nodes.values.items() if left.listed is not None}
    selector, terms = pod.node_selector, pod.node_terms
    if any(key in selector and selector[key] not in left for key, left in listed.items()):
        return True
    return bool(terms) and all(
        term.expressions is None or any(_rejects(term.expressions, key, left) for key, left in listed.items())
        for term in terms or ()
    )


def _rejects(expressions: Iterable[Requirement], key: str, values: Iterable[str]) -> bool:
    """Return whether a term matches no node that has one of these values of a label."""
    own = [each for each in expressions if each.key == key]
    return all(any(not each.matches({key: value}) for each in own) for value in values)


Nodes = tuple[Node, ...]


class _Known(NamedTuple):
    """The nodes of one snapshot by label and by pool, and whether some of them fit a pod, found once."""

    labelled: Callable[[str], Mapping[str, Sequence[Node]]]
    nodes: Callable[[Pool], Nodes]
    taints: Callable[[Pool], frozenset[str]]
    fitting: Callable[[Pool, Selection, frozenset[tuple[str, Amount]], frozenset[str]], bool]


@lru_cache(maxsize=2)  # an entry keeps its snapshot of ten thousand nodes alive, so all of it goes together
def _known(facts: Facts) -> _Known:
    return _Known(
        lru_cache(maxsize=256)(partial(_labelled, facts)),
        lru_cache(maxsize=1024)(partial(_matching, facts)),
        lru_cache(maxsize=1024)(partial(_more_taints, facts)),
        lru_cache(maxsize=256)(partial(_any_fits, facts)),
    )


def _labelled(facts: Facts, key: str) -> Mapping[str, Sequence[Node]]:
    found: dict[str, list[Node]] = {}
    for node in facts.nodes:
        if key in node.labels:
            found.setdefault(node.labels[key], []).append(node)
    return found


def _matching(facts: Facts, pool: Pool) -> Nodes:
    """Return the nodes of a pool. Only those with one of its labels are looked at: a policy has up to 250 pools."""
    by_label = (_known(facts).labelled(key).get(value, ()) for key, value in pool.nodes.labels.items())
    nodes = min(by_label, key=len, default=facts.nodes)
    return tuple(node for node in nodes if pool.nodes.matches(node.labels))


@lru_cache(maxsize=2)
def _used(facts: Facts) -> Callable[[Pool], int]:
    return lru_cache(maxsize=64)(partial(_taken, facts))


@lru_cache(maxsize=2)
def _in_use(facts: Facts) -> Counter[tuple[str, str]]:
    """Count the GPUs and slices that running pods have, by node and resource."""
    used = Counter[tuple[str, str]]()
    for holder in facts.holders:
        for name, amount in holder.asks.items():
            used[holder.node, name] += amount
    return used


def _taken(facts: Facts, pool: Pool) -> int:
    """Return how many GPUs and slices the known nodes of a pool offer; 0 if one may be free."""
    used, taken = _in_use(facts), 0
    for node in known_nodes(pool, facts):
        for name, offered in node.resources.items():
            if name in pool.resources:
                if used[node.name, name] < offered:
                    return 0
                taken += offered
        if not node.resources:
            return 0
    return taken


def _more_taints(facts: Facts, pool: Pool) -> frozenset[str]:
    """Return the keys of lasting taints that known nodes of a pool have, and that the pool does not tolerate."""
    given = {each["key"] for each in pool.tolerations}
    return frozenset(
        key for node in known_nodes(pool, facts) for key in node.taints if key not in given and key not in TRANSIENT
    )


def _any_fits(
    facts: Facts,
    pool: Pool,
    selection: Selection,
    asked: frozenset[tuple[str, Amount]],
    repelling: frozenset[str],
) -> bool:
    if selection.costs_too_much(len(facts.nodes)):
        return True
    return any(
        repelling.isdisjoint(node.taints) and offers(node, asked) and selection.allows(node)
        for node in known_nodes(pool, facts)
    )


def known_nodes(pool: Pool, facts: Facts) -> Nodes:
    """Return the nodes among the facts that a pool selects."""
    return _known(facts.of_nodes).nodes(pool)


def taken(pool: Pool, facts: Facts) -> str:
    """Return a sentence if running pods use all GPUs or slices on a pool's known nodes; empty if one may be free."""
    count, what = _used(facts)(pool), _UNITS.get(pool.sharing, "slice")
    if count == 1:
        return f"the only {what} of pool {pool.name} is in use now"
    return f"all {count} {what}s of pool {pool.name} are in use now" if count else ""


_UNITS = {"none": "GPU", "mig": "MIG device"}
"""What a pool that does not divide its GPUs in time offers, by the kind of sharing."""


def offers(node: Node, asked: Iterable[tuple[str, Amount]]) -> bool:
    """Return whether a node has the requested GPUs, free or in use.

    A node whose GPUs are unknown counts as having them.
    """
    counted = ((name, much) for name, much in asked if not name.startswith(IMPLICIT))
    return not node.resources or all(node.resources.get(name, 0) >= much for name, much in counted)


def fits(pod: Pod, pool: Pool, facts: Facts, asked: Mapping[str, Amount]) -> bool:
    """Return whether a pool has a known node that the pod selects and tolerates, and that offers the requested GPUs.

    If the pod selects no nodes itself, a taint on such a node is the only obstacle, because then the order of pools in
    the policy decides. A pod whose selection is too costly to evaluate fits too.
    """
    return _fits(pod, pool, facts, asked, repelling(pod, pool, facts, asked))


def repelled(pod: Pod, pool: Pool, facts: Facts, asked: Mapping[str, Amount]) -> tuple[str, ...]:
    """Return the keys of taints, sorted, if only these taints keep a pod off every known node of a pool; else none."""
    keys = repelling(pod, pool, facts, asked)
    alone = keys and not _fits(pod, pool, facts, asked, keys) and _fits(pod, pool, facts, asked, frozenset())
    return tuple(sorted(keys)) if alone else ()


def repelling(pod: Pod, pool: Pool, facts: Facts, asked: Mapping[str, Amount]) -> frozenset[str]:
    """Return the keys of permanent taints on a pool's known nodes that neither the pool nor the pod tolerates.

    A toleration counts whatever its value. The API server may add tolerations of taints that are named after a
    requested resource.
    """
    keys = _known(facts.of_nodes).taints(pool) if pool.has_nodes else frozenset[str]()
    if not keys:  # of nearly every pool
        return keys
    own = pod.tolerated_keys
    return frozenset(key for key in keys if "" not in own and key not in own and key not in asked)


def named_cards(pod: Pod) -> frozenset[str]:
    """Return the models of the cards that a pod's node selection names; none if it allows other cards too.

    A term with several such labels allows the cards that all of them name. A selection with more than MAX_CHOICES terms
    or values is not read.
    """
    if selected := {each for key in NAMING if (each := _model(pod.node_selector.get(key, "")))}:
        return frozenset(selected)
    terms = pod.read_terms if len(pod.node_terms or ()) <= MAX_CHOICES else ()
    listed = [[r.values for r in term.labels if r.operator == "In" and r.key in NAMING] for term in terms]
    if sum(map(len, chain(*listed))) > MAX_CHOICES:
        return frozenset()
    found = [[models for values in each if "" not in (models := {*map(_model, values)})] for each in listed]
    return frozenset().union(*(set.intersection(*models) for models in found)) if all(found) else frozenset()


def _model(value: str) -> str:
    return model(value) if is_label_value(value) else ""


def assumes(pool: Pool, named: frozenset[str], facts: Facts) -> bool | None:
    """Return whether the card in a pool's `assume` is one of the named cards.

    The pool's first nodes will have that card.

    Returns None if the pool already has a known node, if it has no `assume`, or if no card is named.
    """
    assumed = model(pool.assume.product) if pool.assume and named else ""
    return assumed in named if assumed and not known_nodes(pool, facts) else None


def _fits(pod: Pod, pool: Pool, facts: Facts, asked: Mapping[str, Amount], repelling: frozenset[str]) -> bool:
    selection = Selection.of(pod, pool)
    if (selection == ANY and not repelling) or not pool.has_nodes or sum(map(len, asked)) > MAX_LETTERS:
        return True
    return _known(facts.of_nodes).fitting(pool, selection, frozenset(asked.items()), repelling)
