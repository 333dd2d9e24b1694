"""Makes the rows of a proof that all formats share, one for each way, and a ProofReport in JSON."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from itertools import groupby
from typing import Any, NamedTuple

from webhook.model import Action
from webhook.policy.model import API_VERSION, Policy
from webhook.proving.evidence import SOFTWARE, SoftwareImage
from webhook.proving.proof import Outcome, ProofRun, Shown
from webhook.proving.sighting import Sighting
from webhook.proving.ways import GPUWay
from webhook.text.words import line, shown

COUNTED = (Outcome.SHUT, Outcome.OPEN, Outcome.UNKNOWN)
"""The outcomes of ways, in the order of their counts."""

UNSHOWN = "unshown-ways"
"""What stands for a rule where no way could be tried, or the honest pod was not admitted."""

PAGES = {
    UNSHOWN: "Ways to a GPU that could not be tried.\n\nThe probes of a pool could not be sent, or its honest pod was "
    "not admitted, so nothing is shown there.\n\nWay out: read the message, and run `slicewarden prove` again."
}
"""The page of it."""

HONEST, ALL = "honest pod", "all ways"
"""The names of the probe that must be admitted, and of the ways where no probe could be sent."""


METHODS = ("dry run", "pods")
"""How the ways were tried: without pods that were started, and with them."""

CONTEXT = ("cluster", "user", "image")
"""What a report says of a run's surroundings, each empty if it is not known."""


class ProofPlace(NamedTuple):
    """A place where ways were tried: a pool, a level of trust, and the namespace, empty if nothing was sent."""

    pool: str
    trust: str
    namespace: str

    @property
    def title(self) -> str:
        """The place in words."""
        return f"pool {self.pool}, {self.trust}" + (f", namespace {self.namespace}" if self.namespace else "")


class ProofRow(NamedTuple):
    """The outcome of a way at a place. Texts of the cluster are one short printable line each."""

    place: ProofPlace
    way: str
    rule: str
    namespace: str
    outcome: Outcome
    by: str
    message: str
    seen: Mapping[str, Any] | None = None
    """What the pod of a run saw; None if none was started."""


def rows(proof: ProofRun) -> Iterator[ProofRow]:
    """Yield the outcome of each probe, and one of `all ways` for each place that could not be tried."""
    for tried in proof.tried:
        target = tried.target
        place = ProofPlace(target.pool.name, target.trust, shown(target.namespace, quotes=False))
        for each in tried.shown:
            name, rule = (HONEST, "") if each.way is None else (each.way.name, each.way.rule)
            where = shown(each.namespace, quotes=False)
            seen = _seen(each.seen) if each.seen else None
            yield ProofRow(place, name, rule, where, each.outcome, each.by, _why(each, proof.policy), seen)
    for lacking in proof.untried:
        place = ProofPlace(lacking.pool.name, lacking.trust, "")
        yield ProofRow(place, ALL, "", "", Outcome.UNKNOWN, "", line(lacking.why))


def _why(each: Shown, policy: Policy) -> str:
    """Return the API server's message, or why a pod was admitted with a way."""
    way, said = each.way, line(each.message)
    if each.outcome is not Outcome.OPEN or way is None:
        return said or ("there was no answer" if each.outcome is Outcome.UNKNOWN else "")
    why = _why_open(way, policy)
    return line(f"{why}; {said}") if said else why


def _why_open(way: GPUWay, policy: Policy) -> str:
    admitted = f"a pod with {way.says} was admitted, "
    if (action := policy.action(way.rule)) is not Action.DENY:
        return f"{admitted}because the action of rule {way.rule} is {action} (`actions`)"
    return (
        f"{admitted}though rule {way.rule} denies it: look for an override or an exemption of the namespace, "
        "and run `slicewarden doctor`"
    )


def counts(found: Iterable[ProofRow]) -> dict[Outcome, int]:
    """Count the rows by their outcomes, without honest pods that were admitted."""
    counted = Counter(row.outcome for row in found)
    return {outcome: counted[outcome] for outcome in COUNTED}


def value(proof: ProofRun) -> dict[str, Any]:
    """Return everything as a JSON object, a ProofReport (docs/schemas/proofreport.json)."""
    found = [*rows(proof)]
    resources = {
        (each.target.pool.name, each.target.trust): shown(each.target.resource, quotes=False) for each in proof.tried
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "ProofReport",
        "policy": {
            "name": line(proof.policy.name),
            "digest": proof.policy.digest,
            "installed": shown(proof.installed, quotes=False),
        },
        "kubernetes": shown(proof.kubernetes, quotes=False),
        "slicewarden": proof.release,
        "at": proof.at.isoformat(timespec="seconds"),
        "method": METHODS[proof.ran],
        **{name: shown(getattr(proof, name), quotes=False) for name in CONTEXT},
        "nodes": [each.value for each in proof.nodes],
        "software": {part: [_image(each) for each in proof.software if each.part == part] for part in SOFTWARE},
        "targets": [
            {**place._asdict(), "resource": resources[place.pool, place.trust], "ways": [*map(_way, group)]}
            for place, group in groupby((row for row in found if row.way != ALL), lambda row: row.place)
        ],
        "untried": [
            {"pool": row.place.pool, "trust": row.place.trust, "why": row.message} for row in found if row.way == ALL
        ],
        "summary": {outcome.value: count for outcome, count in counts(found).items()},
    }


def _image(found: SoftwareImage) -> dict[str, str]:
    return {"image": found.image, "by": found.by}


def software(report: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield the parts of NVIDIA's software in a ProofReport, each with its versions or images; none if not known."""
    drivers = (driver for pool in report["nodes"] for driver in pool["labels"].get("driver", ()))
    yield "driver", sorted({shown(each, quotes=False) for each in drivers})
    for part, words in SOFTWARE.items():
        yield words, [line(each["image"]) for each in report.get("software", {}).get(part, ())]


def _way(row: ProofRow) -> dict[str, Any]:
    return {
        "way": row.way,
        "rule": row.rule,
        "namespace": row.namespace,
        "outcome": row.outcome.value,
        "by": row.by,
        "message": row.message,
        "seen": row.seen,
    }


def _seen(seen: Sighting) -> dict[str, Any]:
    """Write what a pod saw; a look that could not be made has an `error` only."""
    looks = {"files": seen.files, "nvml": seen.nvml, "cuda": seen.cuda}
    found: dict[str, dict[str, Any]] = {
        name: {"error": each} if isinstance(each, str) else asdict(each) for name, each in looks.items()
    }
    if not isinstance(seen.nvml, str):
        found["nvml"]["devices"] = [each._asdict() for each in seen.nvml.devices]
    if seen.memory is not None:
        found["memory"] = seen.memory._asdict()
        found["frameworks"] = {name: each._asdict() for name, each in seen.frameworks.items()}
    return found


def read(report: Mapping[str, Any]) -> Iterator[ProofRow]:
    """Yield the rows of a ProofReport that is as its schema says. Its texts are cleaned again."""
    for target in report["targets"]:
        place = ProofPlace(*(shown(target[key], quotes=False) for key in ProofPlace._fields))
        for each in target["ways"]:
            way, rule, namespace, by = (shown(each[key], quotes=False) for key in ("way", "rule", "namespace", "by"))
            outcome, said = Outcome(each["outcome"]), line(each["message"])
            yield ProofRow(place, way, rule, namespace, outcome, by, said, each["seen"])
    for each in report["untried"]:
        place = ProofPlace(shown(each["pool"], quotes=False), shown(each["trust"], quotes=False), "")
        yield ProofRow(place, ALL, "", "", Outcome.UNKNOWN, "", line(each["why"]))
