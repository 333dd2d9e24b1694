"""Reads from Prometheus what `top` reads from agents: the last samples of their gauges. Values in, values out.

The gauges of cards and of their use have no label for the node. The job and instance of their target say which belong
together, and the start of the usage record there, which has that label, names the node. An agent without a usage record
is named after its instance.

Whoever makes Prometheus read a pod may have written an answer, so all of it is checked.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from webhook.usage import counted
from webhook.usage.counted import ANCHOR, STEP, ChosenSeries, Sample
from webhook.usage.document import NodeUsage
from webhook.usage.record import HOUR
from webhook.usage.scraped import CARD, USE, CardNow, NodeScrape, UseNow, with_value

TARGET = ("job", "instance")
"""The labels of what Prometheus scrapes."""

_CARD_LABELS = (*TARGET, "gpu", "index", "model")
_USE_LABELS = (*TARGET, "namespace", "pod", "container", "gpu")

AGE = "look_age_seconds"


class NodeGauges(NamedTuple):
    """What Prometheus knows of a node now. `usage` is None if its agent keeps no usage record."""

    node: str
    scrape: NodeScrape
    usage: NodeUsage | None


def queries(chosen: ChosenSeries) -> dict[str, str]:
    """Return the queries for what `top` shows, by name. The age of a look counts until Prometheus' present time.

    `there` is in the names of those for one target, of which another query asks for all targets.
    """
    age = chosen.of(AGE, container=False)
    cards = {
        name: f"max by ({', '.join(_CARD_LABELS)}) (clamp_min({chosen.of(name, container=False)}, 0))" for name in CARD
    }
    uses = {f"{name} there": f"max by ({', '.join(_USE_LABELS)}) ({chosen.of(name)})" for name in (*USE, "reported")}
    total = chosen.of("card_total_bytes", container=False)
    return {
        **counted.present_queries(chosen),
        **cards,
        **uses,
        "state": f"max by ({', '.join((*_USE_LABELS, 'state'))}) ({chosen.of('state')}) > 0",
        "frozen": f"max by ({', '.join(_USE_LABELS[:-1])}) ({chosen.of('frozen')}) > 0",
        "limit_faults": f"max by ({', '.join((*TARGET, 'fault'))}) ({chosen.of('limit_faults', container=False)}) > 0",
        AGE: f"max by ({', '.join(TARGET)}) ({age} + (time() - timestamp({age})))",
        "targets": f"max by ({', '.join((*TARGET, 'node'))}) ({chosen.of(ANCHOR, container=False)})",
        "unread": (
            f"max by ({', '.join(TARGET)}) (last_over_time({age}[{HOUR // 1000}s])) "
            f"unless max by ({', '.join(TARGET)}) ({age})"
        ),
        "doubled": f"count by (gpu) ({total}) > 1 and count by (gpu) ({total} offset {STEP + 1}s) > 1",
        "exported": f"count by (instance) ({chosen.renamed('use_bytes')})",
    }


def nodes(answers: Mapping[str, Sequence[Sample]]) -> tuple[list[NodeGauges], list[str]]:
    """Return each node, and those that Prometheus has read in the last hour and not now. Raises DamagedRecord."""
    for sample in answers["doubled"]:
        raise counted.doubled(f"the GPU {sample.names('gpu')[0]}", sample)
    for sample in answers["exported"]:
        raise counted.renamed(sample.names("instance")[0])
    records, gone = counted.present(answers)
    known = {each.names(*TARGET): each.names("node")[0] for each in answers["targets"]}
    cards: dict[tuple[str, ...], dict[str, CardNow]] = {}
    for name, (field, unit) in CARD.items():
        for sample in answers[name]:
            *target, uuid, number, model = sample.names(*_CARD_LABELS)
            own = cards.setdefault(tuple(target), {})
            own[uuid] = with_value(own.get(uuid, CardNow(uuid, number, model)), field, unit, sample.value)
    uses: dict[tuple[str, ...], dict[tuple[str, ...], UseNow]] = {}

    def use(sample: Sample) -> tuple[dict[tuple[str, ...], UseNow], tuple[str, ...], UseNow]:
        job, instance, namespace, pod, container, card = sample.names(*_USE_LABELS)
        own, key = uses.setdefault((job, instance), {}), (namespace, pod, container, card)
        return own, key, own.get(key, UseNow(*key))

    for name, (field, unit) in USE.items():
        for sample in answers[f"{name} there"]:
            own_uses, key, row = use(sample)
            own_uses[key] = with_value(row, field, unit, sample.value)
    for sample in answers["state"]:
        own_uses, key, row = use(sample)
        own_uses[key] = row._replace(state=sample.names("state")[0])
    for sample in answers["reported there"]:
        own_uses, key, row = use(sample)
        own_uses[key] = row._replace(reported=sample.value > 0)
    frozen = {sample.names(*_USE_LABELS[:-1]) for sample in answers["frozen"]}
    faults: dict[tuple[str, ...], list[tuple[str, int]]] = {}
    for sample in answers["limit_faults"]:
        *target, fault = sample.names(*TARGET, "fault")
        faults.setdefault(tuple(target), []).append((fault, round(sample.value)))
    ages = {sample.names(*TARGET): sample.value for sample in answers[AGE]}
    by_name = {record.node: record for record in records}
    found = [
        NodeGauges(
            known.get(target, target[1]),
            NodeScrape(
                tuple(cards.get(target, {}).values()),
                tuple(
                    each._replace(frozen=(*target, *key[:3]) in frozen) for key, each in uses.get(target, {}).items()
                ),
                ages.get(target),
                tuple(sorted(faults.get(target, ()))),
                target in known,
            ),
            by_name.get(known.get(target, "")),
        )
        for target in sorted({*known, *cards, *uses, *ages})
    ]
    unread = {known.get(each.names(*TARGET), each.names("instance")[0]) for each in answers["unread"]}
    return sorted(found, key=lambda each: each.node), sorted(unread | set(gone))
