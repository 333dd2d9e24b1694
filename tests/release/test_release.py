"""The files of a release, made twice of one commit, and put to use as somebody who downloads them would."""

import hashlib
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from manifests import make_release
from tests import ROOT
from tests.support.checkouts import committed

Made = tuple[Path, make_release.Release]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone with all that is here committed, so that the tests judge it."""
    return committed(tmp_path_factory.mktemp("clone") / "slicewarden")


@pytest.fixture(scope="module")
def made(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    release = make_release.known(checkout, rehearsal=True)
    folder = tmp_path_factory.mktemp("release")
    make_release.make(checkout, folder, release)
    return folder, release


def test_each_file_has_its_checksum(made: Made) -> None:
    folder, release = made
    assert {each.name for each in folder.iterdir()} == {
        f"slicewarden-{release.version}-py3-none-any.whl",
        f"slicewarden-{release.version}.tar.gz",
        f"slicewarden-chart-{release.version}.tgz",
        f"slicewarden-manifests-{release.version}.tar.gz",
        f"slicewarden-shell-{release.version}.tar.gz",
        "install.yaml",
        "images.yaml",
        "sbom.cdx.json",
        "sbom.spdx.json",
        "release-notes.md",
        "provenance.intoto.json",
        "SHA256SUMS",
    }
    checked = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert checked.stdout.count(": OK\n") == len([*folder.iterdir()]) - 1


def test_a_changed_file_fails_its_checksum(made: Made, tmp_path: Path) -> None:
    folder, _ = made
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes() + (b" " if file.name == "install.yaml" else b""))
    checked = subprocess.run(
        ["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert checked.returncode != 0
    assert checked.stdout == "install.yaml: FAILED\n"


def test_one_commit_makes_the_same_bytes(made: Made, checkout: Path, tmp_path: Path) -> None:
    folder, release = made
    (checkout / "build").mkdir(exist_ok=True)
    (checkout / "build" / "left-over").write_text("ignored by git\n", "utf-8")
    make_release.make(checkout, tmp_path / "again", release)
    assert (tmp_path / "again" / "SHA256SUMS").read_text("utf-8") == (folder / "SHA256SUMS").read_text("utf-8")


def test_the_wheel_runs_in_an_environment_of_its_own(made: Made, tmp_path: Path) -> None:
    folder, release = made
    (wheel,) = folder.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    subprocess.run([tmp_path / "venv/bin/python", "-m", "pip", "install", "--quiet", wheel], check=True)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    program = tmp_path / "venv/bin/slicewarden"
    said = subprocess.run(
        [program, "--version"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert release.version in said


def test_archives_hold_committed_files_and_what_was_made_of_them(made: Made) -> None:
    folder, release = made
    names = {file.name: members(file) for file in folder.glob("*.t*gz")}
    chart = names[f"slicewarden-chart-{release.version}.tgz"]
    assert {"slicewarden/Chart.yaml", "slicewarden/values.yaml"} <= chart
    assert {name.partition("/")[0] for name in chart} == {"slicewarden"}
    kustomize = names[f"slicewarden-manifests-{release.version}.tar.gz"]
    top = f"slicewarden-{release.version}"
    components = {f"{top}/{file.relative_to(ROOT)}" for file in (ROOT / "manifests/components").rglob("*.yaml")}
    assert components <= kustomize
    assert f"{top}/policies/sample.yaml" in kustomize
    shell = names[f"slicewarden-shell-{release.version}.tar.gz"]
    assert {f"{top}/man1/slicewarden.1", f"{top}/completions/zsh/_slicewarden"} <= shell


def members(file: Path) -> set[str]:
    with tarfile.open(file) as tar:
        return set(tar.getnames())


def test_the_bill_of_materials_has_each_pinned_package(made: Made) -> None:
    found = json.loads((made[0] / "sbom.cdx.json").read_text("utf-8"))
    named = {f"{each['name']}=={each['version']}" for each in found["components"]}
    pins = (ROOT / "manifests/image/runtime.txt").read_text("utf-8")
    pinned = {line.split()[0] for line in pins.splitlines() if "==" in line}
    assert pinned <= named
    assert found["serialNumber"].startswith("urn:uuid:")


def test_both_bills_of_materials_have_the_same_packages(made: Made) -> None:
    ours, other = (json.loads((made[0] / name).read_text("utf-8")) for name in ("sbom.cdx.json", "sbom.spdx.json"))
    root, *rest = other["packages"]
    assert (root["name"], root["versionInfo"]) == ("slicewarden", made[1].version)
    listed = {(each["name"], each["versionInfo"], each["externalRefs"][0]["referenceLocator"]) for each in rest}
    assert listed == {(each["name"], each["version"], each["purl"]) for each in ours["components"]}
    names = {each["SPDXID"]: each["name"] for each in other["packages"]}
    needed = {
        (names[each["spdxElementId"]], names[each["relatedSpdxElement"]])
        for each in other["relationships"]
        if each["relationshipType"] == "DEPENDS_ON"
    }
    assert {("slicewarden", "flask"), ("flask", "werkzeug")} <= needed


def test_the_provenance_names_the_commit_and_each_file(made: Made) -> None:
    folder, release = made
    said = json.loads((folder / "provenance.intoto.json").read_text("utf-8"))
    subjects = {each["name"]: each["digest"]["sha256"] for each in said["subject"]}
    files = {file.name for file in folder.iterdir()} - {"provenance.intoto.json", "SHA256SUMS"}
    assert subjects == {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in files}
    build = said["predicate"]["buildDefinition"]
    assert {"name": "source", "digest": {"gitCommit": release.commit}} in build["resolvedDependencies"]


def test_the_list_of_images_is_that_of_the_manifests(made: Made) -> None:
    folder, _ = made
    listed = yaml.safe_load((folder / "images.yaml").read_text("utf-8"))["images"]
    pods = [
        each["spec"]["template"]["spec"]
        for each in yaml.safe_load_all((folder / "install.yaml").read_text("utf-8"))
        if each and each["kind"] in {"Deployment", "DaemonSet"}
    ]
    used = {container["image"] for pod in pods for container in (*pod.get("initContainers", ()), *pod["containers"])}
    assert used == {*listed}
