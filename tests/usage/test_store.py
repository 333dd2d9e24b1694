"""The file of a node: it keeps what was saved whatever ends the agent, and no state of it stops the agent."""

import resource
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from webhook.usage.account import KEPT_HOURS
from webhook.usage.record import HOUR, MOST, Amounts, Book, CardAmounts, CardKey, HolderKey, SlicedCard
from webhook.usage.store import FILE, MOST_ASIDE, DamagedRecord, SavedAt, UsageStore, read_file

NOW = 490_000
CARD = SlicedCard("GPU-a", 4, "shared", "NVIDIA-A10")
LAST = SavedAt("node-1", "boot-1", 5000, NOW * HOUR + 5, (CARD,))


def key(hour: int = NOW, pod: str = "a", namespace: str = "team") -> HolderKey:
    return HolderKey(hour, "GPU-a", "shared", "NVIDIA-A10", namespace, "Job/j", pod, "main")


def book(hour: int = NOW, held: int = 10, **more: str) -> Book:
    card = CardKey(hour, "GPU-a", "shared", "NVIDIA-A10")
    return Book(
        {card: CardAmounts(10, 40, held, 40 - held, 0)},
        {key(hour, **more): Amounts(held=held, working=held, peak=hour - NOW + 500, cap=900)},
    )


def read(store: UsageStore, since: int = 0) -> Book:
    found, why = store.read(since, MOST)
    assert not why
    return found


@pytest.fixture
def store(tmp_path: Path) -> UsageStore:
    return UsageStore(tmp_path / "usage")


def test_what_is_saved_is_added_and_read(store: UsageStore) -> None:
    assert store.load() == (None, "")
    assert store.save(book(), LAST) == ""
    assert store.save(book(), LAST) == ""
    assert store.save(book(NOW + 1), LAST) == ""
    assert store.load() == (LAST, "")
    assert read(store).holders == {key(0): Amounts(held=30, working=30, peak=501, cap=900)}
    assert read(store, NOW + 1).holders == {key(0): Amounts(held=10, working=10, peak=501, cap=900)}
    (card,) = read(store).cards.values()
    assert (card.held + card.free + card.unseen, card.counted) == (card.capacity, 30)
    assert store.folder.stat().st_mode & 0o777 == 0o700


def test_an_hour_has_a_bounded_number_of_rows_over_all_saves(store: UsageStore) -> None:
    for number in range(2 * MOST // 100 + 3):
        rows = {key(pod=f"p-{number}-{each}", namespace=f"s-{number}-{each}"): Amounts(held=1) for each in range(100)}
        assert store.save(Book(holders=rows), LAST) == ""
    found = read(store).holders
    assert len(found) <= 2 * MOST + 1
    assert sum(each.held for each in found.values()) == 100 * (2 * MOST // 100 + 3)


def test_old_hours_go_and_a_wrong_clock_does_not_take_all_others_with_it(store: UsageStore) -> None:
    many = [book(hour) for hour in range(NOW - KEPT_HOURS - 10, NOW + 1)]
    cards: dict[CardKey, CardAmounts] = {}
    holders: dict[HolderKey, Amounts] = {}
    for each in many:
        cards |= each.cards
        holders |= each.holders
    assert store.save(Book(cards, holders), LAST) == ""
    assert _hours(store) == set(range(NOW - KEPT_HOURS + 1, NOW + 1))
    assert store.save(book(NOW + 50_000), LAST._replace(wall=(NOW + 50_000) * HOUR)) == ""
    assert len(_hours(store)) == KEPT_HOURS
    assert store.save(book(NOW + 1), LAST._replace(wall=(NOW + 1) * HOUR)) == ""
    assert NOW + 50_000 not in _hours(store)
    assert len(_hours(store)) >= KEPT_HOURS - 1


def _hours(store: UsageStore) -> set[int]:
    with sqlite3.connect(store.folder / FILE) as file:
        found = {hour for (hour,) in file.execute("SELECT hour FROM cards")}
    file.close()
    return found


def test_a_row_has_a_limit_over_all_hours(store: UsageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webhook.usage.store.MOST_ROWS", 5)
    for hour in range(NOW - 8, NOW + 1):
        assert store.save(book(hour), LAST) == ""
    assert _hours(store) == set(range(NOW - 4, NOW + 1))


def test_a_tenant_with_many_pods_does_not_shorten_the_record(
    store: UsageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webhook.usage.store.MOST_ROWS", 120)
    hours = range(NOW - 30, NOW + 1)
    for hour in hours:
        rows = {key(hour, pod=f"p-{number}", namespace="many"): Amounts(held=1) for number in range(40)}
        assert store.save(Book(book(hour).cards, {**book(hour).holders, **rows}), LAST._replace(wall=hour * HOUR)) == ""
    assert _hours(store) == {*hours}
    found = read(store).holders
    sums = {name: sum(each.held for row, each in found.items() if row.namespace == name) for name in ("team", "many")}
    assert sums == {"team": 10 * len(hours), "many": 40 * len(hours)}
    with sqlite3.connect(store.folder / FILE) as file:
        ((rows_left,),) = file.execute("SELECT count(*) FROM holders")
        pods = {pod for (pod,) in file.execute("SELECT pod FROM holders WHERE hour = ?", (NOW,))}
    file.close()
    assert rows_left <= 120
    assert len(pods) == 41, "the present hour has a row for each"


def test_an_agent_that_is_killed_in_a_save_leaves_the_last_save_whole(store: UsageStore) -> None:
    """A second process saves without end and is killed; each save adds to a card's row and a container's at once."""
    program = (
        "import sys; from pathlib import Path; from tests.usage.test_store import *\n"
        "store = UsageStore(Path(sys.argv[1]))\n"
        "while True:\n    assert not store.save(book(), LAST); print('saved', flush=True)"
    )
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(store.folder)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        for _ in range(5):
            assert process.stdout.readline() == "saved\n"
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        found = read(store)
        (card,), (used,) = found.cards.values(), found.holders.values()
        assert used.held == card.held >= 50
        assert store.load() == (LAST, "")
    assert store.save(book(), LAST) == ""
    assert [file.name for file in store.folder.iterdir()] == [FILE]


def test_a_full_disk_fails_a_save_and_leaves_what_was_saved(store: UsageStore) -> None:
    """The limit of a file's size stands for the disk's."""
    assert store.save(book(), LAST) == ""
    size = (store.folder / FILE).stat().st_size
    before, ignored = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    many = Book(holders={key(pod=f"pod-{number}" + "x" * 100): Amounts(held=1) for number in range(400)})
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        assert store.save(many, LAST).startswith(f"{FILE}: ")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert read(store).holders == {key(0): Amounts(held=10, working=10, peak=500, cap=900)}
    assert store.save(many, LAST) == ""
    assert len(read(store).holders) == 401
    assert not [*store.folder.glob("*.damaged*")]


def test_a_folder_that_cannot_be_made_fails_a_save_and_a_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = UsageStore(tmp_path / "file" / "usage")
    assert store.save(book(), LAST) == f"{FILE}: Not a directory"
    assert store.load() == (None, f"{FILE}: Not a directory")
    assert store.read(0, MOST) == (Book(), "")


@pytest.mark.parametrize("text", [b"not a database at all" * 100, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_file_is_moved_aside_and_never_removed(store: UsageStore, text: bytes) -> None:
    for number in range(1, MOST_ASIDE + 1):
        assert store.save(book(), LAST) == ""
        (store.folder / FILE).write_bytes(text)
        _, why = store.load()
        assert why.endswith(f"it was moved to usage.sqlite.damaged-{number}")
        assert (store.folder / f"usage.sqlite.damaged-{number}").read_bytes() == text
        assert store.load() == (None, "")
    (store.folder / FILE).write_bytes(text)
    assert store.save(book(), LAST).endswith("remove them")
    assert (store.folder / FILE).read_bytes() == text


def test_a_file_with_torn_pages_does_not_raise(store: UsageStore) -> None:
    for number in range(20):
        rows = {key(NOW - number, pod=f"{'x' * 200}{each}"): Amounts(held=1) for each in range(20)}
        assert store.save(Book(holders=rows), LAST) == ""
    data = (store.folder / FILE).read_bytes()
    for start in range(100, len(data), len(data) // 10):
        (store.folder / FILE).write_bytes(data[:start] + b"\xa5" * 3000 + data[start + 3000 :])
        for found in store.folder.glob("*.damaged*"):
            found.unlink()
        results = store.load()[1], store.save(book(NOW - 100), LAST), store.read(0, MOST)[1]
        assert all(isinstance(each, str) for each in results)


def test_a_file_of_version_1_gets_its_new_column(store: UsageStore) -> None:
    assert store.save(book(), LAST) == ""
    with closing(sqlite3.connect(store.folder / FILE)) as file:
        file.executescript("ALTER TABLE holders DROP COLUMN even; PRAGMA user_version = 1")
    copied = read_file(store.folder / FILE, None, MOST)
    assert copied == (LAST, read(store))
    assert copied[1].holders == {key(0): Amounts(held=10, working=10, peak=500, cap=900)}
    assert UsageStore(store.folder).load() == (LAST, "")
    more = book()
    used = {each: amounts._replace(even=700) for each, amounts in more.holders.items()}
    assert store.save(Book(more.cards, used), LAST) == ""
    assert read(store).holders == {key(0): Amounts(held=20, working=20, peak=500, cap=900, even=700)}
    assert not [*store.folder.glob("*.damaged*")]


def test_a_file_of_another_version_is_moved_aside(store: UsageStore) -> None:
    assert store.save(book(), LAST) == ""
    with sqlite3.connect(store.folder / FILE) as file:
        file.execute("PRAGMA user_version = 3")
    file.close()
    assert "its version is 3" in store.load()[1]
    assert store.save(book(), LAST) == ""


def test_a_name_that_is_no_unicode_fails_a_save_alone(store: UsageStore) -> None:
    assert "surrogates" in store.save(book(pod="\ud800"), LAST)
    assert store.save(book(), LAST) == ""


def test_an_amount_that_is_too_large_fails_a_save_alone(store: UsageStore) -> None:
    assert "too large" in store.save(book(held=2**63), LAST)
    assert store.save(book(), LAST) == ""


def test_a_folder_of_others_and_a_link_are_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o777)
    (tmp_path / "open").chmod(0o777)
    assert "others may write into it" in UsageStore(tmp_path / "open").save(book(), LAST)
    (tmp_path / "mine").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    assert UsageStore(tmp_path / "link").save(book(), LAST)
    (tmp_path / "elsewhere").write_bytes(b"")
    (tmp_path / "mine" / FILE).symlink_to(tmp_path / "elsewhere")
    assert UsageStore(tmp_path / "mine").save(book(), LAST)
    assert (tmp_path / "elsewhere").read_bytes() == b""


def test_a_copy_of_the_file_is_read(store: UsageStore, tmp_path: Path) -> None:
    for hour in (NOW - 30, NOW):
        assert store.save(book(hour), LAST) == ""
    copy = tmp_path / "copy?mode=rwc#1.sqlite"
    copy.write_bytes((store.folder / FILE).read_bytes())
    copy.chmod(0o400)
    last, found = read_file(copy, 24, MOST)
    assert (last, [each.held for each in found.holders.values()]) == (LAST, [10])
    assert [each.held for each in read_file(copy, None, MOST)[1].holders.values()] == [20]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE holders SET held = 'much'",
        "UPDATE holders SET held = 1.5",
        "UPDATE holders SET held = -1",
        "UPDATE holders SET pod = printf('%.*c', 100000, 'x')",
        "UPDATE holders SET pod = x'00ff'",
        "UPDATE last SET cards = '{\"a\":'",
        "UPDATE last SET cards = '[[1, 2]]'",
        "UPDATE last SET cards = replace(printf('%.*c', 100000, 'x'), 'x', '[')",
        "UPDATE last SET wall = 'soon'",
        "DROP TABLE holders; CREATE VIEW holders AS SELECT * FROM cards",
        "DROP TABLE last",
    ],
)
def test_a_file_that_anyone_may_have_written_is_refused(store: UsageStore, statement: str) -> None:
    assert store.save(book(), LAST) == ""
    with sqlite3.connect(store.folder / FILE) as file:
        file.executescript(statement)
    file.close()
    with pytest.raises((DamagedRecord, sqlite3.Error)):
        read_file(store.folder / FILE, None, MOST)


def test_a_file_that_costs_too_much_is_refused(store: UsageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webhook.usage.store._MOST_STEPS", 1)
    rows = Book(holders={key(pod=f"pod-{number}"): Amounts(held=1) for number in range(400)})
    assert store.save(rows, LAST) == ""
    with pytest.raises(sqlite3.OperationalError):
        read_file(store.folder / FILE, None, MOST)
