"""A suite is passed over only where nothing that it may read has changed since it was green."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests import ROOT, SUITES
from tests.support import stamps
from tests.support.stamps import TARGETS, UNSTAMPED, digest, files, inputs, surroundings

FILES = files(ROOT)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this checkout, whose files a test may change."""
    root = tmp_path_factory.mktemp("stamps")
    for name in FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, root / name, follow_symlinks=False)
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    return root


CHANGED = {
    "the product": ("node", "webhook/engine/engine.py"),
    "a rule": ("e2e", "webhook/rules/multiple_slices.py"),
    "its schema": ("image", "webhook/policy/policy.schema.json"),
    "certificates": ("faults", "certs/issue.py"),
    "a test of its own": ("node", "tests/node/test_ways.py"),
    "a test of another folder of its target": ("e2e", "tests/oracles/cases.py"),
    "a helper of another suite": ("node", "tests/e2e/control_plane.py"),
    "a helper that a helper imports": ("node", "tests/support/card/state.py"),
    "a module that a text names": ("e2e", "tests/e2e/binaries.py"),
    "a benchmark that it starts": ("faults", "bench/__init__.py"),
    "a benchmark's program that it names by its path": ("node", "bench/gpu/program.py"),
    "a helper next to one that it imports": ("node", "tests/support/listening.py"),
    "a program of another suite": ("node", "tests/frameworks/probes"),
    "pins": ("node", "tests/node/pins/runtime/go.mod"),
    "pins of another suite whose programs it uses": ("node", "tests/e2e/go.sum"),
    "Go": ("e2e", "tests/evaluator/main.go"),
    "C": ("node", "tests/node/nvml.c"),
    "a script": ("node", "tests/node/inside.sh"),
    "wheels": ("frameworks", "tests/frameworks/wheels"),
    "a manifest": ("node", "manifests/base"),
    "the chart": ("e2e", "manifests/chart/values.yaml"),
    "a page whose commands it runs": ("node", "docs/certificates.md"),
    "a page that goes into the package": ("image", "README.md"),
    "a policy": ("e2e", "policies/sample.yaml"),
    "a fixture": ("e2e", "tests/fixtures/multiple-slices"),
    "dependencies": ("browser", "uv.lock"),
    "settings": ("browser", "pyproject.toml"),
    "its target": ("browser", "Makefile"),
    "the recipe of the image": ("image", "Dockerfile"),
    "CI": ("faults", ".ci/run"),
}
"""A file, or a folder for its first file, of each class of input, by the suite that has to notice its change."""


@pytest.mark.thorough
@pytest.mark.parametrize("kind", CHANGED)
def test_each_class_of_input_counts(kind: str) -> None:
    suite, place = CHANGED[kind]
    expected = {name for name in FILES if name == place or name.startswith(f"{place}/")}
    assert expected
    assert expected <= set(inputs(ROOT, suite))


def test_a_changed_renamed_or_removed_input_is_noticed(checkout: Path) -> None:
    path = checkout / "webhook/rules/multiple_slices.py"
    seen, text = {digest(checkout, "image", ())}, path.read_bytes()
    path.write_bytes(text + b"\n")
    seen.add(digest(checkout, "image", ()))
    path.write_bytes(text)
    path.chmod(path.stat().st_mode ^ 0o100)
    seen.add(digest(checkout, "image", ()))
    path.chmod(path.stat().st_mode ^ 0o100)
    path.rename(path.with_name("renamed"))
    seen.add(digest(checkout, "image", ()))
    path.with_name("renamed").unlink()
    seen.add(digest(checkout, "image", ()))
    path.symlink_to("multiple_slices")
    seen.add(digest(checkout, "image", ()))
    assert len(seen) == 6
    path.unlink()
    path.write_bytes(text)
    assert digest(checkout, "image", ()) in seen


@pytest.mark.thorough
def test_files_that_nobody_thought_of_count(checkout: Path) -> None:
    places = ["new", "webhook/new.txt", "tests/fixtures/new", "tests/unheard-of/data", "tests/new.json"]
    for place in places:
        (checkout / place).parent.mkdir(exist_ok=True)
        (checkout / place).write_text("new")
    for suite in TARGETS:
        assert set(places) <= set(inputs(checkout, suite))
    for place in places:
        (checkout / place).unlink()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("suite", "place"),
    [
        ("node", "tests/faults/test_peers.py"),
        ("node", "docs/rules.md"),
        ("frameworks", "tests/node/inside.sh"),
        ("image", "tests/rules/test_growth.py"),
        ("browser", "docs/evidence/speed.md"),
        ("e2e", "CHANGELOG.md"),
        ("browser", "bench/runs"),
    ],
)
def test_what_a_suite_does_not_read_lets_it_be_passed_over(suite: str, place: str) -> None:
    assert not [name for name in inputs(ROOT, suite) if name == place or name.startswith(f"{place}/")]


def test_a_file_counts_for_a_suite_that_names_it(checkout: Path) -> None:
    module, page = checkout / "tests/browser/test_new.py", "docs/rules.md"
    folders = {"tests/node/inside.sh", "bench/runs/engines.json"} & set(FILES)
    assert not {page, *folders} & set(inputs(checkout, "browser"))
    module.write_text('PLACES = ["rules.md", ROOT / "tests" / "node", "bench/runs"]\n')
    assert {page, *folders} <= set(inputs(checkout, "browser"))
    module.unlink()


def test_what_a_process_opens_is_seen() -> None:
    noted, place = stamps.noting(), ROOT / "CHANGELOG.md"
    assert str(place) not in noted()
    place.read_bytes()
    assert {str(place), stamps.__file__} <= {*noted()}
    assert stamps.unseen("image", [str(place), str(ROOT / "README.md"), "/etc/passwd"]) == ["CHANGELOG.md"]


def test_what_is_around_a_suite_is_noticed(monkeypatch: pytest.MonkeyPatch, checkout: Path) -> None:
    before = list(surroundings())
    assert before == list(surroundings())
    monkeypatch.setenv("GROWTH", "all")
    changed = list(surroundings())
    assert len(set(before) ^ set(changed)) == 2
    assert digest(checkout, "image", before) != digest(checkout, "image", changed)
    monkeypatch.setattr(stamps, "PROGRAMS", ("git", "no-such-program"))
    assert len(set(surroundings()) - set(changed)) == 1


def test_a_suite_is_green_after_it_was_recorded_and_until_an_input_changes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, checkout: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(stamps, "ROOT", checkout)
    assert stamps.main(["image"])
    assert not stamps.main(["image", "--green"])
    assert not stamps.main(["image"])
    assert stamps.main(["node"])
    (checkout / "Dockerfile").write_text("FROM scratch\n")
    assert stamps.main(["image"])


def test_a_suite_gets_no_stamp_if_an_input_changes_while_it_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, checkout: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(stamps, "ROOT", checkout)
    assert not stamps.main(["image", "--green"])
    assert stamps.main(["image"]), "nobody asked before it ran"
    (checkout / "Dockerfile").write_text("FROM another\n")
    assert not stamps.main(["image", "--green"])
    assert stamps.main(["image"])
    assert not stamps.main(["image", "--green"])
    assert not stamps.main(["image"])


def test_a_suite_gets_no_stamp_if_it_reads_what_none_covers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(stamps, "ROOT", checkout)
    assert stamps.main(["image"])
    stamps.uncovered("image").write_text("bench/new.py\n")
    assert not stamps.main(["image", "--green"])
    assert "image gets no stamp: it reads bench/new.py, " in capsys.readouterr().out
    assert stamps.main(["image"])
    assert not stamps.main(["image", "--green"])
    assert not stamps.main(["image"]), "the next run reads nothing of the kind"


def test_each_folder_of_tests_that_needs_more_belongs_to_one_target() -> None:
    folders = [folder for own in TARGETS.values() for folder in own]
    assert sorted(folders) == sorted(SUITES - UNSTAMPED)
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert all(f"\n{target}: " in makefile for target in TARGETS)
