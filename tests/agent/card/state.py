"""The file that the pretended NVML answers from, and the library itself."""

import atexit
import functools
import mmap
import os
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("nvml.c")
CARDS, SLOTS, LIMITS = 4, 640, 64
SLOT, LIMIT = struct.Struct("=7Q"), struct.Struct("=512sQQ")
FIELDS = ("present", "total", "reserved", "busy", "fault", "instances", "small", "limits", "xid", "garbage")
CARD = 8 * len(FIELDS) + SLOT.size * SLOTS + LIMIT.size * LIMITS
SIZE = 8 + CARD * CARDS
MIB = 2**20

LOST, NOT_SUPPORTED = 15, 3


@functools.cache
def library() -> Path | None:
    """Build the library once for this run; None without a C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    folder = Path(tempfile.mkdtemp(prefix="pretended-nvml-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    built = folder / "libnvidia-ml.so.1"
    soname = "-Wl,-soname,libnvidia-ml.so.1"
    subprocess.run([compiler, "-std=c11", "-O1", "-shared", "-fPIC", soname, "-o", built, SOURCE], check=True)
    return built


def start_of(pid: int) -> int:
    """When a process was started, in clock ticks since boot."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


class State:
    """The cards of a node."""

    def __init__(self, file: Path, cards: int = 1, mib: int = 24576) -> None:
        self.file = file
        with file.open("wb") as fresh:
            fresh.truncate(SIZE)
        with file.open("r+b") as opened:
            self._map = mmap.mmap(opened.fileno(), SIZE)
        self._map[:8] = struct.pack("=Q", cards)
        for card in range(cards):
            self.set(card, total=mib * MIB, present=1)

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to find the library and this file."""
        built = library()
        assert built is not None
        return {**os.environ, "LD_LIBRARY_PATH": str(built.parent), "CARD_STATE": str(self.file)}

    def set(self, card: int = 0, **values: int) -> None:
        """Set fields of a card; memory is in bytes."""
        for name, value in values.items():
            at = 8 + CARD * card + 8 * FIELDS.index(name)
            self._map[at : at + 8] = struct.pack("=Q", value)

    def hold(
        self, pid: int, mib: int, *, card: int = 0, sm: int = 0, stamp: int = 1, instance: int = 0, mps: int = 0,
        slot: int | None = None, start: int | None = None,
    ) -> int:  # fmt: skip
        """Let a process hold memory of a card. Returns the slot, by which it can be changed."""
        base = 8 + CARD * card + 8 * len(FIELDS)
        if slot is None:
            slot = next(i for i in range(SLOTS) if self._word(base + SLOT.size * i) == 0)
        begin = start_of(pid) if start is None else start
        at = base + SLOT.size * slot
        self._map[at : at + SLOT.size] = SLOT.pack(pid, begin, mib * MIB, sm, stamp, instance, mps)
        return slot

    def _word(self, at: int) -> int:
        return int.from_bytes(self._map[at : at + 8], "little")

    def free(self, slot: int, card: int = 0) -> None:
        """Let a process hold nothing any more."""
        at = 8 + CARD * card + 8 * len(FIELDS) + SLOT.size * slot
        self._map[at : at + SLOT.size] = bytes(SLOT.size)

    def limits(self, card: int = 0) -> dict[str, int]:
        """The hard limits that the driver enforces, in MiB, by the path of the cgroup."""
        base = 8 + CARD * card + 8 * len(FIELDS) + SLOT.size * SLOTS
        read = (LIMIT.unpack_from(self._map, base + LIMIT.size * i) for i in range(LIMITS))
        return {path.rstrip(b"\0").decode(): hard // MIB for path, _, hard in read if path[0]}
