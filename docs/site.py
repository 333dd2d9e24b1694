"""Builds the documentation as a site without a server: `make site`, or `python -m docs.site --output FOLDER`.

The pages stay as they are, for readers of the repository. Sphinx builds a copy of them. The index, docs/README.md,
becomes the navigation, and each other file of the repository that a page links to is copied too. Only files that Git
knows are read, and none outside the repository. The output has a folder for each version, and opens at the newest.
"""

import argparse
import json
import posixpath
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

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


def tracked(root: Path) -> Mapping[str, Path]:
    """Return the files that Git knows by their names, without symbolic links. Raises Unbuilt without Git."""
    command = ["git", "ls-files", "-z", "--stage"]
    done = subprocess.run(command, cwd=root, capture_output=True, check=False)  # noqa: S603
    if done.returncode:
        raise Unbuilt(f"git ls-files: {done.stderr.decode(errors='replace').strip()}")
    listed = (line.partition("\t") for line in done.stdout.decode().split("\0") if line)
    return {name: root / name for modes, _, name in listed if modes.startswith("100")}


def pages(known: Iterable[str]) -> Iterator[str]:
    """Find each page of the site: README.md, all of docs/, and the pages that people read with them."""
    yield "README.md"
    yield from sorted(name for name in known if name.startswith("docs/") and name.endswith(".md"))
    yield from (*BESIDE, *UNLISTED)


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

    A link to a folder becomes plain words, because a site has no listing of it. Raises Unbuilt for a link to something
    else that Git does not know.
    """
    known = tracked(root)
    made = dict.fromkeys(pages(known))
    for name in made:
        if name not in known:
            raise Unbuilt(f"Git knows no file {name}")
        text = known[name].read_text("utf-8")
        for target in sorted(_targets(text)):
            linked = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
            if linked in known:
                if linked not in made:
                    _copied(known[linked], folder / linked)
            elif not any(each.startswith(f"{linked}/") for each in known):
                raise Unbuilt(f"{name}: {target} is no file of the repository")
        text = _without_folders(known, name, text)
        if name == "README.md":
            text += navigation(known["docs/README.md"].read_text("utf-8"))
        elif name in UNLISTED:
            text = f"---\norphan: true\n---\n\n{text}"
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")


def _targets(text: str) -> set[str]:
    found = {link["target"].partition("#")[0] for link in LINK.finditer(FENCE.sub("", text))}
    return {target for target in found if target and "://" not in target}


def _without_folders(known: Iterable[str], page: str, text: str) -> str:
    def plain(link: re.Match[str]) -> str:
        linked = posixpath.normpath(posixpath.join(posixpath.dirname(page), link["target"].partition("#")[0]))
        folder = "://" not in link["target"] and any(each.startswith(f"{linked}/") for each in known)
        return link["words"] if folder and not link["target"].startswith("#") else link[0]

    return LINK.sub(plain, text)


def _copied(file: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, target)


def build(output: Path, version: str, root: Path = ROOT) -> Path:
    """Build the site of this version into a folder of its own, and return it. Raises Unbuilt for a fault of a page.

    Then nothing of the output has changed.
    """
    site = output / version
    with tempfile.TemporaryDirectory() as name:
        source, made = Path(name).resolve() / "source", Path(name) / "made"
        stage(source, root)
        with docutils_namespace(), (Path(name) / "log").open("w+", encoding="utf-8") as log:
            settings = {**SETTINGS, "release": version, "html_title": f"Slicewarden {version}"}
            app = Sphinx(source, None, made, Path(name) / "doctrees", "html", settings, None, log)
            app.build(force_all=True)
            log.seek(0)
            if faults := log.read().replace(f"{source}/", "").strip():
                raise Unbuilt(faults)
        read = (*app.env.dlfiles, *app.env.images, *chain.from_iterable(app.env.dependencies.values()))
        if outside := sorted(each for each in map(str, read) if not (source / each).resolve().is_relative_to(source)):
            raise Unbuilt(f"a page takes in files from outside the repository: {', '.join(outside)}")
        shutil.rmtree(site, ignore_errors=True)
        shutil.copytree(made, site)
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
