"""The documentation as a site: the whole of it is built by `make site`; here are its parts, and a small one."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from docs import site

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.compile(r"^(docs/\S+|manifests/\S+|[A-Z]+)$", re.MULTILINE)
SMALL = {
    "README.md": "# Small\n\n[index](docs/README.md) and [a folder](manifests/)\n",
    "docs/README.md": "# Pages\n\n## For readers: read\n\n[one](one.md), [two](two.md)\n\n## More\n\n[one](one.md)\n",
    "docs/one.md": "# One\n\n## A `key` of it\n\nSee [its file](../policies/one.yaml) and [a project](https://kyverno.io).\n",
    "docs/two.md": "# Two\n\n[there](one.md#a-key-of-it)\n\n```console\n$ cat [no](link.md)\n```\n",
    "policies/one.yaml": "kind: GPUSharingPolicy\n",
}


def small(root: Path, **changed: str) -> Path:
    files = {**SMALL, **dict.fromkeys((*site.BESIDE, *site.UNLISTED), "# Another\n"), **changed}
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, "utf-8")
    git(root, "init", "--quiet")
    git(root, "add", "--all")
    return root


def git(root: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=root, check=True)


def test_the_navigation_has_each_page_once() -> None:
    named = NAMED.findall(site.navigation((ROOT / "docs" / "README.md").read_text("utf-8")))
    unlisted = {name.removesuffix(".md") for name in (*site.UNLISTED, "README.md")}
    pages = {page.removesuffix(".md") for page in site.pages(site.tracked(ROOT))} - unlisted
    assert sorted(named) == sorted(pages)


def test_an_index_without_sections_is_refused() -> None:
    with pytest.raises(site.Unbuilt, match="no sections"):
        site.navigation("# Pages\n")


def test_a_page_keeps_its_text_and_its_files_come_along(tmp_path: Path) -> None:
    root = small(tmp_path / "root")
    site.stage(tmp_path / "staged", root)
    assert (tmp_path / "staged/docs/one.md").read_text("utf-8") == SMALL["docs/one.md"]
    assert (tmp_path / "staged/policies/one.yaml").read_text("utf-8") == SMALL["policies/one.yaml"]
    home = (tmp_path / "staged/README.md").read_text("utf-8")
    assert home.startswith("# Small\n\n[index](docs/README.md) and a folder\n")
    assert home.count("docs/one\n") == 1


def test_a_file_that_git_does_not_know_is_not_published(tmp_path: Path) -> None:
    root = small(tmp_path / "root")
    (root / "docs" / "draft.md").write_text("# Draft\n", "utf-8")
    (root / "docs" / "linked.md").symlink_to(root / "docs" / "one.md")
    git(root, "add", "docs/linked.md")
    site.stage(tmp_path / "staged", root)
    copied = {str(file.relative_to(tmp_path / "staged")) for file in (tmp_path / "staged").rglob("*") if file.is_file()}
    assert copied == {*SMALL, *site.BESIDE, *site.UNLISTED}


@pytest.mark.parametrize(
    "words",
    [
        "[up](../../secret.yaml)",
        "[up](../.git/config)",
        "[up](path:../../../secret.yaml)",
        "[up](<../../../secret.yaml>)",
        "[up][up]\n\n[up]: ../../../secret.yaml",
        "![up](../../../secret.png)",
        "![up][up]\n\n[up]: ../../../secret.png",
        "```{include} ../../../secret.yaml\n```",
        "```{literalinclude} ../../../secret.yaml\n```",
        "```{image} ../../../secret.png\n```",
    ],
)
@pytest.mark.parametrize("where", ["outside", "next to the copy"])
def test_nothing_outside_the_repository_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, where: str
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    for name in ("secret.yaml", "secret.png"):
        for folder in (scratch, tmp_path):
            (folder / name).write_text("a secret\n", "utf-8")
    root = small(tmp_path / "root", **{"docs/two.md": f"# Two\n\n{words}\n"})
    if where == "outside":
        words = words.replace("../../../", f"{'../' * 20}{str(tmp_path)[1:]}/")
        (root / "docs/two.md").write_text(f"# Two\n\n{words}\n", "utf-8")
    with pytest.raises(site.Unbuilt, match=r"outside the repository|no file of the repository|no-such"):
        site.build(tmp_path / "site", "0.1.0", root)
    assert not (tmp_path / "site").exists()


def test_a_site_is_searched_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    built = site.build(tmp_path / "site", "0.2.0", small(tmp_path / "root"))
    assert built == tmp_path / "site" / "0.2.0"
    page = (built / "docs/two.html").read_text("utf-8")
    assert 'href="one.html#a-key-of-it"' in page
    assert "For readers" in page
    assert "Slicewarden 0.2.0" in page
    assert "gpusharingpolicy" not in (built / "searchindex.js").read_text("utf-8")
    assert "project" in (built / "searchindex.js").read_text("utf-8")
    for file in built.rglob("*.html"):
        loaded = re.findall(r'<(?:script|img|link)\b[^>]*(?:src|href)="([^"]+)"', file.read_text("utf-8"))
        assert [name for name in loaded if "//" in name] == []


@pytest.mark.parametrize("link", ["missing.md", "one.md#no-such-heading", "<missing.md>"])
def test_a_link_that_leads_nowhere_is_an_error(tmp_path: Path, link: str) -> None:
    root = small(tmp_path / "root", **{"docs/two.md": f"# Two\n\n[there]({link})\n"})
    with pytest.raises(site.Unbuilt, match=r"docs/two\.md:.*(missing\.md|no-such-heading)"):
        site.build(tmp_path / "site", "0.1.0", root)
    assert not (tmp_path / "site").exists()


def test_a_folder_of_versions_opens_at_the_newest(tmp_path: Path) -> None:
    for name in ("0.9.0", "0.10.0", "unrelated"):
        (tmp_path / name).mkdir()
        if name != "unrelated":
            (tmp_path / name / "README.html").touch()
    site.listed(tmp_path)
    assert json.loads((tmp_path / "versions.json").read_text("utf-8")) == ["0.10.0", "0.9.0"]
    assert "url=0.10.0/README.html" in (tmp_path / "index.html").read_text("utf-8")
