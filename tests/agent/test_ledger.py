"""The ledger: written whole or not at all, read whatever is in it, and held by one agent of a node."""

import math
import os
import random
from pathlib import Path

import pytest

from webhook.agent.freezer import own
from webhook.agent.ledger import Entries, Ledger

ID, UID = "ab" * 32, "11111111-2222-3333-4444-555555555555"
PATH, OTHER = f"/kubepods/pod{UID}/{ID}", f"/kubepods/pod{UID}/{'cd' * 32}"
LINE = f"12.5 {PATH}\n"


def test_what_is_written_is_read(tmp_path: Path) -> None:
    book = Ledger(tmp_path)
    assert book.read() == Entries({})
    assert book.write({PATH: 12.5, OTHER: 0.0}) == ""
    assert book.read() == Entries({PATH: 12.5, OTHER: 0.0})
    assert book.write({}) == ""
    assert book.read() == Entries({})
    assert [file.name for file in tmp_path.iterdir()] == ["frozen"]


@pytest.mark.parametrize(
    ("text", "read", "strange"),
    [
        ("", {}, 0),
        (f"12.5 {PATH}", {PATH: 12.5}, 0),
        (LINE + f"13.5 {OTHER[:-1]}", {PATH: 12.5}, 1),
        (f"soon {PATH}\n", {PATH: -math.inf}, 0),
        (f"nan {PATH}\ninf {OTHER}\n", {PATH: -math.inf, OTHER: -math.inf}, 0),
        ("9 /\n9 /kubepods\n9 ../../etc\n9 /proc/1\n", {}, 4),
        (f"9 /kubepods/../kubepods/pod{UID}/{ID}\n", {}, 1),
        ('["a foreign file"]\n', {}, 1),
        (LINE + "\0\0\0\n", {PATH: 12.5}, 1),
    ],
)
def test_what_can_be_read_of_a_torn_or_foreign_ledger_is_read(
    tmp_path: Path, text: str, read: dict[str, float], strange: int
) -> None:
    (tmp_path / "frozen").write_text(text)
    assert Ledger(tmp_path).read() == Entries(read, strange)


def test_of_a_huge_ledger_its_beginning_is_read(tmp_path: Path) -> None:
    (tmp_path / "frozen").write_text(LINE + "x" * 2**20)
    assert Ledger(tmp_path).read() == Entries({PATH: 12.5}, 1)


def test_a_ledger_that_is_no_file_of_ours_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text(LINE)
    (tmp_path / "frozen").symlink_to(tmp_path / "elsewhere")
    assert Ledger(tmp_path).read() == Entries({}, 1)
    (tmp_path / "frozen").unlink()
    os.mkfifo(tmp_path / "frozen")
    assert Ledger(tmp_path).read() == Entries({}, 1)
    (tmp_path / "frozen").unlink()
    (tmp_path / "frozen").mkdir()
    assert Ledger(tmp_path).read() == Entries({}, 1)


def test_no_bytes_make_a_ledger_raise(tmp_path: Path) -> None:
    rng, book = random.Random(19), Ledger(tmp_path)  # noqa: S311
    whole = (LINE * 3).encode()
    for _ in range(300):
        data = bytearray(whole[: rng.randrange(len(whole))])
        for _ in range(rng.randrange(4)):
            data.insert(rng.randrange(len(data) + 1), rng.randrange(256))
        (tmp_path / "frozen").write_bytes(data)
        assert all(map(own, book.read().until))


def test_one_agent_of_a_node_has_the_ledger(tmp_path: Path) -> None:
    first, second = Ledger(tmp_path / "run"), Ledger(tmp_path / "run")
    assert (first.take(), first.held) == ("", True)
    assert first.take() == ""
    assert (second.take(tries=1), second.held) == ("another agent runs on this node", False)
    first.leave()
    assert second.take() == ""
    second.leave()


def test_each_look_leaves_its_mark(tmp_path: Path) -> None:
    book, reader = Ledger(tmp_path), Ledger(tmp_path)
    assert reader.beaten == 0
    book.take()
    before = reader.beaten
    book.beat()
    assert reader.beaten >= before > 0
    book.leave()


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    book = Ledger(tmp_path / "file")
    assert book.take() == f"{tmp_path / 'file'}: File exists"
    assert book.write({PATH: 1.0}).startswith(str(tmp_path / "file"))
    assert book.read() == Entries({}, 1)


def test_a_full_disk_leaves_the_ledger_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = Ledger(tmp_path)
    book.write({PATH: 12.5})

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    assert book.write({OTHER: 1.0}) == f"{tmp_path}: No space left on device"
    monkeypatch.undo()
    assert book.read() == Entries({PATH: 12.5})
