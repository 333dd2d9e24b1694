"""Reads from an agent's metrics the present state of its node's cards and containers.

Another program may answer in place of a node's agent, so every answer is checked, and its size is limited.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from webhook.memory.driver.start import StartNeed
from webhook.usage.document import MOST_BYTES, MOST_ROWS
from webhook.usage.store import LONGEST_TEXT, DamagedRecord

MIB = 2**20

_SAMPLE = re.compile(r"slicewarden_node_([a-z_]{1,60})(?:\{(.*)\})? (\S{1,40})")
_LABEL = re.compile(r'([a-z_]{1,20})="((?:[^"\\]|\\.)*)"(?:,|\Z)')
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?")
_ESCAPED = re.compile(r"\\(.)")

Labels = Mapping[str, str]


class CardNow(NamedTuple):
    """A card as its agent saw it last. Memory is in MiB and `busy` in percent; None if NVML could not tell.

    `outside` is the memory in use outside any container. `dead` is whether the card no longer works.
    """

    uuid: str
    number: str = ""
    model: str = ""
    used: int | None = None
    total: int | None = None
    outside: int | None = None
    busy: int | None = None
    dead: bool = False


class UseNow(NamedTuple):
    """A container's present use of a card. `mib`, `cap` (MiB) and `sm` (percent) are None if they are not known.

    `state` compares the use with the container's allowance, in the agent's words. `reported` is whether the agent has
    reported its use, and `frozen` whether the agent has frozen it until its turn.
    """

    namespace: str
    pod: str
    container: str
    card: str
    mib: int | None = None
    cap: int | None = None
    sm: int | None = None
    state: str = ""
    reported: bool = False
    frozen: bool = False


class NodeScrape(NamedTuple):
    """The contents of an agent's metrics. `age` is the seconds since its last look, None before the first.

    `faults` counts the containers whose limit by the driver is wrong, by fault. `counts` is whether the agent keeps a
    usage record. `needs` says which needs of NVIDIA's hook the node meets, if its pool has the hook set limits.
    """

    cards: tuple[CardNow, ...] = ()
    uses: tuple[UseNow, ...] = ()
    age: float | None = None
    faults: tuple[tuple[str, int], ...] = ()
    counts: bool = False
    needs: Mapping[StartNeed, bool] = {}


Row = TypeVar("Row", CardNow, UseNow)


def read(data: bytes) -> NodeScrape:
    """Read an agent's metrics in Prometheus' text format. Raises DamagedRecord if they are none, or too large."""
    if len(data) > MOST_BYTES:
        raise DamagedRecord(f"it has more than {MOST_BYTES // 2**20} MiB")
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError as error:
        raise DamagedRecord("it is no UTF-8") from error
    if not any(line.startswith("# TYPE slicewarden_node_use_bytes") for line in lines):
        raise DamagedRecord("it has no metrics of an agent")
    cards: dict[str, CardNow] = {}
    uses: dict[tuple[str, ...], UseNow] = {}
    frozen: set[tuple[str, ...]] = set()
    faults: dict[str, int] = {}
    needs: dict[StartNeed, bool] = {}
    age, counts = None, False
    for name, labels, value in _samples(lines):
        match name:
            case "card_used_bytes" | "card_total_bytes" | "card_unattributed_bytes" | "card_busy_ratio" | "card_dead":
                uuid = labels.get("gpu", "")
                seen = cards.get(uuid, CardNow(uuid))
                seen = seen._replace(number=labels.get("index", ""), model=labels.get("model", ""))
                cards[uuid] = with_value(seen, *CARD[name], value)
            case "use_bytes" | "allowance_bytes" | "sm_ratio":
                key = _key(labels)
                uses[key] = with_value(uses.get(key, UseNow(*key)), *USE[name], value)
            case "state" if value:
                key = _key(labels)
                uses[key] = uses.get(key, UseNow(*key))._replace(state=labels.get("state", ""))
            case "reported" if value:
                key = _key(labels)
                uses[key] = uses.get(key, UseNow(*key))._replace(reported=True)
            case "frozen" if value:
                frozen.add(_key(labels)[:3])
            case "limit_faults" if value:
                faults[labels.get("fault", "")] = round(value)
            case "limit_needs" if (need := labels.get("need")) in _NEEDS:
                needs[StartNeed(need)] = bool(value)
            case "look_age_seconds" if value < 0:
                raise DamagedRecord("its last look is in the future")
            case "look_age_seconds":
                age = value
            case "usage_unsaved":
                counts = True
        if len(cards) + len(uses) + len(faults) > MOST_ROWS:
            raise DamagedRecord(f"it has more than {MOST_ROWS:,} cards and containers")
    return NodeScrape(
        tuple(cards.values()),
        tuple(each._replace(frozen=key[:3] in frozen) for key, each in uses.items()),
        age,
        tuple(sorted(faults.items())),
        counts,
        needs,
    )


_NEEDS = frozenset(map(str, StartNeed))

CARD = {
    "card_used_bytes": ("used", MIB),
    "card_total_bytes": ("total", MIB),
    "card_unattributed_bytes": ("outside", MIB),
    "card_busy_ratio": ("busy", 0.01),
    "card_dead": ("dead", 1),
}
USE = {"use_bytes": ("mib", MIB), "allowance_bytes": ("cap", MIB), "sm_ratio": ("sm", 0.01)}
"""The fields that hold the metrics, and the unit of each."""


def with_value(row: Row, field: str, unit: float, value: float) -> Row:
    """Return a card or a use with the value of a metric. `field` and `unit` are those of CARD or USE."""
    changed: dict[str, Any] = {field: bool(value) if field == "dead" else max(round(value / unit), 0)}
    return row._replace(**changed)


def _key(labels: Labels) -> tuple[str, str, str, str]:
    return (
        labels.get("namespace", ""),
        labels.get("pod", ""),
        labels.get("container", ""),
        labels.get("gpu", ""),
    )


def _samples(lines: list[str]) -> Iterator[tuple[str, Labels, float]]:
    """Yield the samples of an agent's own metrics. Raises DamagedRecord if one cannot be read."""
    for line in lines:
        if line.startswith("slicewarden_node_"):
            found = _SAMPLE.fullmatch(line)
            if found is None:
                raise DamagedRecord("it has a line that is no sample")
            yield found[1], _labels(found[2] or ""), _value(found[3])


def _labels(text: str) -> Labels:
    labels, at = {}, 0
    while at < len(text):
        found = _LABEL.match(text, at)
        if found is None or len(found[2]) > LONGEST_TEXT:
            raise DamagedRecord("it has labels that cannot be read")
        labels[found[1]] = _ESCAPED.sub(lambda each: "\n" if each[1] == "n" else each[1], found[2])
        at = found.end()
    return labels


def _value(text: str) -> float:
    value = float(text) if _NUMBER.fullmatch(text) else math.nan
    if not abs(value) < 2**62:
        raise DamagedRecord("it has a value that is no number")
    return value
