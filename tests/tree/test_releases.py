"""What is said about releases of Kubernetes is what ran on them."""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import ROOT
from tests.e2e import binaries
from tests.e2e.offered import UNSERVED
from tests.e2e.releases import __main__ as releases
from tests.e2e.releases import page


def pinned(minor: str) -> str:
    """The version that is pinned of a minor release."""
    newest = binaries.kubernetes_version()
    return newest if newest.startswith(f"v{minor}.") else binaries.kubernetes_version(page.HERE / minor)


def test_the_page_and_the_table_are_what_was_recorded() -> None:
    assert page.PAGE.read_text("utf-8") == page.text(), "run make docs"
    assert page.README.read_text("utf-8") == page.readme(), "run make docs"


def test_the_table_says_what_passed_and_what_is_not_served() -> None:
    passed = page.Module("v1.37.1", "2026-01-02", 8, {})
    skipped = passed._replace(skipped={f"{UNSERVED}pods/resize": 2})
    nothing = skipped._replace(passed=0)
    runs = {"1.37": {"test_install": passed}, "1.30": {"test_install": skipped, "test_claims": nothing}}
    assert page.matrix(runs).splitlines() == [
        "| tests of | 1.37 | 1.30 |",
        "| --- | --- | --- |",
        "| installation | 8 | 8, 2 not served |",
        "| resource claims |  | not served |",
    ]


def test_a_library_of_another_patch_release_is_named() -> None:
    pins = "replace (\n\tk8s.io/api => k8s.io/api v0.32.13\n\tk8s.io/kms => k8s.io/kms v0.32.11\n)\n"
    assert page.instead(pins, "v1.32.13") == ["k8s.io/kms v0.32.11"]
    assert page.instead(pins.replace("0.32.11", "0.32.13"), "v1.32.13") == []


def test_every_module_that_runs_is_there_and_has_a_subject() -> None:
    assert {name for modules in page.read().values() for name in modules} <= page.SUBJECTS.keys()
    assert all((ROOT / "tests" / "e2e" / f"{name}.py").exists() for name in page.SUBJECTS)
    assert all(
        f"def {test}(" in (ROOT / "tests" / "e2e" / f"{name}.py").read_text() for name, test in page.ONLY.items()
    )


def test_what_is_recorded_ran_on_a_pinned_version_and_skipped_only_what_is_not_served() -> None:
    for minor, modules in page.read().items():
        assert {run.version for run in modules.values()} == {pinned(minor)}
        for name, run in modules.items():
            assert (ROOT / "tests" / "e2e" / f"{name}.py").exists()
            assert run.passed or run.skipped
            assert all(why.startswith(UNSERVED) for why in run.skipped), name


@pytest.mark.parametrize(("status", "recorded"), [(0, True), (1, True), (2, False), (3, False), (-9, False)])
def test_a_run_that_was_cut_off_is_not_recorded(
    monkeypatch: pytest.MonkeyPatch, status: int, *, recorded: bool
) -> None:
    """Its report has the tests that ran before, and lacks those that might have failed."""
    report = '<testsuite><testcase classname="tests.e2e.test_install" name="test_a"/></testsuite>'

    def pytested(command: Sequence[str], **_: Any) -> subprocess.CompletedProcess[str]:
        (file,) = (word.removeprefix("--junitxml=") for word in command if word.startswith("--junitxml="))
        Path(file).write_text(report, "utf-8")
        return subprocess.CompletedProcess(command, status)

    kept = list[Any]()
    monkeypatch.setattr(subprocess, "run", pytested)
    monkeypatch.setattr(binaries, "find", lambda: None)
    monkeypatch.setattr(page, "record", lambda *run: kept.append(run[2].keys()))
    assert releases.run(releases.minor_of(binaries.kubernetes_version()), ["test_install"]) == status
    assert kept == [{"test_install"}] * recorded


def test_the_oldest_release_that_is_named_is_one_on_which_tests_ran() -> None:
    oldest = min(page.read(), key=lambda minor: int(minor.removeprefix("1.")))
    chart = yaml.safe_load((ROOT / "manifests" / "chart" / "Chart.yaml").read_text("utf-8"))
    named = [chart["kubeVersion"]]
    for file in ("README.md", "manifests/README.md", "CHANGELOG.md"):
        named += re.findall(r"Kubernetes (1\.\d+) or\s+newer", (ROOT / file).read_text("utf-8"))
    assert len(named) == 4
    assert {each for text in named for each in re.findall(r"1\.\d+", text)} == {oldest}
