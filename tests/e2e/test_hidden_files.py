"""Each file of a folder that kubectl reads is judged by `check`, or named in its note: kubectl itself is asked."""

import json
import subprocess
from itertools import product
from pathlib import Path

from webhook.documents import files

FOLDERS = (
    "",
    "v",
    ".h",
    ".h/deep",
    "v/.w",
    "v/.w/x",
    "...",
    ".github/a",
    "a.b",
    ".git",
    "v/.git/hooks",
    ".jj",
    "..2026_11",
)
NAMES = (
    *("a.yaml", ".b.yaml", ".yaml", ".yml", ".json", "c.yml", ".d.json", "e.YAML", ".f.Yaml", "g.txt", ".h.txt"),
    *("yaml", "i.yaml.bak", ".j.yaml~", "..k.yaml", "l .yaml", "-m.yaml", "n.json5"),
)
VERSIONS = (".git",)
"""Folders that `check` does not search, because no commit has one."""


def test_kubectl_reads_no_file_that_is_neither_judged_nor_named(programs: Path, tmp_path: Path) -> None:
    places = {f"n{number}": Path(*place) for number, place in enumerate(product(FOLDERS, NAMES))}
    for name, place in places.items():
        file = tmp_path / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}))
    asked = (programs / "kubectl", "annotate", "--local", "--output=name", "-R", "-f", tmp_path, "a=b")
    answer = subprocess.run(asked, capture_output=True, text=True, check=True, env={"HOME": str(tmp_path)})
    theirs = {places[line.removeprefix("pod/")] for line in answer.stdout.split()}
    found = {str(name) for name in files.find([str(tmp_path)])}
    named = set(files.hidden([str(tmp_path)]))
    assert found.isdisjoint(named)
    ours = {Path(name).relative_to(tmp_path) for name in found | named}
    kept = {place for place in theirs if not set(VERSIONS).isdisjoint(place.parts)}
    assert theirs - ours == kept
    assert ours - theirs == {place for place in ours if place.suffix == ".YAML"}
    assert len(kept) < len(theirs) // 2
