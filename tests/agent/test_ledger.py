"""The ledger: written whole or not at all, read whatever is in it, and held by one agent of a node."""

import math
import os
import random
import stat
from pathlib import Path
from typing import Any

import pytest

from webhook.agent.turns import ledger
from webhook.agent.turns.freezer import own
from webhook.agent.turns.ledger import Entries, Ledger

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
    assert (first.take(), first.locked) == ("", True)
    assert first.take() == ""
    assert (second.take(tries=1), second.locked) == ("another agent runs on this node", False)
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


# What somebody leaves in the folder who should not be able to


HOSTILE = {
    "a link": lambda file, other: file.symlink_to(other),
    "a second name": lambda file, other: os.link(other, file),
    "a pipe": lambda file, _: os.mkfifo(file),
    "a folder": lambda file, _: file.mkdir(),
    "a link to nothing": lambda file, other: file.symlink_to(other.with_name("none")),
}


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A file outside of the folder, which nobody may write to, lock, read or touch."""
    file = tmp_path / "other"
    file.write_text(LINE)
    os.utime(file, ns=(1, 1))
    return file


@pytest.mark.parametrize("name", [ledger.FILE, ledger.FRESH, ledger.LOCK])
@pytest.mark.parametrize("plant", HOSTILE.values(), ids=HOSTILE)
def test_nothing_that_is_planted_in_the_folder_is_followed(tmp_path: Path, other: Path, name: str, plant: Any) -> None:
    book = Ledger(tmp_path / "run")
    book.folder.mkdir(mode=0o700)
    plant(book.folder / name, other)
    took, wrote = book.take(tries=1), book.write({OTHER: 1.0})
    assert other.read_text() == LINE
    assert (other.stat().st_mtime_ns, other.with_name("none").exists()) == (1, False)
    if took or wrote:  # it fails, and says why: then nothing is frozen
        assert (took or wrote).startswith(f"{book.folder}: ")
    else:
        assert book.read() == Entries({OTHER: 1.0})
        assert name == ledger.FRESH or stat.S_ISREG((book.folder / name).lstat().st_mode)
    book.leave()


def test_a_device_is_not_even_opened(tmp_path: Path) -> None:
    book = Ledger(tmp_path / "run")
    book.folder.mkdir(mode=0o700)
    try:
        os.mknod(book.folder / ledger.LOCK, stat.S_IFCHR | 0o600, os.makedev(10, 130))  # of a watchdog
    except PermissionError:
        pytest.skip("only root makes devices")
    assert book.take(tries=1) == f"{book.folder}: {ledger.LOCK} is not a file of the agent; remove it"


def test_a_folder_that_is_a_link_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "run").symlink_to(tmp_path / "elsewhere")
    book = Ledger(tmp_path / "run")
    assert book.take(tries=1)
    assert book.write({PATH: 1.0})
    assert [*(tmp_path / "elsewhere").iterdir()] == []


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o720, 0o702])
def test_by_a_folder_that_others_may_write_into_nothing_is_frozen(tmp_path: Path, mode: int) -> None:
    book = Ledger(tmp_path / "run")
    book.folder.mkdir()
    book.folder.chmod(mode)
    why = f"{book.folder}: its mode is {mode:o}, so others may write into it; remove it"
    assert (book.take(tries=1), book.write({PATH: 1.0}), f"{book.folder}: {book.trouble}") == (why, why, why)
    assert [*book.folder.iterdir()] == []


def test_the_folder_as_the_kubelet_makes_it_is_closed_to_others_first(tmp_path: Path) -> None:
    """A hostPath of type DirectoryOrCreate has mode 0755 (kubernetes pkg/volume/hostpath)."""
    book = Ledger(tmp_path / "run")
    book.folder.mkdir()
    book.folder.chmod(0o755)
    assert book.write({PATH: 1.0}) == f"{book.folder}: its mode is 755, but must be 700"
    assert (book.take(), book.write({PATH: 1.0}), book.trouble) == ("", "", "")
    assert stat.S_IMODE(book.folder.stat().st_mode) == 0o700
    book.folder.chmod(0o777)  # by whoever could, while the agent lives
    assert book.write({OTHER: 1.0})
    assert book.read() == Entries({PATH: 1.0})
    book.leave()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_by_a_folder_of_another_user_nothing_is_frozen(tmp_path: Path) -> None:
    book = Ledger(tmp_path / "run")
    book.folder.mkdir(mode=0o700)
    os.chown(book.folder, 65532, 65532)
    why = f"{book.folder}: it belongs to the user 65532, and not to the agent's (0)"
    assert (book.take(tries=1), book.write({PATH: 1.0})) == (why, why)
    os.chown(book.folder, 0, 0)
    (book.folder / ledger.LOCK).touch(mode=0o600)
    os.chown(book.folder / ledger.LOCK, 65532, 65532)
    assert book.take(tries=1) == f"{book.folder}: {ledger.LOCK} is not a file of the agent; remove it"


@pytest.mark.parametrize("again", [False, True])
def test_an_agent_whose_lock_was_taken_out_of_the_folder_freezes_nobody(tmp_path: Path, again: bool) -> None:
    book = Ledger(tmp_path / "run")
    assert (book.take(), book.write({PATH: 1.0})) == ("", "")
    (book.folder / ledger.LOCK).unlink()
    if again:
        (book.folder / ledger.LOCK).touch(mode=0o600)
    assert book.write({OTHER: 1.0}) == f"{book.folder}: {ledger.LOCK} was {'replaced' if again else 'removed'}"
    assert book.read() == Entries({PATH: 1.0})
    book.leave()
