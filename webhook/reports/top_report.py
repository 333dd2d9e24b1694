"""Writes the report of `slicewarden top`: what each container does on each shared card now, grouped by card."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from webhook.policy.model import API_VERSION
from webhook.reports.usage_report import MOST_NAMED, UnseenNode, duration
from webhook.text import tables
from webhook.text.words import listed, one_line, several
from webhook.usage.document import ContainerNow, NodeUsage
from webhook.usage.scraped import CardNow, NodeScrape, UseNow

OLD = 10.0
"""Seconds since an agent's last look from which on a note says how old its numbers are."""

LONGEST_NAME = 40
"""Maximum characters of a name in the table."""

NO_PROCESS = "no process"
"""The state of a container that holds slices, and has no process on a card."""

NOT_REQUESTED = "not requested"
"""The agent's word for a container that requests no GPU (webhook/agent/observe/view.py)."""


class NodeNow(NamedTuple):
    """The known state of a node: its agent's metrics, and its usage record if the agent keeps one and has answered.

    If there is a record that is not known, `silent` is the reason.
    """

    node: str
    scrape: NodeScrape | None = None
    usage: NodeUsage | None = None
    silent: str = ""


class TopRow(NamedTuple):
    """A container on a card. `record` is what the node's usage record says of it, None if that is not known."""

    use: UseNow
    record: ContainerNow | None = None

    @property
    def over(self) -> int | None:
        """The MiB by which the container's memory exceeds its cap; negative if it is below."""
        return None if self.use.mib is None or self.use.cap is None else self.use.mib - self.use.cap

    @property
    def slices(self) -> int | None:
        """The number of slices that it has of this card. A record names only one card; for any other it is unknown."""
        return self.record.slices if self.record and self.record.card == self.use.card else None

    @property
    def idle(self) -> int | None:
        """Milliseconds without work. A container that works now has none, whatever its record said before."""
        return 0 if self.use.sm else self.record.idle if self.record else None


class TopCard(NamedTuple):
    """A card of a node with its containers. Its UUID is empty for those of which the card is not known."""

    node: str
    card: CardNow
    rows: tuple[TopRow, ...]


def _name(row: TopRow) -> tuple[Any, ...]:
    return row.use[:4]


def _most(value: int | None) -> float:
    return float("inf") if value is None else -value


SORTS: Mapping[str, Any] = {
    "name": _name,
    "used": lambda row: _most(row.use.mib),
    "work": lambda row: _most(row.use.sm),
    "idle": lambda row: _most(row.idle),
    "over": lambda row: _most(row.over),
}
"""The order of rows, by the words of `--sort`: the largest first, and unknown values last."""


def cards(nodes: Iterable[NodeNow], sort: str = "name", namespace: str = "") -> list[TopCard]:
    """Return the cards with their containers. With a `namespace`, only its containers, and only cards that have some.

    By name, cards are in the order of nodes and numbers. Else they are in the order of their first containers, and
    those without containers come last.
    """
    found = [each for node in nodes for each in _cards(node, namespace)]
    ordered = [
        each._replace(rows=tuple(sorted(each.rows, key=lambda row: (SORTS[sort](row), _name(row))))) for each in found
    ]
    shown = [each for each in ordered if each.rows or not namespace]
    if sort == "name":
        return sorted(shown, key=_place)
    return sorted(shown, key=lambda each: (not each.rows, SORTS[sort](each.rows[0]) if each.rows else 0, _place(each)))


def _place(card: TopCard) -> tuple[Any, ...]:
    number = card.card.number
    digits = number.isascii() and number.isdigit() and len(number) < 6
    return card.node, not card.card.uuid, int(number) if digits else 10**6, number, card.card.uuid


def _cards(node: NodeNow, namespace: str) -> Iterator[TopCard]:
    """Yield the cards of a node: those of its agent's metrics, and those that only its usage record names."""
    scrape = node.scrape or NodeScrape()
    records = {each[0:1] + each[2:4]: each for each in (node.usage.now if node.usage else ())}
    rows: dict[str, list[TopRow]] = {card.uuid: [] for card in scrape.cards}
    for use in scrape.uses:
        rows.setdefault(use.card, []).append(TopRow(use, records.get(use[:3])))
    present = {use[:3] for use in scrape.uses}
    for names, record in records.items():
        if names not in present:
            state = NO_PROCESS if node.scrape else ""
            mib = None if node.scrape else record.mib
            use = UseNow(*names, record.card, mib, record.cap or None, state=state)
            rows.setdefault(record.card, []).append(TopRow(use, record))
    known = {card.uuid: card for card in scrape.cards}
    for uuid, own in rows.items():
        chosen = [row for row in own if namespace in ("", row.use.namespace)]
        yield TopCard(node.node, known.get(uuid, CardNow(uuid)), tuple(chosen))


def notes(nodes: Sequence[NodeNow]) -> Iterator[str]:
    """Yield a line for each part that is missing or wrong on a node. Nothing is estimated."""
    without = []
    for node in nodes:
        scrape = node.scrape
        if scrape is None:
            yield f"note: {node.node}: without its agent's metrics, the use of its cards is not known"
        elif scrape.age is None:
            yield f"note: {node.node}: its agent sees no GPU: it has not looked yet, or NVML fails"
        elif scrape.age >= OLD:
            yield f"note: {node.node}: its agent looked at the cards {scrape.age:.0f} s before"
        if scrape is not None and scrape.faults:
            wrong = listed([f"{fault} ({count})" for fault, count in scrape.faults], MOST_NAMED)
            yield f"note: {node.node}: the driver's limit of containers is wrong: {wrong}; see slicewarden agent --once"
        if node.silent:
            yield f"note: {node.node}: its usage record is not known: {node.silent}"
        if node.usage is None and not node.silent:
            without.append(node.node)
    if without:
        yield (
            f"note: {listed(without, MOST_NAMED)}: without a usage record (slicewarden agent --usage), containers that "
            f"have no process on a GPU are not shown"
        )


HEAD = ("namespace", "pod", "container", "slices", "MiB", "cap MiB", "SM %", "held", "idle", "state")


def table(found: Sequence[TopCard]) -> str:
    """Write a line for each card, and its containers below it, for people."""
    if not found:
        return "no card and no container is known\n"
    body = [
        [f"  {cell}" if not number else cell for number, cell in enumerate(row_cells(row))]
        for each in found
        for row in each.rows
    ]
    head, *lines = tables.columns([(f"  {HEAD[0]}", *HEAD[1:]), *body], right=range(3, 9))
    rows = iter(lines)
    written = [head]
    for each in found:
        (card,) = tables.columns([(_card(each),)])
        written += [card, *(next(rows) for _ in each.rows)]
    return "\n".join(written) + "\n"


def _card(each: TopCard) -> str:
    card = each.card
    if not card.uuid:
        return f"{each.node}: GPU not known yet"
    names = " ".join(filter(None, (card.number, card.model, card.uuid)))
    memory = "memory unknown" if card.used is None else f"{card.used} of {_number(card.total)} MiB in use"
    outside = "" if card.outside is None else f", {card.outside} outside any container"
    busy = "" if card.busy is None else f", busy {card.busy} %"
    dead = ", dead" if card.dead else ""
    count = several(len(each.rows), "container")
    return f"{each.node} GPU {names}: {memory}{outside}{busy}{dead}, {count}"


def row_cells(row: TopRow) -> Iterator[str]:
    """Yield the cells of a container, as people read them. HEAD has the names of the columns."""
    use, record = row.use, row.record
    yield from map(_short, use[:3])
    yield _number(row.slices)
    yield from map(_number, (use.mib, use.cap, use.sm))
    yield duration(record.held) if record else "-"
    yield "-" if row.idle is None else duration(row.idle) if row.idle else "0"
    yield (
        ", ".join([*filter(None, [use.state]), *(word for word in ("reported", "frozen") if getattr(use, word))]) or "-"
    )


def _short(name: str) -> str:
    """Return a name, or its beginning and its end: a tenant's longest one would move the numbers off the screen."""
    name = one_line(name)
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 20]}...{name[-17:]}"


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def write(found: Sequence[TopCard], more: Iterable[str], unseen: Sequence[UnseenNode]) -> str:
    """Write a TopReport as JSON. `seenSeconds` are since the agent has seen that the container holds its slices."""
    value = {
        "apiVersion": API_VERSION,
        "kind": "TopReport",
        "cards": [_value(each) for each in found],
        "notes": [note.removeprefix("note: ") for note in more],
        "unseenNodes": [each._asdict() for each in unseen],
    }
    return json.dumps(value, indent=2) + "\n"


def _value(each: TopCard) -> dict[str, Any]:
    card = each.card
    return {
        "node": each.node,
        "number": card.number,
        "name": card.model,
        "uuid": card.uuid,
        "usedMiB": card.used,
        "totalMiB": card.total,
        "noContainerMiB": card.outside,
        "busyPercent": card.busy,
        "dead": card.dead,
        "containers": [_container(row) for row in each.rows],
    }


def _container(row: TopRow) -> dict[str, Any]:
    use, record = row.use, row.record
    return {
        "namespace": use.namespace,
        "pod": use.pod,
        "container": use.container,
        "workload": record.workload if record else None,
        "slices": row.slices,
        "usedMiB": use.mib,
        "allowanceMiB": use.cap,
        "smPercent": use.sm,
        "state": use.state or None,
        "reported": use.reported,
        "frozen": use.frozen,
        "seenSeconds": record.held // 1000 if record else None,
        "idleSeconds": None if row.idle is None else row.idle // 1000,
    }
