"""The values that a kustomization gives to a chart: kustomize is asked which file helm would get."""

import json
import subprocess
from pathlib import Path
from random import Random
from typing import Any

import yaml

from webhook.documents.merged_values import merged
from webhook.repository.tree import Tree

RELEASES = 100

HELM = """#!/bin/sh
[ "$1" = version ] && echo v3.15.0 && exit
name=$2
for each; do [ "$before" = -f ] && cat "$each" >"HERE/made-$name"; before=$each; done
printf 'apiVersion: v1\\nkind: ConfigMap\\nmetadata: {name: %s}\\n' "$name"
"""
"""A program in place of helm, which keeps the values that it gets."""

LEAVES = ("1", "1.5", "012", "x", "yes", "'yes'", "off", "true", "null", "~", "", "'null'", "[]", "{}", "[1, null]")


def text(random: Random, depth: int = 0) -> str:
    """Write values as people do."""
    if depth and random.random() < (0.4, 0.6, 1)[depth - 1]:
        return random.choice((*LEAVES, "[{a: , b: yes}]", "2001-01-01", "!x 1"))
    keys = random.sample(("a", "b", "c", "on", "1", "apiVersion", "kind"), k=random.choice((1, 2, 3)))
    return "{" + ", ".join(f"{key}: {text(random, depth + 1)}" for key in keys) + "}"


def test_values_are_merged_as_kustomize_does(programs: dict[str, Path], tmp_path: Path) -> None:
    random, entries, expected = Random("values"), list[Any](), dict[str, Any]()  # noqa: S311 - no secret
    chart = tmp_path / "charts/c"
    chart.mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: c\nversion: 0.1.0\n")
    for number in range(RELEASES):
        file, more = tmp_path / f"v{number}.yaml", random.choice(("", "", "\n---\na: 2\n", "\n---\n"))
        file.write_text(text(random) + more)
        inline = yaml.safe_load(text(random).replace("!x ", "").replace("{on", "{'on'").replace(" on", " 'on'"))
        inline = json.loads(json.dumps(inline, default=str))
        merge, name = random.choice(("merge", "override", "override", "replace", "")), f"r{number}"
        entry = {"name": "c", "releaseName": name, "valuesFile": file.name, "valuesInline": inline}
        entries.append({**entry, **({"valuesMerge": merge} if merge else {})})
        read = Tree(str(tmp_path)).first(str(file)).value
        values, doubt = merged(file.read_bytes(), read, inline, merge)
        if not doubt:
            expected[name] = json.loads(values[0])
    (tmp_path / "helm").write_text(HELM.replace("HERE", str(tmp_path)))
    (tmp_path / "helm").chmod(0o700)
    asked, wrong = 0, []
    for number in range(RELEASES):  # kustomize refuses some
        (tmp_path / "kustomization.yaml").write_text(json.dumps({"helmCharts": [entries[number]]}))
        command: list[str | Path] = [
            programs["kubectl"],
            "kustomize",
            "--enable-helm",
            "--helm-command",
            tmp_path / "helm",
            tmp_path,
        ]
        subprocess.run(command, capture_output=True, check=False)
        file = tmp_path / f"made-r{number}"
        if f"r{number}" in expected and file.exists():
            asked += 1
            made = yaml.safe_load(file.read_text())
            if made != expected[f"r{number}"]:
                wrong.append((number, entries[number], made, expected[f"r{number}"]))
    assert not wrong, wrong[:3]
    assert asked > RELEASES // 8
