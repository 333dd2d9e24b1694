"""Small repositories in one text each: files, and the findings that are marked in them.

A text has a part for each file, after a line `-- NAME --`. A name that ends in ` -> TARGET` is a link. A mark `#! RULE
NAMESPACE/NAME` ends the line of a finding; one with `#!helm` is found only with the programs, one with `#!alone` only
without. Words that notes must have are before the first file, in lines that begin with `note: `, with `note helm: `
(with the programs) or with `note alone: ` (without them).
"""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Action
from webhook.scan import batches
from webhook.scan.results import Report

FOLDER = Path(__file__).resolve().parents[1] / "repositories"

Place = tuple[str, int, str, str]
"""A finding: its file, line and rule, and the object's namespace and name."""


class Layout(NamedTuple):
    """A repository's files, and what must be found in it: with the programs, or `alone`."""

    files: dict[str, str]
    found: set[Place]
    found_alone: set[Place]
    notes: list[str]
    notes_alone: list[str]

    def write(self, folder: Path) -> None:
        """Write the files, below a folder that has a `.git`."""
        (folder / ".git").mkdir(parents=True)
        for name, text in self.files.items():
            path, _, target = name.partition(" -> ")
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            if target:
                (folder / path).symlink_to(target)
            else:
                (folder / path).write_text(text, "utf-8")


def names() -> list[str]:
    """The names of all layouts."""
    return sorted(path.stem for path in FOLDER.glob("*.txt"))


def load(name: str) -> Layout:
    """Read a layout."""
    head, *parts = re.split(r"^-- (.+) --\n", (FOLDER / f"{name}.txt").read_text("utf-8"), flags=re.MULTILINE)
    files = dict(zip(parts[::2], parts[1::2], strict=True))
    both: tuple[set[Place], set[Place]] = (set(), set())
    for file, text in files.items():
        for number, line in enumerate(text.splitlines(), start=1):
            for when, rule, title in re.findall(r"#!(helm|alone|) ([a-z-]+) (\S+)", line):
                for places, other in zip(both, ("alone", "helm"), strict=True):
                    if when != other:
                        places.add((file, number, rule, title))
    notes = {when: re.findall(rf"^note{when}: (.+)$", head, re.MULTILINE) for when in ("", " helm", " alone")}
    return Layout(files, *both, notes[""] + notes[" helm"], notes[""] + notes[" alone"])


def judged(layout: Layout, folder: Path, engine: Engine, facts: Facts, patch: pytest.MonkeyPatch) -> Report:
    """Judge a layout that is written into a folder, which becomes the working folder."""
    repository = folder / "repository"
    layout.write(repository)
    (folder / "outside").mkdir()
    (folder / "outside" / "secret.txt").write_text("secret")
    (folder / "outside" / "kustomization.yaml").write_text("resources: [pod.yaml]\n")
    (folder / "outside" / "pod.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {hostPID: true, containers: [{name: c, image: i}]}\n"
    )
    patch.chdir(repository)
    return batches.read(["."]).judge(engine, facts, at=datetime.now(UTC))


def found(report: Report) -> set[Place]:
    """The findings that deny, by file and line."""
    return {
        (file, line, result.rule, f"{one.namespace}/{one.name}")
        for one in report.judged
        for result, file, line in one.located
        if result.action is Action.DENY
    }
