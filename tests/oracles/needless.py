"""Where the rules and NVIDIA's container toolkit differ over a pod, less what the rules refuse on purpose."""

import copy
import posixpath
from typing import Any

from oracles.containers import FOLDER, Given, findings, mutated, past_requests
from oracles.programs import Oracle
from webhook.engine import Engine
from webhook.facts import Facts
from webhook.model import Path

VISIBLE = "NVIDIA_VISIBLE_DEVICES"


def let_through(oracle: Oracle, judge: Engine, pod: dict[str, Any], facts: Facts) -> frozenset[Given]:
    """What its containers get past their requests although the rules let it pass, as /mutate leaves it."""
    pod = mutated(judge, pod, facts)
    return frozenset() if findings(judge, pod, facts) else past_requests(oracle, pod)


def needless(oracle: Oracle, judge: Engine, pod: dict[str, Any], facts: Facts) -> list[tuple[Path, str]]:
    """What is refused though its containers would get the same without it, but for what is refused on purpose."""
    pod = mutated(judge, pod, facts)
    found = {path: rule for path, rule in findings(judge, pod, facts).items() if not on_purpose(pod, path, rule)}
    given = past_requests(oracle, pod) if found else frozenset()
    return [each for each in found.items() if past_requests(oracle, _without(pod, each[0])) == given]


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
            destination = posixpath.normpath(f"//{_at(pod, path)}".replace("//", "/"))
            return destination.startswith((FOLDER, FOLDER.removeprefix("/var")))
        case "visible-devices":
            entry, later = _at(pod, path), _at(pod, path[:-1])[int(path[-1]) + 1 :]
            devices = [device.strip() for device in entry["value"].split(",")]
            odd = "void" in devices or "none" in devices or not any(devices)
            return (
                entry["name"] != VISIBLE
                or any(each["name"] == VISIBLE for each in later)
                or (odd and entry["value"] not in ("", "void"))
            )
    return False


def _at(pod: dict[str, Any], path: Path) -> Any:
    there: Any = pod
    for key in path:
        there = there[key]
    return there


def _without(pod: dict[str, Any], path: Path) -> dict[str, Any]:
    """The pod without the entry of a list, or of the annotations, in which something stands."""
    rest, key = path[:-1], path[-1]
    if key == "mountPath":
        rest, key = rest[:-1], rest[-1]
    left = copy.deepcopy(pod)
    del _at(left, rest)[key]
    return left
