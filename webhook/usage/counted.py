"""Reads the usage of nodes from the agents' counters in Prometheus: writes queries and reads answers.

A counter that began within the time adds its last value, and any other one adds its last value less the last one before
the time: nothing is extrapolated. Only where a counter began again, or may have begun before Prometheus first read it,
Prometheus' own increase() counts. It estimates up to half a scrape interval at each end.

A user who makes Prometheus scrape a pod may have written an answer, so all of it is checked, and its size is limited.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from webhook.usage.document import ContainerNow, NodeUsage
from webhook.usage.record import HOUR, Amounts, Book, CardAmounts, CardKey, HolderKey
from webhook.usage.scraped import MIB
from webhook.usage.store import DamagedRecord, text

MOST_BYTES = 16 * 2**20
"""Maximum bytes of an answer that is read."""

MOST_SERIES = 50_000
"""Maximum number of series in an answer."""

BEFORE = 900
"""Seconds before the time in which a counter's last value counts as the one at its beginning."""

STEP = 300
"""Seconds for which Prometheus counts a node as read after a sample: its own limit for an instant."""

LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,60}")
"""The name of a label in Prometheus."""

ROUGH = 60_000
"""Milliseconds by which a counter of a card may differ from its others: twice a scrape interval."""

ANCHOR = "usage_start_time_seconds"
"""The metric that each agent with a usage record has, whatever its cards and containers are."""

_VALUE = re.compile(r"[0-9]{1,20}(\.[0-9]{1,400})?(e[+-]?[0-9]{1,2})?")


class Sample(NamedTuple):
    """One series of an answer: its value, neither negative nor infinite, and those of its labels that are read."""

    labels: Mapping[str, str]
    value: float

    def names(self, *labels: str) -> tuple[str, ...]:
        """Return the values of labels; Prometheus leaves out an empty one. Raises DamagedRecord."""
        return names(self.labels, *labels)


class HourlySeries(NamedTuple):
    """One series of an answer: its values by hours from 1970 in UTC, and those of its labels that are read."""

    labels: Mapping[str, str]
    values: Mapping[int, float]


def names(labels: Mapping[str, str], *wanted: str) -> tuple[str, ...]:
    """Return the values of labels; Prometheus leaves out an empty one. Raises DamagedRecord."""
    return tuple(text(labels.get(label, "")) for label in wanted)


def read(data: bytes, less: str) -> list[Sample]:
    """Read the answer to an instant query (prometheus.io/docs, HTTP API). Raises DamagedRecord.

    `less` is how to ask for less.
    """
    return [Sample(_labels(each), _number(each.get("value"))) for each in _series(data, "vector", less)]


def read_hours(data: bytes, hours: range, less: str) -> list[HourlySeries]:
    """Read the answer to a query that was asked for the end of each of these hours. Raises DamagedRecord."""
    return [HourlySeries(_labels(each), _by_hour(each.get("values"), hours)) for each in _series(data, "matrix", less)]


def _series(data: bytes, kind: str, less: str) -> list[dict[Any, Any]]:
    if len(data) > MOST_BYTES:
        raise DamagedRecord(f"it has more than {MOST_BYTES // 2**20} MiB; {less}")
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DamagedRecord("it is no JSON") from error
    found = answer.get("data") if isinstance(answer, dict) and answer.get("status") == "success" else None
    series = found.get("result") if isinstance(found, dict) and found.get("resultType") == kind else None
    if not isinstance(series, list):
        raise DamagedRecord("it is no answer of Prometheus to a query")
    if len(series) > MOST_SERIES:
        raise DamagedRecord(f"it has more than {MOST_SERIES:,} series; {less}")
    if answer.get("warnings"):
        raise DamagedRecord(f"it is incomplete: {' '.join(str(answer['warnings']).split())[:200]}")
    if not all(isinstance(each, dict) for each in series):
        raise DamagedRecord(_NO_SERIES)
    return series


def refusal(data: bytes) -> str:
    """Return the reason that Prometheus gives for an error; empty if it gives none."""
    try:
        answer = json.loads(data[:10_000])
    except (ValueError, RecursionError):
        return ""
    reason = answer.get("error") if isinstance(answer, dict) else None
    return " ".join(reason.split())[:300] if isinstance(reason, str) else ""


_NO_SERIES = "it has a series without labels or a value"


def _labels(series: Mapping[Any, Any]) -> dict[str, str]:
    labels = series.get("metric")
    if not isinstance(labels, dict):
        raise DamagedRecord(_NO_SERIES)
    return {name: labels[name] for name in _LABELS if name in labels}


def _number(value: Any) -> float:
    if not isinstance(value, list) or len(value) != 2 or not isinstance(value[1], str):
        raise DamagedRecord(_NO_SERIES)
    number = float(value[1]) if _VALUE.fullmatch(value[1]) else -1.0
    if not 0 <= number < 2**62:
        raise DamagedRecord("it has a value that is no amount")
    return number


def _by_hour(values: Any, hours: range) -> dict[int, float]:
    if not isinstance(values, list):
        raise DamagedRecord(_NO_SERIES)
    ends: dict[float, int] = {(hour + 1) * HOUR // 1000: hour for hour in hours}
    found: dict[int, float] = {}
    for each in values:
        number = _number(each)
        hour = ends.get(each[0]) if isinstance(each[0], int | float) else None
        if hour is None or hour in found:
            raise DamagedRecord("it has a time that was not asked for")
        found[hour] = number
    return found


@dataclass(frozen=True)
class ChosenSeries:
    """The series to read: those with these labels, such as `job`.

    If `namespace` is not empty, only its series are read. `pods` is whether each container of a pod has a row of its
    own; if not, those of a workload have one together.
    """

    labels: Sequence[tuple[str, str]] = ()
    namespace: str = ""
    pods: bool = False

    @property
    def holder(self) -> Sequence[str]:
        """The labels of a row of containers."""
        return (*_HOLDER, *(_POD if self.pods else ()))

    def of(self, metric: str, *, container: bool = True) -> str:
        """Write the selector of a metric of the agents. A container's metric is limited to the namespace."""
        return self._series(metric, [f"namespace={quoted(self.namespace)}"] if container and self.namespace else [])

    def placed(self, metric: str) -> str:
        """Write the selector of a metric of all containers whose card is known."""
        return self._series(metric, ['gpu!=""'])

    def renamed(self, metric: str) -> str:
        """Write the selector of series whose namespace Prometheus has renamed: their job has no honor_labels."""
        return self._series(metric, ['exported_namespace!=""'])

    def _series(self, metric: str, more: Sequence[str]) -> str:
        labels = [*(f"{name}={quoted(value)}" for name, value in self.labels), *more]
        return f"slicewarden_node_{metric}{{{','.join(labels)}}}"


def quoted(value: str) -> str:
    """Write a string of PromQL. It has JSON's escapes (promql/parser, strutil.Unquote)."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


@dataclass(frozen=True)
class CountedTime:
    """The period to read: from `since` to `at`, in whole seconds from 1970 in UTC."""

    since: int
    at: int

    @property
    def seconds(self) -> int:
        """The length of the period in seconds."""
        return self.at - self.since


def grown(series: str, anchor: str, seconds: int) -> str:
    """Write the query for how much a counter has grown in so many seconds until the time of the query."""
    whole = f"{series}[{seconds}s]"
    last, first = f"last_over_time({whole})", f"last_over_time({series}[{BEFORE}s] offset {seconds}s)"
    began = (
        f"last_over_time({anchor}[{BEFORE}s] offset {seconds}s) or "
        f"last_over_time({anchor}[{seconds}s]) >= time() - {seconds}"
    )
    exact = f"{last} - ({first} or 0 * ({last} and on (instance, job) ({began})))"
    return f"({exact} and resets({series}[{seconds + BEFORE}s]) == 0) or increase({whole})"


CARD = ("node", "gpu", "pool", "product")

_HOLDER = (*CARD, "namespace", "workload")
"""The names of a workload's row."""

_POD = ("pod", "container")
"""The other names of a container's row."""

WORK = ("working", "idle", "unmeasured")
"""The values of the label `work`, and the fields of their times."""

_SUMS = (("slice_seconds", "held"), ("over_seconds", "over"), ("contended_seconds", "contended"))
_MEMORY = (("memory_byte_seconds", "memory"), ("measured_seconds", "measured"))
_TOPS = {"peak_bytes": "peak", "cap_bytes": "cap", "even_bytes": "even"}


def queries(chosen: ChosenSeries, time: CountedTime) -> dict[str, str]:
    """Return the queries for the usage of all nodes, by name. The time of the queries is the end of the period."""
    anchor, whole = chosen.of(ANCHOR, container=False), f"[{time.seconds}s]"

    def total(name: str, by: Sequence[str], *, container: bool = True) -> str:
        series = chosen.of(f"{name}_total", container=container)
        return f"sum by ({', '.join(by)}) ({grown(series, anchor, time.seconds)})"

    found = {
        **{field: total(name, chosen.holder) for name, field in (*_SUMS, *_MEMORY)},
        "work": total("work_seconds", (*chosen.holder, "work")),
        **{
            field: f"max by ({', '.join(chosen.holder)}) (max_over_time({chosen.of(name)}{whole}))"
            for name, field in _TOPS.items()
            if field != "even" or chosen.pods
        },
        "cards": total("card_slice_seconds", (*CARD, "state"), container=False),
        "counted": total("card_counted_seconds", CARD, container=False),
        "twice": _twice(anchor),
        "renamed": f"count by (node) (last_over_time({chosen.renamed('slice_seconds_total')}{whole}))",
        "read": f"count_over_time((max by (node) ({anchor}))[{time.seconds}s:{STEP}s])",
        "doubled": f"count_over_time((count by (node) ({anchor}) > 1)[{time.seconds}s:{STEP}s])",
        "unsaved": f"max by (node) ({chosen.of('usage_unsaved', container=False)}) > 0",
    }
    if chosen.pods:
        looks = f"timestamp({anchor})[{time.seconds}s:{STEP}s]"
        found |= {f"{which} read": f"{which} by (node) ({which}_over_time({looks}))" for which in ("min", "max")}
    return found


def usages(answers: Mapping[str, Sequence[Sample]], chosen: ChosenSeries, time: CountedTime) -> list[NodeUsage]:
    """Return the usage of each node, computed from the answers to `queries`. Raises DamagedRecord.

    Slices count as unseen if the node's counters report them as in use, but by no container that Prometheus knows.
    """
    _refuse(answers)
    holders: dict[str, dict[HolderKey, Amounts]] = {}
    for name in ("held", "over", "contended", "memory", "measured", "work", *_TOPS.values()):
        for sample in answers.get(name, ()):
            node, key = holder_of(sample.labels, chosen)
            rows = holders.setdefault(node, {})
            field = str(sample.labels.get("work")) if name == "work" else name
            if name == "work" and field not in WORK:
                raise DamagedRecord("it has work of an unknown kind")
            rows[key] = rows.get(key, Amounts()).plus(Amounts(**{field: _amount(name, sample.value)}))
    cards: dict[str, dict[CardKey, dict[str, float]]] = {}
    for sample in (*answers["cards"], *answers["counted"]):
        node, *card_names = sample.names(*CARD)
        state = str(sample.labels.get("state", "counted"))
        cards.setdefault(node, {}).setdefault(CardKey(0, *card_names), {})[state] = sample.value * 1000
    coverage, doubled = (
        {sample.names("node")[0]: sample.value * STEP for sample in answers[name]} for name in ("read", "doubled")
    )
    spans = _spans(answers, time) if chosen.pods else {}
    silent = _without_even(answers, chosen) if chosen.pods else frozenset[str]()
    unsaved = {sample.names("node")[0] for sample in answers["unsaved"]}
    found = []
    for node in sorted({*coverage, *cards, *holders}):
        own = holders.get(node, {})
        held = Counter[tuple[str | int, ...]]()
        for key, used in own.items():
            held[key[1:4]] += used.held
        known = {
            card: _card(states, None if chosen.namespace else held[card[1:]], time)
            for card, states in cards.get(node, {}).items()
        }
        trouble = [
            *_gaps(coverage.get(node, 0.0), spans.get(node, time.seconds)),
            *_doubled(doubled.get(node, 0.0), time),
            *(["its agent cannot save its record"] * (node in unsaved)),
            *(["its agent has no slicewarden_node_even_bytes: it is of an older release"] * (node in silent)),
        ]
        book = Book(known, {key: each for key, each in own.items() if each.held + sum(each[1:4])})
        found.append(NodeUsage(node, time.since * 1000, time.at * 1000, book, trouble="; ".join(trouble)))
    return found


def holder_of(labels: Mapping[str, str], chosen: ChosenSeries) -> tuple[str, HolderKey]:
    """Return the node and the key of a row of containers. Raises DamagedRecord."""
    node, *own = names(labels, *chosen.holder)
    return node, HolderKey._make((0, *own, *(() if chosen.pods else ("", ""))))


def _spans(answers: Mapping[str, Sequence[Sample]], time: CountedTime) -> dict[str, float]:
    """Return for how many seconds each node was there: from its first sample in the time to the last one."""
    first, last = ({each.names("node")[0]: each.value for each in answers[f"{name} read"]} for name in ("min", "max"))
    ends = {node: (max(begin, time.since), min(last.get(node, time.at), time.at)) for node, begin in first.items()}
    return {node: max(end - begin, 0.0) for node, (begin, end) in ends.items()}


def _without_even(answers: Mapping[str, Sequence[Sample]], chosen: ChosenSeries) -> frozenset[str]:
    """Return the nodes whose agents do not say what equal processes would use."""
    known = {each.names(*chosen.holder) for each in answers["even"]}
    return frozenset(each.names("node")[0] for each in answers["peak"] if each.names(*chosen.holder) not in known)


def _twice(anchor: str) -> str:
    """Write the query for nodes with several agents, also STEP ago: one that was replaced is read for so long."""
    return f"count by (node) ({anchor}) > 1 and count by (node) ({anchor} offset {STEP + 1}s) > 1"


def _refuse(answers: Mapping[str, Sequence[Sample]]) -> None:
    """Refuse series that would count twice, or for another namespace. Raises DamagedRecord."""
    for sample in answers["twice"]:
        raise doubled(f"the node {sample.names('node')[0]}", sample)
    for sample in answers["renamed"]:
        raise renamed(f"the node {sample.names('node')[0]}")


def doubled(thing: str, sample: Sample) -> DamagedRecord:
    """Make the error for a thing that has several series; the sample has their number."""
    return DamagedRecord(
        f"it has {thing} {round(sample.value)} times; choose one of its series, as with --match job=NAME"
    )


def renamed(place: str) -> DamagedRecord:
    """Make the error for a node, or an instance, whose job has renamed the labels of the agent."""
    return DamagedRecord(
        f"it has containers of {place} as exported_namespace; the job that scrapes the agents needs honor_labels "
        "(honorLabels), and --match job=NAME chooses another one"
    )


def _amount(name: str, value: float) -> int:
    """Return a counter in the unit of its field: milliseconds, MiB, or MiB times milliseconds."""
    top = name in _TOPS.values()
    return round(value * (1 if top else 1000) / (MIB if top or name == "memory" else 1))


def _card(states: Mapping[str, float], held: int | None, time: CountedTime) -> CardAmounts:
    """Return the amounts of a card, as `card_amounts` does. Raises DamagedRecord if they are far above the time."""
    whole = time.seconds * 1000
    found = card_amounts(states, held, whole)
    if found.counted > 1.01 * whole + 2 * STEP * 1000:
        raise DamagedRecord(
            f"it has a card for {found.counted / HOUR:.1f} of {whole / HOUR:.1f} h; did two jobs scrape the agents? "
            "Choose one, as with --match job=NAME"
        )
    return found


def card_amounts(states: Mapping[str, float], held: int | None, whole: int) -> CardAmounts:
    """Return the amounts of a card in `whole` milliseconds. If `held` is known, no more than that is held.

    An agent that starts adds all of the gap before it as unseen. What is more than the time was before it.
    """
    counted = round(states.get("counted", 0.0))
    mine, free, unseen = (states.get(state, 0.0) for state in ("held", "free", "unseen"))
    slices = (mine + free + unseen) / counted if counted else 0.0
    early = min(max(counted - whole, 0.0), unseen / slices if slices else 0.0)
    parts = round(mine), round(free), max(round(unseen - early * slices), 0)
    return _whole_slices(round(counted - early), *parts, held)


def _whole_slices(counted: int, mine: int, free: int, unseen: int, held: int | None) -> CardAmounts:
    """Return the amounts of a card, with a whole number of slices if they had one but for ROUGH.

    The counters of a card are rounded and, where an agent began again, estimated each on its own.
    """
    capacity = mine + free + unseen
    slices = round(capacity / counted) if counted else 0
    if slices and abs(capacity - slices * counted) <= slices * ROUGH:
        mine, free, unseen = (each // slices * slices for each in (mine, free, unseen))
        capacity = mine + free + unseen
        counted = capacity // slices
    lost = 0 if held is None else max(mine - held, 0)
    return CardAmounts(counted, capacity, mine - lost, free, unseen + lost)


def _gaps(covered: float, seconds: float) -> Iterator[str]:
    if covered < 0.99 * seconds - 2 * STEP:
        yield (
            f"Prometheus has read its agent for {covered / 3600:.1f} of {seconds / 3600:.1f} h; "
            "containers that began and ended in between are not seen"
        )


def _doubled(seconds: float, time: CountedTime) -> Iterator[str]:
    if seconds > 0.01 * time.seconds + 2 * STEP:
        yield (
            f"Prometheus has read it twice for {seconds / 3600:.1f} of {time.seconds / 3600:.1f} h, which may count "
            "twice; choose one of its series, as with --match job=NAME"
        )


# What containers do now


NOW = ("node", "gpu", "pool", "namespace", "workload", "pod", "container", "shared")

_LABELS = frozenset((*_HOLDER, *NOW, "work", "state", "job", "instance", "index", "model", "fault"))


def present_queries(chosen: ChosenSeries) -> dict[str, str]:
    """Return the queries for what containers do now, by name."""
    anchor = chosen.of(ANCHOR, container=False)
    grouped = f"max by ({', '.join(NOW)})"
    return {
        **{name: f"{grouped} ({chosen.of(name)})" for name in ("slices", "held_seconds", "idle_seconds")},
        "use_bytes": f"sum by (namespace, pod, container) ({chosen.of('use_bytes')})",
        "here": f"max by (node) (timestamp({anchor}))",
        "gone": f"max by (node) (last_over_time({anchor}[{HOUR // 1000}s])) unless max by (node) ({anchor})",
        "twice": _twice(anchor),
        "renamed": f"count by (node) ({chosen.renamed('slices')})",
    }


def present(answers: Mapping[str, Sequence[Sample]]) -> tuple[list[NodeUsage], list[str]]:
    """Return the containers of each node, and the nodes that had an agent in the last hour. Raises DamagedRecord."""
    _refuse(answers)
    held, idle = ({each.names(*NOW): each.value for each in answers[f"{name}_seconds"]} for name in ("held", "idle"))
    used = {each.names("namespace", "pod", "container"): each.value for each in answers["use_bytes"]}
    rows: dict[str, list[ContainerNow]] = {}
    for sample in answers["slices"]:
        key = node, card, pool, namespace, workload, pod, container, shared = sample.names(*NOW)
        if key not in held or key not in idle:
            continue
        rows.setdefault(node, []).append(
            ContainerNow(
                namespace,
                workload,
                pod,
                container,
                card,
                pool,
                round(sample.value),
                round(held[key] * 1000),
                round(idle[key] * 1000),
                round(used.get((namespace, pod, container), 0.0) / MIB),
                0,
                shared == "yes",
            )
        )
    here = {each.names("node")[0]: round(each.value * 1000) for each in answers["here"]}
    found = [NodeUsage(node, at, at, now=tuple(rows.get(node, ()))) for node, at in sorted(here.items())]
    return found, sorted(each.names("node")[0] for each in answers["gone"])
