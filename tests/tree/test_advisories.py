"""`make advisories`: which known flaws the packages of an SBOM have, by a set of advisories."""

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from manifests import advisories

Object = dict[str, Any]


def sbom(**packages: str) -> str:
    parts = [
        {"name": name, "version": version, "purl": f"pkg:pypi/{name}@{version}"} for name, version in packages.items()
    ]
    return json.dumps({"bomFormat": "CycloneDX", "components": parts})


def advisory(*events: Mapping[str, str], name: str = "jinja2", **more: Any) -> Object:
    affected = {
        "package": {"ecosystem": "PyPI", "name": name},
        "ranges": [{"type": "ECOSYSTEM", "events": [*events]}],
    }
    return {"id": "PYSEC-1", "modified": "2026-01-02T03:04:05Z", "affected": [affected], **more}


def kept(folder: Path, *records: Object) -> Path:
    """A set as PyPA's is: a YAML file of each advisory, in a folder of its package."""
    for number, record in enumerate(records):
        file = folder / "vulns" / record["affected"][0]["package"]["name"] / f"{number}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump(record), "utf-8")
    return folder


def exported(file: Path, *records: Object) -> Path:
    """A set as osv.dev exports it: a ZIP file with a JSON file of each advisory."""
    with zipfile.ZipFile(file, "w") as archive:
        for number, record in enumerate(records):
            archive.writestr(f"{number}.json", json.dumps(record))
    return file


def asked(monkeypatch: pytest.MonkeyPatch, text: str, place: Path) -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    return advisories.main([str(place)])


FIXED = ({"introduced": "0"}, {"fixed": "2.11.3"})


@pytest.mark.parametrize("zipped", [False, True], ids=["folder", "zip"])
def test_an_advisory_that_affects_a_package_is_named_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], zipped: bool
) -> None:
    records = (advisory(*FIXED, aliases=["CVE-1"]), advisory(*FIXED, name="flask"))
    place = exported(tmp_path / "all.zip", *records) if zipped else kept(tmp_path, *records)
    assert asked(monkeypatch, sbom(jinja2="2.11.2", flask="3.1"), place) == 1
    assert capsys.readouterr().out == (
        "jinja2 2.11.2: PYSEC-1, CVE-1: fixed in 2.11.3\n"
        "2 packages, 2 advisories, the newest of 2026-01-02: 1 affect a package\n"
    )
    assert asked(monkeypatch, sbom(jinja2="2.11.3", flask="3.1"), place) == 0


@pytest.mark.parametrize(
    ("events", "inside", "outside"),
    [
        (FIXED, ("0.1", "2.11.3rc1", "2.11.2.post1"), ("2.11.3", "3")),
        (({"introduced": "2.0"}, {"last_affected": "2.2"}), ("2.0", "2.2", "2.1a1"), ("1.9", "2.3")),
        (({"introduced": "2.9"},), ("2.9", "2.10"), ("2.8",)),
        (FIXED, ("0.0a1", "0.dev1", "2.11.2+cpu"), ("2.11.3+cpu", "1!0.1")),
        (({"introduced": "1!0"}, {"last_affected": "1!2.0"}), ("1!1.0", "1!2.0+cpu"), ("5.0", "1!2.0.post1")),
        (
            ({"fixed": "1.2"}, {"introduced": "2.0"}, {"introduced": "1.0"}, {"fixed": "2.1"}),
            ("1.0", "1.1", "2.0"),
            ("0.9", "1.2", "1.9", "2.1"),
        ),
    ],
)
def test_versions_are_compared_as_pypi_does(
    events: tuple[Mapping[str, str], ...], inside: tuple[str, ...], outside: tuple[str, ...]
) -> None:
    (affected,) = advisory(*events)["affected"]
    assert {each: advisories.affects(affected, each) for each in (*inside, *outside)} == {
        **dict.fromkeys(inside, True),
        **dict.fromkeys(outside, False),
    }


def test_a_version_that_is_listed_is_affected_without_a_range() -> None:
    affected = {"package": {"ecosystem": "PyPI", "name": "a"}, "versions": ["1.0", "2004d"]}
    assert advisories.affects(affected, "1.0.0")
    assert not advisories.affects(affected, "1.1")


def test_a_range_of_semantic_versions_counts_and_one_of_commits_does_not() -> None:
    """The schema allows SEMVER for each registry; an advisory for PyPI compares these versions as PyPI does."""
    (affected,) = advisory(*FIXED)["affected"]
    affected["ranges"][0]["type"] = "SEMVER"
    commits = {"type": "GIT", "repo": "https://example.com/a", "events": [{"introduced": "0"}, {"fixed": "2" * 40}]}
    affected["ranges"].append(commits)
    assert [advisories.affects(affected, each) for each in ("2.11.2", "2.11.3")] == [True, False]
    assert advisories.affects({"ranges": [commits]}, "2.11.3")
    assert advisories.affects({}, "2.11.3")


@pytest.mark.parametrize(
    "listed", [{"versions": [1.10]}, {"ranges": [{"type": "ECOSYSTEM", "events": [{"fixed": 1.10}]}]}]
)
def test_a_version_that_yaml_has_read_as_a_number_cannot_be_compared(listed: Object) -> None:
    assert advisories.affects(listed, "1.10")


def test_a_local_version_is_affected_as_its_public_one() -> None:
    assert [advisories.affects({"versions": ["2.0"]}, each) for each in ("2.0+cpu", "2.1+cpu")] == [True, False]


@pytest.mark.parametrize("version", ["1.0", "not-a-version"])
def test_versions_that_cannot_be_compared_count_as_affected(version: str) -> None:
    (affected,) = advisory({"introduced": "0"}, {"fixed": "0.9" if version != "1.0" else "2004-d"})["affected"]
    assert advisories.affects(affected, version)


def test_a_name_is_found_however_it_is_written() -> None:
    found = advisories.packages(sbom(**{"Ruamel.Yaml": "0.1"}))
    assert found == {"ruamel-yaml": "0.1"}
    (match,) = advisories.matches(found, [advisory({"introduced": "0"}, name="ruamel_yaml")])
    assert str(match) == "ruamel-yaml 0.1: PYSEC-1: no release has a fix"


def test_an_advisory_that_was_withdrawn_or_is_of_another_registry_affects_nothing() -> None:
    other = advisory(*FIXED)
    other["affected"][0]["package"]["ecosystem"] = "npm"
    withdrawn = advisory(*FIXED, withdrawn="2026-01-03T00:00:00Z")
    assert list(advisories.matches({"jinja2": "2.0"}, [other, withdrawn])) == []
    assert len([*advisories.matches({"jinja2": "2.0"}, [advisory(*FIXED, withdrawn=None, aliases=None)])]) == 1


@pytest.mark.parametrize(
    "affected",
    [
        None,
        [1],
        [{"package": 1}],
        [{"package": {"ecosystem": "PyPI", "name": "jinja2"}, "ranges": [{"type": "SEMVER"}]}],
    ],
)
def test_an_advisory_in_another_format_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], affected: Any
) -> None:
    place = exported(tmp_path / "all.zip", {"id": "X-1", "affected": affected})
    assert asked(monkeypatch, sbom(jinja2="2.0"), place) == 2
    assert "the advisory X-1 is not in the format of OSV" in capsys.readouterr().err


def test_an_advisory_that_is_too_large_or_too_deep_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(advisories, "MOST_BYTES", 2**20)
    place = tmp_path / "all.zip"
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("1.json", b" " * (2**20 + 1))
    assert asked(monkeypatch, sbom(jinja2="2.0"), place) == 2
    assert "1.json has more than 1 MiB" in capsys.readouterr().err
    deep = tmp_path / "deep"
    deep.mkdir()
    (deep / "1.json").write_text("[" * 500_000, "utf-8")
    assert asked(monkeypatch, sbom(jinja2="2.0"), deep) == 2
    assert "1.json cannot be read" in capsys.readouterr().err


def test_a_package_without_a_version_is_an_error() -> None:
    for purl in ("pkg:pypi/jinja2", "pkg:pypi/jinja2@", "pkg:pypi/jinja2?a=b@2"):
        with pytest.raises(advisories.Unusable, match="which version"):
            advisories.packages(json.dumps({"components": [{"purl": purl}]}))
    assert advisories.packages('{"components": [{"purl": "pkg:pypi/a@1!2%2Bcpu?b=c#d"}]}') == {"a": "1!2+cpu"}


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"components": []}', '{"components": [{"purl": "pkg:npm/a@1"}]}'])
def test_an_sbom_without_packages_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    assert asked(monkeypatch, text, kept(tmp_path, advisory(*FIXED))) == 2
    assert "the SBOM" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content"), [("none", None), ("a.zip", b"no archive"), ("folder", b""), ("folder", b"a: [")]
)
def test_a_set_that_is_empty_or_cannot_be_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes | None
) -> None:
    place = tmp_path / name
    if name == "folder":
        place.mkdir()
        (place / "a.yaml").write_bytes(content or b"")
    elif content is not None:
        place.write_bytes(content)
    assert asked(monkeypatch, sbom(jinja2="2.0"), place) == 2


def test_a_set_has_to_be_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A `make advisories` without ADVISORIES reads no other files."""
    monkeypatch.setattr("sys.stdin", io.StringIO(sbom(jinja2="2.0")))
    assert advisories.main([""]) == 2
    assert "no set of advisories is named" in capsys.readouterr().err
