"""Run the tests of a cluster on a release of Kubernetes, and record what ran: `make versions K8S=1.30`."""

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests import ROOT
from tests.e2e import binaries
from tests.e2e.releases import page
from tests.e2e.releases.programs import assets, minors
from tests.support.go_programs import Missing, say

MODULES = tuple(page.SUBJECTS)


def recorded(report: ElementTree.Element, version: str, date: str) -> Mapping[str, page.Module | None]:
    """Read from a report of pytest what ran of each module; None where a test failed."""
    passed, skipped, failed = Counter[str](), defaultdict[str, Counter[str]](Counter), set[str]()
    for case in report.iter("testcase"):
        name = next(word for word in case.attrib["classname"].split(".") if word.startswith("test_"))
        if (why := case.find("skipped")) is not None:
            skipped[name][why.attrib["message"]] += 1
        elif case.find("failure") is None and case.find("error") is None:
            passed[name] += 1
        else:
            failed.add(name)
    ran = sorted(passed.keys() | skipped.keys())
    made = {name: page.Module(version, date, passed[name], dict(sorted(skipped[name].items()))) for name in ran}
    return {**made, **dict.fromkeys(failed)}


def run(minor: str, modules: Sequence[str]) -> int:
    """Run modules on a minor release, and record those of which no test failed. Returns the status of pytest."""
    pinned = binaries.kubernetes_version()
    environment = {key: value for key, value in os.environ.items() if key != "KUBEBUILDER_ASSETS"}
    if minor == minor_of(pinned):
        version = pinned
        binaries.find()
    else:
        version = binaries.kubernetes_version(page.HERE / minor)
        environment["KUBEBUILDER_ASSETS"] = str(assets(minor))
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        files = [selected(name) for name in modules]
        command = [sys.executable, "-m", "pytest", "-rs", f"--junitxml={report}", *files]
        status = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
        if status in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}:  # a run that was cut off says nothing
            read = ElementTree.parse(report).getroot()  # noqa: S314 - pytest wrote it just now
            page.record(minor, version, recorded(read, version, f"{datetime.now(UTC):%Y-%m-%d}"))
    return status


def selected(module: str) -> str:
    """Name a module for pytest, or the one test of it that runs on releases."""
    return f"tests/e2e/{module}.py" + (f"::{page.ONLY[module]}" if module in page.ONLY else "")


def minor_of(version: str) -> str:
    """The minor release of a version, such as `1.30` of `v1.30.14`."""
    return version.removeprefix("v").rpartition(".")[0]


def main() -> int:
    """Run on the named minor releases, else on the oldest and the pinned one; 2 after one line on what is missing."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.releases")
    parser.add_argument("minors", nargs="*", default=[minors()[0], minor_of(binaries.kubernetes_version())])
    parser.add_argument("--modules", nargs="+", choices=MODULES, default=MODULES)
    given = parser.parse_args()
    try:
        return max([run(minor, given.modules) for minor in given.minors])
    except Missing as missing:
        say(str(missing))
        return 2


if __name__ == "__main__":
    sys.exit(main())
