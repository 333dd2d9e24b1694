"""Where the rules and NVIDIA's container toolkit differ over a pod, less what the rules refuse on purpose."""

import copy
import posixpath
from collections.abc import Iterable
from typing import Any

from tests.oracles.containers import FOLDER, Given, findings, mutated, past_requests
from tests.oracles.programs import Oracle
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Path

VISIBLE = "NVIDIA_VISIBLE_DEVICES"


def let_through(oracle: Oracle, judge: Engine, pod: dict[str, Any], facts: Facts) -> frozenset[Given]:
    """Return what its containers get past their requests although the rules let it pass, as /mutate leaves it."""
    pod = mutated(judge, pod, facts)
    return frozenset() if findings(judge, pod, facts) else past_requests(oracle, pod)


def needless(oracle: Oracle, judge: Engine, pod: dict[str, Any], facts: Facts) -> list[tuple[Path, str]]:
    """Return what is refused although only it, as /mutate leaves it, gives nothing; not what is refused on purpose."""
    pod = mutated(judge, pod, facts)
    found = findings(judge, pod, facts)

    def given(removed: Iterable[Path]) -> frozenset[Given]:
        return past_requests(oracle, mutated(judge, _without(pod, removed), facts))

    doubted = [each for each in found.items() if not on_purpose(pod, *each)]
    harmless = given(found) if doubted else frozenset()
    return [(path, rule) for path, rule in doubted if given(found.keys() - {path}) == harmless]


def on_purpose(pod: dict[str, Any], path: Path, rule: str) -> bool:
    """Tell whether the rules refuse a thing whatever the toolkit makes of it, and why.

    - A privileged container needs no toolkit.
    - The domain of CDI's annotations, and all below it: other runtimes read other keys, the toolkit's NRI plugin too.
    - A mount in the folder, by either name of it and whatever is mounted: links and volumes are not known here.
    - A variable beside VISIBLE, which the toolkit passes over where no device is given.
    - A list of devices with `none`, `void` or nothing but blanks in it: older releases read it otherwise.
    - A value that a later one of the same name replaces.
    """
    match rule:
        case "privileged-container":
            return True
        case "device-annotation":
            domain = str(path[-1]).partition("/")[0]
            return f".{domain}".endswith(".cdi.k8s.io")
        case "device-mount":
            destination = posixpath.normpath("/" + str(_at(pod, path)).lstrip("/"))
            return destination.startswith((FOLDER, FOLDER.removeprefix("/var")))
        case "visible-devices":
            entry, later = _at(pod, path), _at(pod, path[:-1])[int(path[-1]) + 1 :]
            devices = [device.strip() for device in entry["value"].split(",")]
            odd = entry["value"] not in ("", "void") and not ({"none", "void"}.isdisjoint(devices) and any(devices))
            return entry["name"] != VISIBLE or odd or VISIBLE in {each["name"] for each in later}
    return False


def _at(pod: dict[str, Any], path: Path) -> Any:
    there: Any = pod
    for key in path:
        there = there[key]
    return there


def _without(pod: dict[str, Any], paths: Iterable[Path]) -> dict[str, Any]:
    """The pod without the entries of lists, and the annotations, in which these stand."""
    left = copy.deepcopy(pod)
    entries = {path[:-1] if path[-1] == "mountPath" else path for path in paths}
    for path in sorted(entries, key=lambda path: [str(key) for key in path], reverse=True):  # the last of a list first
        if path[-1] != "env":
            del _at(left, path[:-1])[path[-1]]
    return left
