"""Reads and writes the state file of the simulated cards' library, with the layout of card.h."""

import fcntl
import mmap
import os
import struct
from collections.abc import Sequence
from pathlib import Path

from tests.support.card.library import library

CARDS, SLOTS, LIMITS = 4, 640, 64
WORDS, LOCK = struct.Struct("=7Q"), struct.Struct("hhqqi4x")
SLOT, LIMIT = struct.Struct("=11Q256s"), struct.Struct("=512sQQ")
FIELDS = (
    *("present", "total", "reserved", "busy", "fault", "instances", "small", "limits", "xid", "garbage"),
    *("garbage_pid", "garbage_sm", "garbage_stamp", "missing", "context", "compile"),
    *("peak", "refused"),
)
SM, QUEUED = 3 * 8, 8 * 8
"""Where a slot has the part of the SMs' time, and the work that was queued; behind each comes what belongs to it."""
TEXT = 64
HEAD, WORD = 16, 8
SLOTS_AT = WORD * len(FIELDS) + 2 * TEXT
LIMITS_AT = SLOTS_AT + SLOT.size * SLOTS
CARD = LIMITS_AT + LIMIT.size * LIMITS
SIZE = HEAD + CARD * CARDS
MIB = 2**20

LOST = 15

NO_MPS, NO_EVENTS, NO_SAMPLES, NO_RESERVED = 1, 2, 4, 8
"""What an older driver lacks: bits of a card's `missing`."""

NAME = "Pretended Card"


def uuid(card: int = 0) -> str:
    """Return the UUID of a card to which a test gave none."""
    return f"GPU-00000000-0000-0000-0000-{card:012}"


def _locked(descriptor: int, at: int) -> bool:
    """Whether another process holds the lock on a slot (man 2 fcntl, F_GETLK)."""
    asked = LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, at, 1, 0)
    kind, *_ = LOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    return bool(kind != fcntl.F_UNLCK)


def start_of(pid: int) -> int:
    """Return the start time of a process, in clock ticks since boot."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


class State:
    """The cards of a node, each with this many MiB. The file is created anew, and every user may write to it."""

    def __init__(
        self, file: Path, cards: int = 1, mib: int = 24576, *, name: str = NAME, uuids: Sequence[str] = ()
    ) -> None:
        self.file = file
        with file.open("wb") as fresh:
            fresh.truncate(SIZE)
        file.chmod(0o666)
        with file.open("r+b") as opened:
            self._map = mmap.mmap(opened.fileno(), SIZE)
        self._map[:WORD] = struct.pack("=Q", cards)
        for card in range(cards):
            self.set(card, total=mib * MIB, present=1)
            at = self._card(card) + WORD * len(FIELDS)
            texts = (uuids[card] if uuids else uuid(card)), name
            self._map[at : at + 2 * TEXT] = struct.pack(
                f"={TEXT}s{TEXT}s", *(text.encode("utf-8", "surrogateescape") for text in texts)
            )

    @classmethod
    def opened(cls, file: Path) -> "State":
        """Return the cards in an existing file."""
        made = cls.__new__(cls)
        made.file = file
        with file.open("r+b") as opened:
            made._map = mmap.mmap(opened.fileno(), SIZE)
        return made

    @property
    def environment(self) -> dict[str, str]:
        """The variables that a process needs to find the library and this file."""
        return {**os.environ, "LD_LIBRARY_PATH": str(library().parent), "CARD_STATE": str(self.file)}

    def set(self, card: int = 0, **values: int) -> None:
        """Set fields of a card; memory is in bytes."""
        for name, value in values.items():
            at = self._card(card) + WORD * FIELDS.index(name)
            self._map[at : at + WORD] = struct.pack("=Q", value)

    def get(self, name: str, card: int = 0) -> int:
        """Return a field of a card; memory is in bytes."""
        return self._word(self._card(card) + WORD * FIELDS.index(name))

    def hold(
        self, pid: int, mib: int, *, card: int = 0, sm: int = 0, stamp: int = 1, instance: int = 0, mps: int = 0,
        slot: int | None = None, start: int | None = None,
    ) -> int:  # fmt: skip
        """Record memory for a process that did not allocate it. Returns the slot, with which it can be changed."""
        base = self._card(card) + SLOTS_AT
        if slot is None:
            slot = next(i for i in range(SLOTS) if self._word(base + SLOT.size * i) == 0)
        begin = start_of(pid) if start is None else start
        at = base + SLOT.size * slot
        self._map[at : at + WORDS.size] = WORDS.pack(pid, begin, mib * MIB, sm, stamp, instance, mps)
        return slot

    def free(self, slot: int, card: int = 0) -> None:
        """Remove a process's memory."""
        at = self._card(card) + SLOTS_AT + SLOT.size * slot
        self._map[at : at + SLOT.size] = bytes(SLOT.size)

    # Time of the first card that clock.py gives out, in microseconds.

    def start(self, microseconds: int) -> None:
        """Start the clock of the simulation."""
        self._map[WORD:HEAD] = struct.pack("=Q", self._word(WORD) + microseconds)

    def due(self) -> dict[int, int]:
        """Return the queued work that is not done, by slot. The work of a process that has ended is left out."""
        found = {}
        with self.file.open("rb") as opened:
            for slot in range(SLOTS):
                at = self._card(0) + SLOTS_AT + SLOT.size * slot
                if not self._word(at):
                    break  # slots are taken from the first on
                queued, done = self._word(at + QUEUED), self._word(at + QUEUED + WORD)
                if queued > done and _locked(opened.fileno(), at):
                    found[slot] = queued - done
        return found

    def work(self, slot: int, microseconds: int) -> None:
        """Do a part of a process's queued work."""
        at = self._card(0) + SLOTS_AT + SLOT.size * slot + QUEUED + WORD
        self._map[at : at + WORD] = struct.pack("=Q", self._word(at) + microseconds)

    def sample(self, slot: int, sm: int, stamp: int) -> None:
        """Write the part of the SMs' time that a process has used."""
        at = self._card(0) + SLOTS_AT + SLOT.size * slot + SM
        self._map[at : at + 2 * WORD] = struct.pack("=QQ", sm, stamp)

    def limits(self, card: int = 0) -> dict[str, int]:
        """The hard limits that the driver enforces, in MiB, by the path of the cgroup."""
        base = self._card(card) + LIMITS_AT
        read = (LIMIT.unpack_from(self._map, base + LIMIT.size * i) for i in range(LIMITS))
        return {path.rstrip(b"\0").decode(): hard // MIB for path, _, hard in read if path[0]}

    def _card(self, card: int) -> int:
        return HEAD + CARD * card

    def _word(self, at: int) -> int:
        return int.from_bytes(self._map[at : at + WORD], "little")
