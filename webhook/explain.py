"""Says how a cap comes about: for a cluster, for one object, and for frameworks in general."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from webhook.budget import Budget, Refused, Selection, budget, nodes, smallest, wish
from webhook.facts import Facts
from webhook.frameworks import (
    CAPPED_SINCE,
    DEFEATING_BACKEND,
    DEFEATS,
    ELSEWHERE,
    OLDER_SETTINGS,
    PROGRAMS,
    SETTING_SINCE,
    TABLE,
    Effect,
)
from webhook.model import Request
from webhook.placement import Placement, place
from webhook.policy import Policy, Pool
from webhook.targets import Pod, subjects

HEAD = ("pool", "card", "nodes", "memory", "replicas", "reserve", "context", "cap", "fraction")


def caps(policy: Policy, facts: Facts, pools: Iterable[Pool]) -> str:
    """Write the budget of every card in some pools, in MiB, and mark the one that all pods of a pool are held to."""
    rows = [HEAD, *(row for pool in pools for row in _rows(pool, policy, facts))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    lines = []
    for row in rows:
        words = [
            word.ljust(width) if column < 2 else word.rjust(width)
            for column, (word, width) in enumerate(zip(row, widths, strict=False))
        ]
        lines.append("  ".join(words).rstrip())
    return "\n".join(lines) + "\n"


def _rows(pool: Pool, policy: Policy, facts: Facts) -> Iterator[tuple[str, ...]]:
    if pool.sharing not in policy.capped_sharing:
        yield (pool.name, f"no caps: {pool.sharing}", *("",) * 7)
        return
    known = nodes(pool, facts)
    cards = {node.name: card for node, card in known}
    found = sorted({card for card in cards.values() if card}, key=lambda c: (c.product, c.memory, c.replicas))
    least = smallest(pool, policy, facts)
    if least is None:
        yield (pool.name, "no card is known, and the policy assumes none", *("",) * 7)
        return
    for card in found or [least.card]:
        each = budget(card, policy)
        count = sum(other == card for other in cards.values())
        mark = "*" if each.permille == least.permille and len(found) > 1 else ""
        yield (
            pool.name,
            card.product or "unnamed",
            str(count) if found else "assumed",
            *map(str, (card.memory, card.replicas, each.reserve, each.context, each.budget)),
            f"{each.fraction}{mark}" if not least.unified else "none: the host's memory",
        )
    if blind := [name for name, card in cards.items() if card is None]:
        yield (pool.name, f"no usable labels: {_some(blind)}", str(len(blind)), *("",) * 6)


@dataclass(frozen=True, slots=True)
class Landing:
    """Where a pod belongs, the nodes it may land on there, and the cap that follows; `why` says what is missing."""

    pool: str
    nodes: tuple[str, ...] = ()
    cap: Budget | None = None
    why: str = ""

    @property
    def text(self) -> str:
        """In one line, for people."""
        where = f"pool {self.pool or 'none'}"
        if self.nodes:
            where += f", {_some(self.nodes)}"
        return f"{where}: {self.cap.arithmetic if self.cap else self.why}"

    @property
    def value(self) -> dict[str, Any]:
        """For programs; memory in MiB."""
        value: dict[str, Any] = {"pool": self.pool or None, "nodes": list(self.nodes)}
        if self.cap is None:
            return {**value, "why": self.why}
        card = self.cap.card
        return {
            **value,
            "budget": {
                "product": card.product,
                "memory": card.memory,
                "replicas": card.replicas,
                "processes": self.cap.wish.processes,
                "reserve": self.cap.reserve,
                "context": self.cap.context,
                "cap": self.cap.mib,
                "fraction": None if self.cap.unified else self.cap.fraction,
            },
        }


def landings(request: Request, policy: Policy, facts: Facts) -> Iterator[Landing]:
    """Say of the pod of a request, or of those of each of its templates, where it lands if it asks for a GPU.

    Raises Malformed where the object's shape is another.
    """
    for pod in subjects(request, request.object or {}, workloads=policy.workloads):
        if isinstance(pod, Pod) and (placement := place(pod, policy, facts)) is not None:
            yield _landing(pod, placement, policy, facts)


def _landing(pod: Pod, placement: Placement, policy: Policy, facts: Facts) -> Landing:
    pool = placement.pool
    if pool is None:
        return Landing("", why="no pool takes it")
    selection = Selection.of(pod, pool)
    names = tuple(node.name for node, _ in nodes(pool, facts, selection))
    if pool.sharing not in policy.capped_sharing:
        return Landing(pool.name, names, why=f"no caps: {pool.sharing}")
    try:
        wished = wish(pod.annotations)
    except Refused as error:
        return Landing(pool.name, names, why=f"{error.annotation}: {error.message}")
    cap = smallest(pool, policy, facts, wished, selection)
    return Landing(pool.name, names, cap, "" if cap else "no card is known, and the policy assumes none")


def _some(names: Iterable[str]) -> str:
    first = list(names)
    return ", ".join(first[:4]) + (f" and {len(first) - 4} more" if len(first) > 4 else "")


def frameworks() -> str:
    """Write the page on frameworks, in Markdown."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    yield "# What frameworks know of memory caps"
    yield ""
    yield "Written by `slicewarden explain frameworks` from the tables in `webhook/frameworks.py`."
    yield "What a cap does not reach is in [memory-caps.md](memory-caps.md)."
    yield ""
    yield "## Variables"
    for variable in TABLE:
        yield ""
        yield f"### `{variable.name}`"
        yield ""
        yield from _table(
            ("", ""),
            (
                ("framework", f"`{variable.framework}`"),
                ("value", f"`{variable.text}`" if variable.text else variable.form.value),
                ("effect", variable.effect.value),
                ("since", variable.since),
                ("a bad value", variable.bad),
                ("merging", variable.merge),
                ("written where absent", "yes" if variable.written else "no"),
                ("source", variable.source),
            ),
        )
    yield ""
    yield "## What takes a cap away"
    yield ""
    yield "Told of, or refused with `memory.defeats: Deny`."
    yield ""
    yield from _table(
        ("framework", "variable", "values", "what it does"),
        [
            (
                f"`{defeat.framework}`",
                f"`{defeat.name}`",
                ("all but " if defeat.unless and defeat.values else "any" if defeat.unless else "")
                + ", ".join(f"`{value}`" if value else "nothing" for value in sorted(defeat.values)),
                defeat.what,
            )
            for defeat in DEFEATS
        ],
    )
    yield f"| `pytorch` | any of its own | `backend:{DEFEATING_BACKEND}` | takes the fraction and does not keep it |"
    yield ""
    yield "## Settings that prove their PyTorch"
    yield ""
    since = ".".join(map(str, CAPPED_SINCE))
    yield f"No release before {since} takes these in `PYTORCH_CUDA_ALLOC_CONF`; the cap joins them there."
    yield ""
    yield from _settings(SETTING_SINCE)
    yield ""
    yield "## Settings for an older PyTorch"
    yield ""
    yield f"Effect: {Effect.FRAGMENTATION}. Written into `PYTORCH_CUDA_ALLOC_CONF` where the policy chooses them"
    yield f"(`memory.torch.older`) and torch is known to be older than {since}."
    yield ""
    yield from _settings(OLDER_SETTINGS)
    yield ""
    yield "## Programs that only an argument limits"
    yield ""
    yield "Told of, or given the argument with `memory.arguments: Append` where a container clearly starts them."
    yield ""
    yield from _table(
        ("program", "argument", "source"),
        [
            (program.name, f"`{program.flag}`" if program.flag else f"none: {program.advice}", program.source)
            for program in PROGRAMS
        ],
    )
    yield ""
    yield "## Without any"
    yield ""
    yield from _table(("framework", "where its limit is set", "source"), ELSEWHERE)


def _settings(since: Mapping[str, tuple[int, int]]) -> Iterator[str]:
    rows = [(f"`{key}`", ".".join(map(str, release))) for key, release in since.items()]
    yield from _table(("setting", "since torch"), rows)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"| {' | '.join('---' for _ in head)} |"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
