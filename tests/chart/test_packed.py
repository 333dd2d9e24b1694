"""How charts are packed: `helm package` is asked what is in the archive."""

import json
import re
from pathlib import Path
from random import Random
from typing import Any

from tests.chart.conftest import Run
from webhook.rendering import charts
from webhook.repository import packing

CHARTS = 60

PLACES = {"a": "a", "other": "_b", "_hidden": "c"}
"""The places of charts in another one, and their names."""

SPELLED = ("dependencies", "Dependencies", "dependencie\u017f")
"""Keys that Go takes for the same one."""


def files_of(random: Random, name: str = "web", depth: int = 0) -> dict[str, bytes]:
    """Make the files of a chart, which may have charts in it."""
    metadata: dict[str, Any] = {"name": name, "version": "1.0.0"}
    if version := random.choice(("v1", "v2", "v2", "")):
        metadata["apiVersion"] = version
    needs = {random.choice(SPELLED): [{"name": "a", "version": "1.x", "condition": "a.on", "repository": ""}]}
    found = {"values.yaml": b"a: 1 # b\n", "templates/p.yaml": b"x", "files/x.txt": b"y", "charts/x.tgz.prov": b"z"}
    if random.random() < 0.3:
        found["requirements.yaml"] = json.dumps(needs).encode()
    elif random.random() < 0.7:
        metadata |= needs
    found["Chart.yaml"] = json.dumps(metadata).encode()
    for place in random.sample([*PLACES], k=random.choice((1, 2, 3))) if depth < 2 else ():
        below = files_of(random, PLACES[place], depth + 1)
        if random.random() < 0.3:
            found[f"charts/{place}.tgz"] = packing.archive("x", below)
        else:
            found |= {f"charts/{place}/{path}": data for path, data in below.items()}
    return found


def about(chart: packing.Files, above: str = "") -> dict[str, Any]:
    """Return what a chart, and each one in it, says of itself and of what it needs; and its other files."""
    own = {path.removeprefix(above): data for path, data in chart.items() if path.startswith(above)}
    said = {key.casefold(): value for key, value in packing.said(own).items()}
    found: dict[str, Any] = {above: (said["name"], said["version"], said.get("dependencies") or [])}
    for place in {path.split("/")[1] for path in own if re.fullmatch("charts/[^/]+/Chart.yaml", path)}:
        found |= about(chart, f"{above}charts/{place}/")
    ignored = (packing.REQUIREMENTS, "Chart.yaml")
    return found | {
        f"{above}{path}": data for path, data in own.items() if path not in ignored and "charts/" not in path
    }


def test_a_chart_is_packed_as_helm_does(run: Run, tmp_path: Path) -> None:
    random, lost, compared = Random("packed"), 0, 0  # noqa: S311 - no secret
    for number in range(CHARTS):
        chart = files_of(random)
        folder, made = tmp_path / f"c{number}", tmp_path / f"made{number}"
        charts.write(folder, chart)
        if (done := run("helm", "package", "--version=2.0.0+x.1", "--destination", made, folder)).returncode:
            assert "missing in charts/ directory" in done.stderr
            continue
        (archive,) = made.iterdir()
        packed = packing.unpacked(archive.read_bytes())
        changed = {**packing.said(chart), "version": "2.0.0+x.1"}
        expected = packing.saved({**chart, "Chart.yaml": json.dumps(changed).encode()})
        assert about(packed) == about(expected)
        lost += about(packed)[""][2] == [] != about(chart)[""][2]
        compared += 1
    assert lost > 3
    assert compared > 20
