"""`slicewarden advise`: the table and the JSON, from agents and from files."""

import json
from pathlib import Path

import pytest

from tests.support.node_agents import cluster
from tests.support.strangers import HOSTILE, harmful
from tests.support.usage_books import A100, START, STEADY, book, usage
from webhook.cli import main as cli
from webhook.usage import document
from webhook.usage.document import NodeUsage
from webhook.usage.record import HOUR
from webhook.usage.store import FILE, SavedAt, UsageStore


def saved(folder: Path, found: NodeUsage) -> list[str]:
    (folder / "usage.json").write_text(document.write(found))
    return ["--from", str(folder / "usage.json")]


def test_each_change_has_a_line_and_an_unknown_need_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = book(STEADY).plus(book([9000] * 48, "q", namespace="other"))
    assert cli.main(["advise", *saved(tmp_path, usage(own, 48))]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = [" ".join(line.split()) for line in out.splitlines()[2:]]
    assert lines[0].endswith("slice-hours working h peak MiB mean MiB cap MiB need MiB saves h advice")
    row = "team Deployment/d main shared 48.0 24.0 4000 4000 10000 4416"
    assert lines[1:4] == [
        f"{row} - slicewarden.dev/gpu-memory: 4416Mi",
        f"{row} 20.6 a MIG device nvidia.com/mig-1g.5gb",
        "other Deployment/d main shared 48.0 24.0 9000 9000 10000 - - not known: it reserves its cap, or may: "
        "its peak is above 50% of it, or within 896 MiB",
    ]
    pool = "shared NVIDIA-A100-SXM4-40GB 4 10000 96.0"
    assert lines[6:] == [f"{pool} - - not known: the need of 1 of its 2 workloads is not known"]


def test_a_copy_of_a_nodes_file_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = UsageStore(tmp_path / "usage")
    assert store.save(book(STEADY), SavedAt("node-9", "boot", 1, (START + 47) * HOUR, (A100,))) == ""
    words = ["--from", str(tmp_path / "usage" / FILE)]
    assert cli.main(["advise", "-o", "json", *words]) == 0
    (row,) = json.loads(capsys.readouterr().out)["workloads"]
    assert (row["needMiB"], row["unknown"], row["sliceHours"], row["seenHours"]) == (4416, None, 48.0, 48.0)
    assert row["changes"][0] == {"kind": "memory", "value": "4416Mi", "savedSliceHours": 0.0}
    assert cli.main(["advise", "-o", "json", "--since", "23h", *words]) == 0
    (row,) = json.loads(capsys.readouterr().out)["workloads"]
    assert (row["unknown"], row["changes"]) == ("it was seen for 23.0 h; at least 24 h are needed", [])


def test_a_record_that_is_shorter_than_the_window_is_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = saved(tmp_path, usage(book(STEADY), 168))
    assert cli.main(["advise", *words]) == 0
    note = "not counted all the time: node-1 GPU-0: 48.0 of 168.0 h"
    assert capsys.readouterr().err == f"note: {note}\n"
    assert cli.main(["advise", "-o", "json", *words]) == 0
    assert json.loads(capsys.readouterr().out)["notes"] == [note]


@pytest.mark.parametrize(("nodes", "need"), [(["node-1"], 4416), (["node-1", "node-2"], None), (None, None)])
def test_a_silent_node_may_hide_a_peak(
    nodes: list[str] | None, need: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = {"node-1": (200, document.write(usage(book(STEADY), 48)).encode())}
    with cluster(tmp_path, answers, nodes) as options:
        assert cli.main(["advise", "-o", "json", *options]) == int(need is None)
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert [each["needMiB"] for each in found["workloads"]] == [need]
    assert len(found["unseenNodes"]) == err.count("not seen: ") == int(need is None)


@pytest.mark.parametrize("form", ["table", "json"])
def test_no_name_is_a_command(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    card = A100._replace(pool=HOSTILE, product=HOSTILE)
    wide = card._replace(uuid="GPU-1", pool=f"{HOSTILE}2", slices=8)
    own = book(STEADY, HOSTILE, card, HOSTILE, HOSTILE).plus(book(STEADY, "q", wide, "n"))
    assert cli.main(["advise", "-o", form, *saved(tmp_path, usage(own, 48, HOSTILE))]) == 0
    out, err = capsys.readouterr()
    assert "forged" in out
    assert "4416" in out
    assert (harmful(out, ""), err) == ([], "")


@pytest.mark.parametrize("hours", ["1", "[1]", "[3,2,1]", "[1,3,2.5]", '["a",1,1]', "null", "[1,1,-1]"])
def test_hours_that_no_agent_writes_are_refused(hours: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = document.write(usage(book([1]), 1))
    assert f'"hours": [{START}, {START}, {START}]' in text
    (tmp_path / "f").write_text(text.replace(f'"hours": [{START}, {START}, {START}]', f'"hours": {hours}'))
    assert cli.main(["advise", "--from", str(tmp_path / "f")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_node_without_containers_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["advise", *saved(tmp_path, NodeUsage("n", 0, 0))]) == 0
    assert capsys.readouterr().out == "nothing was counted\n"
