"""Keeps the usage record of a node in one SQLite file, which survives the agent's death and the node's restart.

Each save is one transaction with SQLite's rollback journal, so a killed agent leaves the last save. The folder must be
the agent's own (see `private`). Nothing here raises: if the file cannot be used, the agent counts on in memory.
"""

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from webhook.usage import hourly, private
from webhook.usage.account import KEPT_HOURS
from webhook.usage.record import (
    HOUR,
    MAXIMA,
    REST,
    Amounts,
    Book,
    CardAmounts,
    CardKey,
    HolderKey,
    HourAmounts,
    PoolHour,
    SeenHours,
    SlicedCard,
    gathered,
)

FOLDER = Path("/var/lib/slicewarden")

FILE, ASIDE = "usage.sqlite", "usage.sqlite.damaged-"

VERSION = 2
"""The version of the tables, in the file's `user_version`. Version 1 had no `even`."""

MOST_ROWS = 50_000
"""Maximum number of rows of containers in a file: about 10 MiB, or 50 with the longest names.

The most distant hours are added up by namespace first, because a tenant may start any number of pods, and then removed.
"""

MOST_ASIDE = 3
"""Maximum number of damaged files that are kept."""

LONGEST_TEXT = 512
"""Maximum characters of a name in a row. Kubernetes allows 253, and a workload is a kind and a name."""

WAIT = 1.0
"""Seconds that a reader or writer waits for another one."""

SHARED = f"{FILE}: another agent saves there too; the last minute is left out"
"""Why nothing was saved: it may have been counted twice."""

_SCHEMA = f"""
CREATE TABLE cards (hour INTEGER, card TEXT, pool TEXT, product TEXT, {", ".join(CardAmounts._fields)},
    PRIMARY KEY (hour, card, pool, product)) WITHOUT ROWID;
CREATE TABLE holders (hour INTEGER, card TEXT, pool TEXT, product TEXT, namespace TEXT, workload TEXT, pod TEXT,
    container TEXT, {", ".join(Amounts._fields)},
    PRIMARY KEY (hour, card, pool, product, namespace, workload, pod, container)) WITHOUT ROWID;
CREATE TABLE last (one INTEGER PRIMARY KEY CHECK (one = 1), node TEXT, boot TEXT, at INTEGER, wall INTEGER, cards TEXT);
PRAGMA user_version = {VERSION};
"""

_FROM_1 = f"""
ALTER TABLE holders ADD COLUMN even INTEGER NOT NULL DEFAULT 0;
PRAGMA user_version = {VERSION};
"""

_SUMS = ", ".join(
    f"{'max' if number >= len(Amounts._fields) - MAXIMA else 'sum'}({name})"
    for number, name in enumerate(Amounts._fields)
)
_HOURS = 2**24
"""More than any hour from 1970, so that the largest `peak * _HOURS + _HOURS - 1 - hour` has the first hour of the peak.

A window function would sort all rows again, which takes three times as long.
"""

_CARD_SUMS = ", ".join(f"sum({name})" for name in CardAmounts._fields)


class SavedAt(NamedTuple):
    """The time of a node's last save, by a boot's monotonic clock and by the wall clock (ms), and its cards."""

    node: str
    boot: str
    at: int
    wall: int
    cards: tuple[SlicedCard, ...] = ()


class DamagedRecord(ValueError):
    """A file has values that no agent writes."""


class UsageStore:
    """The file of the usage record in a folder. Every method returns the reason of a failure, or an empty text."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self.folder = folder
        self._known: SavedAt | None = None

    def load(self) -> tuple[SavedAt | None, str]:
        """Read the last save of the node; None if it was never saved. A damaged file is moved aside."""
        try:
            self._prepare()
            with closing(self._open()) as file:
                self._known = _last(file)
                return self._known, ""
        except (OSError, sqlite3.Error, DamagedRecord) as error:
            return None, self._failed(error)

    def save(self, book: Book, last: SavedAt) -> str:
        """Add the rows of a book, and remove the oldest ones.

        If another process has saved meanwhile, it adds none and returns SHARED.
        """
        try:
            self._prepare()
            with closing(self._open()) as file:
                file.execute("BEGIN IMMEDIATE")
                found, known = _last(file), self._known
                self._known = found
                if None not in (found, known) and found != known:
                    return SHARED
                _add(file, book)
                _prune(file, last.wall // HOUR)
                cards = json.dumps(last.cards)
                file.execute("INSERT OR REPLACE INTO last VALUES (1, ?, ?, ?, ?, ?)", (*last[:4], cards))
                file.execute("COMMIT")
                self._known = last
        except (OSError, sqlite3.Error, ValueError, OverflowError) as error:  # also for a text that is no Unicode
            return self._failed(error)
        return ""

    def read(self, since: int, most: int) -> tuple[Book, str]:
        """Read the sums of all hours from `since` on, in rows whose hour is 0. `most` limits them as in `gathered`."""
        try:
            if not (self.folder / FILE).exists():
                return Book(), ""
            self._prepare()
            with closing(self._open()) as file:
                return _sums(file, since, most), ""
        except (OSError, sqlite3.Error, DamagedRecord) as error:
            return Book(), self._failed(error, move=False)

    def _prepare(self) -> None:
        """Make and check the folder, and check the file. Raises OSError."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with private.opened(self.folder) as (folder, about):
            if not private.foreign(about):
                os.fchmod(folder, 0o700)
            if why := private.trouble(os.fstat(folder)):
                raise OSError(0, f"{self.folder}: {why}")
            with suppress(FileNotFoundError):
                os.close(private.plain(FILE, os.O_RDONLY, folder))

    def _open(self) -> sqlite3.Connection:
        """Open the file, and make its tables if it is new. Raises sqlite3.Error and DamagedRecord."""
        file = sqlite3.connect(self.folder / FILE, timeout=WAIT, isolation_level=None)
        try:
            file.execute("PRAGMA synchronous = FULL")
            file.execute("PRAGMA temp_store = MEMORY")  # the agent's own file system is read-only
            (version,) = file.execute("PRAGMA user_version").fetchone()
            if not version:
                file.executescript(f"BEGIN IMMEDIATE;\n{_SCHEMA}COMMIT;")
            elif version == 1:
                file.executescript(f"BEGIN IMMEDIATE;\n{_FROM_1}COMMIT;")
            elif version != VERSION:
                raise DamagedRecord(f"its version is {version}, and this agent writes {VERSION}")
        except BaseException:
            file.close()
            raise
        return file

    def _failed(self, error: Exception, *, move: bool = True) -> str:
        """Return why the file cannot be used. A damaged one is moved aside, so that the next save begins a new one."""
        why = str(error.strerror or error) if isinstance(error, OSError) else str(error)
        damaged = isinstance(error, DamagedRecord) or (
            isinstance(error, sqlite3.DatabaseError) and not isinstance(error, _PASSING)
        )
        if not (damaged and move):
            return f"{FILE}: {why}"
        for count in range(1, MOST_ASIDE + 1):
            aside = self.folder / f"{ASIDE}{count}"
            if os.path.lexists(aside):
                continue
            try:
                (self.folder / FILE).rename(aside)
                (self.folder / f"{FILE}-journal").unlink(missing_ok=True)
            except OSError as other:
                return f"{FILE}: {why}; it cannot be moved aside: {other.strerror}"
            return f"{FILE}: {why}; it was moved to {aside.name}"
        return f"{FILE}: {why}; {MOST_ASIDE} damaged files are there already: remove them"


_PASSING = (sqlite3.OperationalError, sqlite3.ProgrammingError, sqlite3.InterfaceError)
"""Errors of a full disk, of rights or of a lock, and not of the file's content."""


def read_file(path: Path, since: int | None, most: int) -> tuple[SavedAt | None, Book]:
    """Read a copy of a node's file, which anyone may have written: its last save, and the sums of the last hours.

    `since` is the number of hours before its last save; None for all. Raises OSError, sqlite3.Error and DamagedRecord.
    """
    path.open("rb").close()  # for the system's message
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=WAIT)) as file:
        steps = iter(range(_MOST_STEPS))
        file.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1_000_000)
        file.set_progress_handler(lambda: next(steps, None) is None, 1000)
        file.execute("PRAGMA trusted_schema = OFF")
        tables = {name for (name,) in file.execute("SELECT name FROM sqlite_schema WHERE type = 'table' LIMIT 100")}
        if not {"cards", "holders", "last"} <= tables:
            raise DamagedRecord("it is not a usage record of a node")
        if file.execute("PRAGMA user_version").fetchone() == (1,):
            file.execute("PRAGMA temp_store = MEMORY")
            file.execute("CREATE TEMP VIEW holders AS SELECT *, 0 AS even FROM main.holders")
        last = _last(file)
        first = 0 if since is None or last is None else last.wall // HOUR - since + 1
        return last, _sums(file, first, most)


_MOST_STEPS = 200_000
"""Thousands of SQLite's instructions that reading a file may take."""


def _last(file: sqlite3.Connection) -> SavedAt | None:
    row = file.execute("SELECT node, boot, at, wall, cards FROM last WHERE one = 1").fetchone()
    if row is None:
        return None
    node, boot, at, wall = text(row[0]), text(row[1]), number(row[2]), number(row[3])
    try:
        cards = tuple(
            SlicedCard(text(uuid), number(slices), text(pool), text(product))
            for uuid, slices, pool, product in json.loads(row[4])
        )
    except (ValueError, TypeError, RecursionError) as error:
        raise DamagedRecord("its list of cards cannot be read") from error
    return SavedAt(node, boot, at, wall, cards)


def _add(file: sqlite3.Connection, book: Book) -> None:
    """Add the rows of a book to those of the same hours. Raises sqlite3.Error and DamagedRecord."""
    for hour in sorted({key.hour for key in book.cards} | {key.hour for key in book.holders}):
        cards = _card_rows(file.execute("SELECT * FROM cards WHERE hour = ?", (hour,)))
        holders = [*_holder_rows(file.execute("SELECT * FROM holders WHERE hour = ?", (hour,)))]
        new = Book(
            {key: each for key, each in book.cards.items() if key.hour == hour},
            {key: each for key, each in book.holders.items() if key.hour == hour},
        )
        merged = gathered(cards, holders, most=len(holders) + 1).plus(new)
        _write(file, "cards", merged.cards)
        _write(file, "holders", merged.holders)


def _write(
    file: sqlite3.Connection, table: str, rows: Mapping[CardKey, CardAmounts] | Mapping[HolderKey, Amounts]
) -> None:
    values = [(*key, *amounts) for key, amounts in rows.items()]
    if values:
        places = ", ".join("?" * len(values[0]))
        file.executemany(f"INSERT OR REPLACE INTO {table} VALUES ({places})", values)  # noqa: S608 - a name of ours


def _prune(file: sqlite3.Connection, now: int) -> None:
    """Add up or remove the hours most distant from the present one, until few enough rows are left.

    The distance decides, so that a clock that was wrong for a while does not remove all others. Raises sqlite3.Error
    and DamagedRecord.
    """
    counts = dict(file.execute("SELECT hour, 0 FROM cards GROUP BY hour"))
    counts |= dict(file.execute("SELECT hour, count(*) FROM holders GROUP BY hour"))
    rows, near = sum(counts.values()), sorted(counts, key=lambda hour: (abs(hour - now), hour))
    whole = {hour for (hour,) in file.execute("SELECT DISTINCT hour FROM holders WHERE pod != ?", (REST,))}
    for hour in near[:0:-1]:  # but not the nearest
        if rows <= MOST_ROWS:
            break
        if hour in whole:
            counts[hour], before = _fold(file, hour), counts[hour]
            rows += counts[hour] - before
    while near and (len(near) > KEPT_HOURS or rows > MOST_ROWS):
        hour = near.pop()
        rows -= counts[hour]
        file.execute("DELETE FROM cards WHERE hour = ?", (hour,))
        file.execute("DELETE FROM holders WHERE hour = ?", (hour,))


def _fold(file: sqlite3.Connection, hour: int) -> int:
    """Add up an hour's rows by namespace. Returns how many are left. Raises sqlite3.Error and DamagedRecord."""
    rows = _holder_rows(file.execute("SELECT * FROM holders WHERE hour = ?", (hour,)))
    folded = gathered((), ((key.folded(namespace=True), used) for key, used in rows)).holders
    file.execute("DELETE FROM holders WHERE hour = ?", (hour,))
    _write(file, "holders", folded)
    return len(folded)


def _sums(file: sqlite3.Connection, since: int, most: int) -> Book:
    """Return the sums of the hours from `since` on. Raises sqlite3.Error and DamagedRecord."""
    names = ", ".join(CardKey._fields[1:])
    cards = file.execute(
        f"SELECT 0, {names}, {_CARD_SUMS} FROM cards WHERE hour >= ? GROUP BY {names} LIMIT {MOST_ROWS}",  # noqa: S608
        (since,),
    )
    names = ", ".join(HolderKey._fields[1:])
    holders = file.execute(
        f"SELECT 0, {names}, {_SUMS}, min(hour), max(hour), max(peak * {_HOURS} + {_HOURS} - 1 - hour) "  # noqa: S608
        f"FROM holders WHERE hour >= ? GROUP BY {names} ORDER BY sum(held) DESC LIMIT {MOST_ROWS}",
        (since,),
    ).fetchall()
    rows = [*_holder_rows(row[:-3] for row in holders)]
    book = gathered(_card_rows(cards), rows, most)
    hours = (
        (key, _seen(used.peak, *row[-3:]))
        for (key, used), row in zip(rows, holders, strict=True)
        if key in book.holders and key.pod != REST
    )
    return replace(book, hours=dict(hours), hourly=_hourly(file, since))


def _hourly(file: sqlite3.Connection, since: int) -> dict[PoolHour, HourAmounts]:
    """Return what became of the slices of each hour from `since` on. Raises sqlite3.Error and DamagedRecord."""
    cards = file.execute(f"SELECT * FROM cards WHERE hour >= ? LIMIT {MOST_ROWS}", (since,))  # noqa: S608
    seen = "(working + idle + unmeasured)"
    holders = file.execute(
        f"SELECT hour, pool, sum(held * working / {seen}), sum(held * idle / {seen}) FROM holders "  # noqa: S608
        f"WHERE hour >= ? AND card != '' AND {seen} > 0 GROUP BY hour, pool LIMIT {MOST_ROWS}",
        (since,),
    )
    parts = {PoolHour(number(hour), text(pool)): (number(work), number(rest)) for hour, pool, work, rest in holders}
    return hourly.of_rows(_card_rows(cards), parts)


def _seen(peak: int, first: Any, last: Any, top: Any) -> SeenHours:
    """Return the hours of a container; `top` has its peak, and the first hour of that. Raises DamagedRecord."""
    reached = _HOURS - 1 - number(top) % _HOURS
    if not number(first) <= reached <= number(last):
        raise DamagedRecord("it has an hour that cannot be")
    return SeenHours(first, last, peak, reached)


def _card_rows(rows: sqlite3.Cursor) -> Iterator[tuple[CardKey, CardAmounts]]:
    """Check rows, since anyone may have written a file. Raises DamagedRecord."""
    for hour, card, pool, product, *amounts in rows:
        key = CardKey(number(hour), text(card), text(pool), text(product))
        yield key, CardAmounts(*map(number, amounts))


def _holder_rows(rows: Iterable[Sequence[Any]]) -> Iterator[tuple[HolderKey, Amounts]]:
    """Check rows, since anyone may have written a file. Raises DamagedRecord."""
    texts = len(HolderKey._fields) - 1
    for hour, *values in rows:
        yield HolderKey(number(hour), *map(text, values[:texts])), Amounts(*map(number, values[texts:]))


def text(value: Any) -> str:
    """Return a value from a file if it is a valid name. Raises DamagedRecord if not."""
    if not isinstance(value, str) or len(value) > LONGEST_TEXT:
        raise DamagedRecord("it has a name that is too long, or no text")
    return value


def number(value: Any) -> int:
    """Return a value from a file if it is a valid amount. Raises DamagedRecord if not."""
    if type(value) is not int or not 0 <= value < 2**62:
        raise DamagedRecord("it has an amount that is no whole number")
    return value
