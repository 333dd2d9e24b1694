"""Builds the documentation as a site without a server: `make site`, or `python -m docs.site --output FOLDER`.

The pages stay as they are, for readers of the repository. Sphinx builds a copy of them. The index, docs/README.md,
becomes the navigation, and each other file of the repository that a page links to is copied too. The output has a
folder for each version, and opens at the newest.
"""

import argparse
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from webhook.telemetry import release

ROOT = Path(__file__).resolve().parent.parent
BESIDE = ("manifests/README.md", "CHANGELOG.md", "SECURITY.md", "CONTRIBUTING.md")
UNLISTED = ("CODE_OF_CONDUCT.md", "bench/README.md", "bench/figures.md", "bench/gpu/README.md")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[(?P<words>(?:[^][]|\[[^]]*\])*)\]\((?P<target>[^)\s]+)\)")
SETTINGS: Mapping[str, Any] = {
    "project": "Slicewarden",
    "root_doc": "README",
    "extensions": ["myst_parser"],
    "myst_heading_anchors": 4,
    "html_theme": "furo",
    "html_show_sphinx": False,
    "html_copy_source": False,
    "highlight_language": "text",
}


class Unbuilt(Exception):
    """A page has a fault, such as a link to a heading that is not there; the text names each of them."""


def pages(root: Path = ROOT) -> Iterator[Path]:
    """Find each page of the site: README.md, all of docs/, and the pages that people read with them."""
    yield root / "README.md"
    yield from sorted((root / "docs").glob("**/*.md"))
    yield from (root / name for name in (*BESIDE, *UNLISTED))


def navigation(index: str) -> str:
    """Write the navigation: a table of contents for each section of the index, in its order.

    Raises Unbuilt if the index has no sections.
    """
    heads = re.split(r"^## (.*)$", index, flags=re.MULTILINE)[1:]
    if not heads:
        raise Unbuilt("docs/README.md has no sections")
    parts, seen = [_contents("", ["docs/README", *(name.removesuffix(".md") for name in BESIDE)])], set[str]()
    for caption, text in zip(heads[::2], heads[1::2], strict=True):
        targets = (link["target"].partition("#")[0] for link in LINK.finditer(text))
        linked = [name for name in dict.fromkeys(targets) if name.endswith(".md") and not name.startswith("../")]
        names = [f"docs/{name.removesuffix('.md')}" for name in linked if name not in seen]
        parts += [_contents(caption.partition(":")[0], names)] if names else []
        seen |= {*linked}
    return "\n".join(parts)


def _contents(caption: str, names: list[str]) -> str:
    head = [":hidden:", *([f":caption: {caption}"] if caption else [])]
    return "\n".join(["", "```{toctree}", *head, "", *names, "```", ""])


def stage(folder: Path, root: Path = ROOT) -> None:
    """Copy the pages into a folder, each with the files that it links to.

    A link to a folder becomes plain words, because a site has no listing of it.
    """
    made = dict.fromkeys(pages(root))
    for page in made:
        text = page.read_text("utf-8")
        for target in _targets(text):
            file = (page.parent / target).resolve()
            if file.is_file() and file.is_relative_to(root) and file not in made:
                _copied(file, folder / file.relative_to(root))
        text = _without_folders(page, text)
        if page == root / "README.md":
            text += navigation((root / "docs" / "README.md").read_text("utf-8"))
        elif str(page.relative_to(root)) in UNLISTED:
            text = f"---\norphan: true\n---\n\n{text}"
        copy = folder / page.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text, "utf-8")


def _targets(text: str) -> set[str]:
    found = {link["target"].partition("#")[0] for link in LINK.finditer(FENCE.sub("", text))}
    return {target for target in found if target and "://" not in target}


def _without_folders(page: Path, text: str) -> str:
    def plain(link: re.Match[str]) -> str:
        target = link["target"]
        here = "://" not in target and (page.parent / target.partition("#")[0]).is_dir()
        return link["words"] if here and not target.startswith("#") else link[0]

    return LINK.sub(plain, text)


def _copied(file: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, target)


def build(output: Path, version: str, root: Path = ROOT) -> Path:
    """Build the site of this version into a folder of its own, and return it. Raises Unbuilt for a fault of a page."""
    site = output / version
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "source"
        stage(source, root)
        with (Path(name) / "log").open("w+", encoding="utf-8") as log:
            settings = {**SETTINGS, "release": version, "html_title": f"Slicewarden {version}"}
            app = Sphinx(source, None, site, Path(name) / "doctrees", "html", settings, None, log)
            app.build(force_all=True)
            log.seek(0)
            if faults := log.read().replace(f"{source}/", "").strip():
                raise Unbuilt(faults)
    listed(output)
    return site


def listed(output: Path) -> None:
    """Write the first page of a folder of versions, which leads to the newest, and their list, versions.json."""
    found = sorted((path.parent.name for path in output.glob("*/README.html")), key=_order, reverse=True)
    (output / "versions.json").write_text(json.dumps(found) + "\n", "utf-8")
    (output / "index.html").write_text(
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Slicewarden</title>'
        f'<meta http-equiv="refresh" content="0; url={found[0]}/README.html">'
        + "".join(f'<p><a href="{name}/README.html">{name}</a></p>' for name in found)
        + "</html>\n",
        "utf-8",
    )


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def main() -> None:
    """Build the site; a fault of a page ends it with status 1."""
    parser = argparse.ArgumentParser(prog="python -m docs.site", description="Build the documentation as a site.")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "site", help="the folder of all versions")
    output = parser.parse_args().output
    try:
        print(build(output, release.needed()) / "README.html")
    except Unbuilt as fault:
        print(fault, file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
