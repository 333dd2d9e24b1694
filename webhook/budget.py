"""How much of a shared card one process may have."""

from dataclasses import dataclass, replace
from functools import lru_cache

from webhook.facts import Facts, Node
from webhook.frameworks import FRACTION_KEY, TABLE, Form, Variable
from webhook.policy import Card, Policy, Pool
from webhook.selectors import integer

PRODUCT, MEMORY, REPLICAS = CARD_LABELS = ("nvidia.com/gpu.product", "nvidia.com/gpu.memory", "nvidia.com/gpu.replicas")
"""The labels of nodes that say what a card is."""

MIN_BUDGET = 512
"""MiB below which no framework does useful work, so that a cap would only move the failure."""


@dataclass(frozen=True, slots=True)
class Budget:
    """A cap and how it came about. All memory in MiB.

    `reserve` is kept back for driver and fragmentation, `context` is what a process takes beside its
    allocator, `budget` is what the allocator may have, and `permille` the same as thousandths of the card.
    `least` is what that fraction makes on the smallest card of the pool.
    """

    card: Card
    reserve: int
    context: int
    budget: int
    permille: int
    least: int

    @property
    def enough(self) -> bool:
        """Whether a framework can do anything within it."""
        return self.least >= MIN_BUDGET

    @property
    def fraction(self) -> str:
        """The cap as every framework's parser takes it: `0.ddd`."""
        return f"0.{self.permille:03d}"

    @property
    def arithmetic(self) -> str:
        """The sum in words."""
        return (
            f"({self.card.memory} MiB - {self.reserve} reserve) / {self.card.replicas} replicas"
            f" - {self.context} context = {self.budget} MiB, {self.fraction} of the card, "
            f"or {self.least} MiB of the pool's smallest; {MIN_BUDGET} MiB are needed"
        )


def budget(card: Card, policy: Policy) -> Budget:
    """Divide a card. Always rounds down, so that all slices together fit."""
    reserve = max(256, -(-card.memory // 50))
    known = [product for product in policy.context_mib if card.product.startswith(product)]
    context = policy.context_mib[max(known, key=len, default="default")]
    share = (card.memory - reserve) // card.replicas - context
    permille = max(0, 1000 * share // card.memory)
    return Budget(card, reserve, context, share, permille, least=share)


@lru_cache(maxsize=64)
def smallest(pool: Pool, policy: Policy, facts: Facts) -> Budget | None:
    """The least that a process may have on any card of a pool, by fraction; None when no card is known.

    The cards are those of the pool's nodes; the one the policy assumes stands in while there are none.
    """
    cards = {card for node in facts.nodes if pool.nodes.matches(node.labels) and (card := _card(node))}
    if not cards and pool.assume:
        cards = {pool.assume}
    tightest = min((budget(card, policy) for card in cards), key=lambda b: b.permille, default=None)
    if tightest is None or len(cards) == 1:
        return tightest
    return replace(tightest, least=min(tightest.permille * card.memory // 1000 for card in cards))


def _card(node: Node) -> Card | None:
    """Read a node's card off the labels of GPU Feature Discovery (k8s-device-plugin internal/lm/resource.go).

    `gpu.memory` is MiB of the whole card, `gpu.replicas` slices per card. A shared node says more than one:
    with fewer, its labels lag behind its configuration and are no ground for a cap.
    """
    memory, replicas = (integer(node.labels.get(label, "")) for label in (MEMORY, REPLICAS))
    if memory is None or replicas is None or memory <= 0 or replicas < 2:
        return None
    return Card(node.labels.get(PRODUCT, ""), memory, replicas)


@lru_cache(maxsize=64)
def variables(policy: Policy, cap: Budget) -> tuple[tuple[Variable, str], ...]:
    """Return the variables of the policy's frameworks with the values that cap a process."""
    return tuple((variable, _value(variable, cap)) for variable in TABLE if variable.framework in policy.frameworks)


def _value(variable: Variable, cap: Budget) -> str:
    match variable.form:
        case Form.FRACTION:
            return cap.fraction
        case Form.SETTINGS:
            return f"{FRACTION_KEY}:{cap.fraction}"
        case Form.TEXT:
            return variable.text
