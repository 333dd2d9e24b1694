"""The page of the releases of Kubernetes on which tests ran, and the table in README.md, made of recorded runs.

`make versions` records them.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from docs import parts
from tests import ROOT
from tests.e2e.offered import UNSERVED
from webhook.text import tables

HERE = Path(__file__).resolve().parent
RECORD, PAGE = ROOT / "docs" / "evidence" / "versions.json", ROOT / "docs" / "evidence" / "versions.md"
README = ROOT / "README.md"

SUBJECTS: Mapping[str, str] = {
    "test_install": "installation",
    "test_policy_objects": "policies as objects",
    "test_controller": "the controller",
    "test_registration": "the registration",
    "test_callers": "who may call the webhook",
    "test_requests": "pods of each kind",
    "test_ways": "ways to a GPU",
    "test_trust": "trust",
    "test_sharing": "sharing configurations",
    "test_claims": "resource claims",
    "test_fallback_offered": "the fallback, whole or not at all",
    "test_fallback_alone": "the fallback without the webhook",
    "test_no_webhook": "the webhook down",
    "test_changes": "an upgrade and a rollback",
}
"""The modules that run on releases, each with what it tests: installation, admission, sharing, the fallback."""

ONLY: Mapping[str, str] = {
    "test_changes": "test_another_release_waits_until_validate_forgives_and_no_pod_is_judged_wrongly",
}
"""The one test that runs of a module. The others kill and freeze processes, which no release of Kubernetes changes."""

BEGINNING = """\
# Kubernetes releases

`make versions K8S=1.30` builds a release of Kubernetes from its source (API server, controllers, scheduler), and runs
the tests of installation, admission, sharing configurations and the fallback on it. This page lists the modules in
which no test failed. It claims nothing about other releases. `make nightly` runs the oldest and the newest."""


class Module(NamedTuple):
    """A run of a module: the version, the date, how many tests passed, and how many were skipped for which reason."""

    version: str
    date: str
    passed: int
    skipped: Mapping[str, int]


Runs = Mapping[str, Mapping[str, Module]]
"""By minor releases, the newest first: the last run of each module in which no test failed."""


def read() -> Runs:
    """Read what is recorded."""
    found: Mapping[str, Any] = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}
    newest = sorted(found, key=lambda minor: -int(minor.partition(".")[2]))
    return {minor: {name: Module(**each) for name, each in found[minor].items()} for minor in newest}


def record(minor: str, version: str, modules: Mapping[str, Module | None]) -> None:
    """Replace runs on a minor release, and write the page again. None is a run in which a test failed.

    Runs on another version of it are forgotten.
    """
    runs = read()
    kept = {name: each for name, each in runs.get(minor, {}).items() if each.version == version}
    made = {**runs, minor: {name: each for name, each in {**kept, **modules}.items() if each}}
    plain = {
        each: {name: run._asdict() for name, run in sorted(made[each].items())} for each in sorted(made) if made[each]
    }
    RECORD.write_text(json.dumps(plain, indent=1) + "\n", "utf-8")
    write()


def write() -> None:
    """Write the page, and the table in README.md."""
    PAGE.write_text(text(), "utf-8")
    README.write_text(readme(), "utf-8")


def readme() -> str:
    """Return README.md with the table. Raises ValueError if it has no place for it."""
    return parts.marked(README.read_text("utf-8"), "releases", matrix(read()))


def matrix(runs: Runs) -> str:
    """Return a table of how many tests passed of each subject, with a column for each release, the newest first."""
    ran = [name for name in SUBJECTS if any(name in modules for modules in runs.values())]
    rows = [(SUBJECTS[name], *(_cell(modules.get(name)) for modules in runs.values())) for name in ran]
    return "".join(f"{line}\n" for line in tables.markdown(("tests of", *runs), rows))


def _cell(run: Module | None) -> str:
    if run is None:
        return ""
    skipped = sum(run.skipped.values())
    if not run.passed:
        return "not served"
    return f"{run.passed}, {skipped} not served" if skipped else str(run.passed)


def text() -> str:
    """Return the page."""
    return "\n".join(_lines(read())) + "\n"


def instead(pins: str, version: str) -> list[str]:
    """Return the libraries of Kubernetes that a go.mod takes of another patch release, each as NAME VERSION."""
    own = f"v0.{version.partition('.')[2]}"
    return [
        f"{name} {other}" for name, other in re.findall(r"=> (k8s\.io/\S+) (\S+)$", pins, re.MULTILINE) if other != own
    ]


def _lines(runs: Runs) -> Iterator[str]:
    yield BEGINNING
    for minor, modules in runs.items():
        version = next(iter(modules.values())).version
        yield ""
        yield f"## {version}"
        yield ""
        pins = HERE / minor / "go.mod"
        if pins.exists() and (found := instead(pins.read_text("utf-8"), version)):
            yield f"Built with {', '.join(found)}, because that of this release could not be downloaded."
            yield ""
        yield "| tests | date | passed | skipped, because the API server does not serve |"
        yield "| --- | --- | --- | --- |"
        for name, run in modules.items():
            why = "; ".join(f"{reason.removeprefix(UNSERVED)}: {count}" for reason, count in run.skipped.items())
            yield f"| `{name}` | {run.date} | {run.passed} | {why} |"


if __name__ == "__main__":
    write()
