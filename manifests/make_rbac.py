"""Writes the RBAC rights with which webhook, audit, proof and controller read a cluster. `make chart` runs it.

They are the rights to the kinds of facts (`webhook/facts/kinds`), and to the other objects that each program reads.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from webhook.api.devices import DEVICES
from webhook.cli.inputs import load_sample
from webhook.cluster.registered import POLICIES
from webhook.doctor.installation import REVIEWS, VERBS
from webhook.facts import kinds
from webhook.facts.kind import Reach

HERE = Path(__file__).resolve().parent
WEBHOOK, AUDIT = HERE / "base" / "rbac.yaml", HERE / "components" / "audit" / "rbac.yaml"
PROVE = HERE / "components" / "prove" / "rbac.yaml"
PREVIEW = HERE / "controller" / "preview.yaml"
WIDTH = 120
NOTE = "rules:  # written by `make chart`\n"


class Right(NamedTuple):
    """A right to read a resource, and the reason why it is needed under some policies; empty if under all."""

    group: str
    plural: str
    why: str = ""


def _facts(*reaches: Reach) -> Iterator[Right]:
    """Yield the rights to read the kinds of facts with one of these reaches."""
    for kind in kinds.walk():
        if kind.reach in reaches:
            why = "" if kind.needed is kinds.always else (kind.needed.__doc__ or "").partition("\n")[0]
            yield from (Right(each.group, each.plural, why) for each in kind.resources)


def files() -> Iterator[tuple[Path, str]]:
    """Make the files with the rights, by their paths. Raises ValueError if a role is missing."""
    asked = Right(REVIEWS.group, REVIEWS.plural, "For grants with `rbac`; without one nothing is asked.")
    everywhere = _rules(_facts(Reach.EVERYWHERE), VERBS) + _rules([asked], ("create",))
    within = _rules(_facts(Reach.WITHIN), VERBS)
    yield WEBHOOK, _written(WEBHOOK, {"slicewarden": everywhere, "slicewarden-sharing": within})
    listed = _listed()
    fallback = {each for each in listed if each.plural in POLICIES}
    yield AUDIT, _written(AUDIT, {"slicewarden-audit": _rules(listed, ("list",))})
    facts = {each for each in _facts(Reach.EVERYWHERE, Reach.LISTED) if each.plural != "pods"}  # a proof lists none
    yield PROVE, _written(PROVE, {"slicewarden-prove": _rules(facts, ("list",))})
    yield PREVIEW, _written(PREVIEW, {"slicewarden-preview": _rules(listed - fallback, ("list",))})


def _listed() -> set[Right]:
    """Return the rights to list all that the audit reads. Every policy needs those to the kinds that it judges."""
    judged = {Right(each.group, each.resource) for each in load_sample().workloads.values()}
    judged |= {Right(group, kinds.RESOURCES[group, kind].plural) for group, kind in DEVICES}
    found = {Right("admissionregistration.k8s.io", plural, "To say what the fallback holds.") for plural in POLICIES}
    found |= {*_facts(Reach.EVERYWHERE, Reach.LISTED)}
    return judged | {each for each in found if each._replace(why="") not in judged}


def _rules(rights: Iterable[Right], verbs: Iterable[str]) -> str:
    """Write rules: first those for every policy, by group, then the others."""
    by_group: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for each in rights:
        by_group[each.why, each.group].add(each.plural)
    written = ""
    for (why, group), plurals in sorted(by_group.items()):
        written += f"  # {why}\n" if why else ""
        written += "  - " + _list("apiGroups", [group or '""']).lstrip()
        written += _list("resources", sorted(plurals)) + _list("verbs", verbs)
    return written


def _list(key: str, values: Iterable[str]) -> str:
    values = [*values]
    line = f"    {key}: [{', '.join(values)}]\n"
    if len(line) <= WIDTH:
        return line
    return f"    {key}:\n" + "".join(f"      - {value}\n" for value in values)


def _written(file: Path, rules: Mapping[str, str]) -> str:
    """Return the text of a file with the rules of its ClusterRoles, by name."""
    text = file.read_text("utf-8")
    for name, lines in rules.items():
        head = rf"^kind: ClusterRole\nmetadata:\n(?:  labels: .*\n)?  name: {name}\n(?:  .*\n)*"
        role = re.compile(rf"({head})rules:.*\n(?:  .*\n)*", re.MULTILINE)
        text, count = role.subn(lambda found, lines=lines: f"{found[1]}{NOTE}{lines}", text, count=1)  # type: ignore[misc]
        if not count:
            raise ValueError(f"{file.name} has no ClusterRole {name}")
    return text
