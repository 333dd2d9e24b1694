"""Tests on a real card which programs the agent takes for idle: each does one thing, and the agent judges each look."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import product
from typing import NamedTuple

import pynvml

from bench.gpu.containers import Containers, Program, Unwritable, containers
from bench.gpu.contention import STEP, rounds_of
from bench.gpu.nvml import Card
from bench.gpu.tables import Measured
from webhook.agent.actions import PERIOD
from webhook.agent.observe.look import look
from webhook.agent.observe.nvml import LONGEST_SAMPLE, Cards
from webhook.agent.observe.pods import ContainerName
from webhook.agent.observe.processes import Processes
from webhook.agent.observe.sight import Places, key, sight
from webhook.agent.observe.view import NodeContainer, Observation, rows
from webhook.memory.admitted import Admitted
from webhook.policy.model import Over
from webhook.usage.account import AccountState, advance, quiet
from webhook.usage.held import HeldSlices, NodeSlices

PACE = 1.0
"""Factor of all times. It is 1 on a real card."""
SETTLE, WAIT, LOOP, TOGETHER, BEATS = 2.0, 2.5, 2.5, 3.5, 10.0
"""Seconds: before the first look at new programs, of one that waits, of one loop, of all loops, of short kernels."""
LINGER = 12.0
"""Seconds within which a program that has ended its work should no longer be seen in use."""
PATIENCE = 300.0
"""Seconds after which a program that does not answer is killed."""
MIB = 128
"""What each program takes. Copies need as much."""
LENGTHS, EVERY = (0.1, 1.0, 10.0), (0.1, 1.0, 5.0)
"""Milliseconds of a short kernel, and seconds from one to the next."""

HEAD = (
    *("program", "next to it", "looks", "in use", "not known", "longest idle (s)"),
    *("most SM / memory / busy (%)", "verdict"),
)

ALONE = "nothing"
"""The words for a program that works with no other one, while the others hold memory and wait."""

UNTRIED = "not tried: the video encoder and decoder, clients of MPS, MIG devices"


class Doing(NamedTuple):
    """What a program does, and the command for it without the milliseconds; empty for one that waits.

    `seen` is whether it works, so that it may not be taken for idle; None if either judgement is right.
    """

    what: str
    command: str
    seen: bool | None


WAITS = Doing("holds memory and waits", "", False)
RESTS = Doing("all of these, after their work", "", None)
LOOPS = (
    Doing("copies to the card", "upload", True),
    Doing("copies to the card, pageable", "upload-paged", True),
    Doing("copies from the card", "download", True),
    Doing("copies on the card", "move", True),
    Doing("sets memory", "fill", True),
)


class Watched(NamedTuple):
    """A program on the card, with the key of its container."""

    doing: Doing
    program: Program
    key: str


class Judged(NamedTuple):
    """The agent's judgement at one look: whether a container worked, and seconds for which it surely did not."""

    work: bool | None
    idle: float


def run(_: Card, pace: float = 0.0) -> Measured:
    """Test, and return the table. It is good if the program that waits is taken for idle, and no loop is.

    A program that breaks gets a row that says so. Raises Unwritable and Unavailable.
    """
    with containers() as made:
        cards = Cards()
        try:
            test = IdleTest(made, cards, pace or PACE)
            test.loops()
            test.beats()
        finally:
            cards.close()
    good = not any(row[-1].startswith("**") for row in test.rows)
    return Measured(HEAD, test.rows, good, [*test.notes, UNTRIED])


class IdleTest:
    """The programs and the looks at them, as the agent's: the same calls from NVML to the time without work."""

    def __init__(self, made: Containers, cards: Cards, pace: float) -> None:
        self.made, self.cards, self.pace = made, cards, pace
        self.rows: list[Sequence[str]] = []
        self.notes: list[str] = []
        self.rounds = 0
        self._processes = Processes()
        self._places: Places = {}
        self._known: dict[str, NodeContainer] = {}
        self._state = AccountState(_now(), _now())
        self._busy = 0
        self._samples = Samples(cards)

    def loops(self) -> None:
        """Look at the program that waits, at each loop, at all at once, and at all after their end."""
        waits, loops = self._started(WAITS), [each for doing in LOOPS for each in self._started(doing)]
        computing = self._computing()
        self._look_for(SETTLE)
        self._watch(waits, ALONE, WAIT)
        for each in loops:
            self._watch([each], ALONE, LOOP)
        both = [*waits, *loops, *computing]
        self._watch(both, "all of these", TOGETHER)
        try:
            self._rest(both)
        except Exception as error:  # as in _watch
            self._broke(RESTS, ALONE, error)
        for each in both:
            each.program.end()

    def beats(self) -> None:
        """Look at programs that compute for a moment, again and again."""
        watched: list[Watched] = []
        for length, every in product(LENGTHS, EVERY) if self.rounds else ():
            gap = max(self.pace * every - length / 1000, 0)
            rounds, count = round(self.rounds * length / 1000 / STEP), max(round(BEATS / every), 1)
            command = f"steps {count} {max(rounds, 1)} {round(1e6 * gap)}"
            watched += self._started(Doing(f"a kernel of {length:g} ms every {every:g} s", command, None))
        if not watched:
            return
        self._look_for(SETTLE)
        self._watch(watched, "the other kernels", BEATS)

    def _computing(self) -> list[Watched]:
        """Start a program that computes all the time, and find out how many rounds take how long."""
        doing = Doing("computes all the time", "", True)
        watched = self._started(doing)
        try:
            for each in watched:
                self.rounds = rounds_of(each.program)
        except (OSError, ValueError, Unwritable) as error:
            self.notes.append(f"no kernels: {error}")
            return []
        count = max(round(self.pace * TOGETHER / STEP), 1)
        return [each._replace(doing=doing._replace(command=f"steps {count} {self.rounds}")) for each in watched]

    def _started(self, doing: Doing) -> list[Watched]:
        """Start a program in a container, with memory and a compiled kernel; none, and a row about it, if it breaks."""
        try:
            folder = self.made.make()
            if folder is None:
                raise Unwritable("no cgroup v2 that this user may write to")
            name = ContainerName("bench", f"program-{len(self._known)}", "main")
            uid = folder.parent.name.removeprefix("pod")
            self._known[folder.name] = NodeContainer(name, uid, Admitted(requests=True))
            program = self.made.run(folder)
            if not program.take(MIB):
                program.end()
                raise Unwritable("the card has not enough free memory")
            if doing.command.startswith("steps"):
                program.ask("steps 1 1")
        except (OSError, ValueError, Unwritable) as error:
            self._broke(doing, "", error)
            return []
        return [Watched(doing, program, key(uid, name.container))]

    def _watch(self, watched: Sequence[Watched], beside: str, seconds: float) -> None:
        """Let programs do their work for so long, and look at them until all have ended it. Adds a row for each."""
        try:
            self._rows_of(watched, beside, self.pace * seconds)
        except Exception as error:  # whatever it is, the other programs are worth more
            for each in watched:
                self._broke(each.doing, beside, error)

    def _rows_of(self, watched: Sequence[Watched], beside: str, seconds: float) -> None:
        begin, looks = time.monotonic(), list[Mapping[str, Judged]]()
        self._samples.most.clear()
        self._busy = 0
        with ThreadPoolExecutor(max(len(watched), 1)) as pool:
            answers = {
                each.key: pool.submit(each.program.ask, line)
                for each in watched
                if (line := _line(each.doing, seconds))
            }
            ended = False
            while not ended:
                time.sleep(self.pace * PERIOD)
                # asked before the look, so that the last look is after the end
                ended = time.monotonic() - begin >= seconds and all(each.done() for each in answers.values())
                if time.monotonic() - begin > seconds + PATIENCE:
                    for each in watched:
                        each.program.process.kill()
                try:
                    looks.append(self._look(begin))
                except Exception as error:  # the next look may succeed
                    self.notes.append(f"a look failed: {type(error).__name__}: {error}")
        for each in watched:
            judged = [look[each.key] for look in looks if each.key in look]
            self._add(each, beside, judged, answers.get(each.key))

    def _add(self, watched: Watched, beside: str, judged: Sequence[Judged], answer: "Future[int] | None") -> None:
        doing, works = watched.doing, [each.work for each in judged]
        try:
            error = answer.result() if answer else 0
        except (OSError, ValueError):  # the program ended in place of an answer
            return self._broke(doing, beside, f"it ended with {watched.program.process.wait()}")
        if error:
            return self._broke(doing, beside, f"CUDA error {error}")
        if not works:
            return self._broke(doing, beside, "no look showed it")
        sm, memory = self._samples.most.get(watched.program.pid, (0, 0))
        seen = works.count(True)
        share = f"{seen} ({100 * seen / len(works):.0f} %)"
        longest = f"{max(each.idle for each in judged):.1f}"
        self.rows.append(
            (
                *(doing.what, beside, str(len(works)), share, str(works.count(None)), longest),
                *(f"{sm} / {memory} / {self._busy}", _verdict(doing, beside, works)),
            )
        )
        return None

    def _rest(self, watched: Sequence[Watched]) -> None:
        """Count the seconds until no look shows a program in use whose work has ended. Adds a row."""
        names = {each.key: each.doing.what for each in watched}
        begin, looks, used, doubts = time.monotonic(), 0, 0, 0
        verdict, works = "", dict[str, bool | None]()
        while time.monotonic() - begin < self.pace * LINGER:
            time.sleep(self.pace * PERIOD)
            works = {names[own]: judged.work for own, judged in self._look(begin).items() if own in names}
            looks, doubts = looks + 1, doubts + (None in works.values())
            if True in works.values():
                used += 1
                verdict = f"in use for {time.monotonic() - begin:.1f} s or longer"
            else:
                verdict = f"not in use after {time.monotonic() - begin:.1f} s"
                break
        age = time.time() - self._samples.newest / 1e6
        still = ", ".join(what for what, work in works.items() if work) or "none"
        self.notes.append(f"at rest NVML's newest sample of a process was {age:.1f} s old; still in use: {still}")
        share = f"{used} ({100 * used / looks:.0f} %)"
        self.rows.append((RESTS.what, ALONE, str(looks), share, str(doubts), "", "", verdict))

    def _look_for(self, seconds: float) -> None:
        """Look as usual, and show nothing."""
        begin = time.monotonic()
        while time.monotonic() - begin < self.pace * seconds:
            with suppress(Exception):  # the looks that count say it
                self._look(begin)
            time.sleep(self.pace * PERIOD)

    def _look(self, begin: float) -> Mapping[str, Judged]:
        """Look once, and return the judgement on each container. Time before `begin` does not count as idle."""
        seen = look(self.cards, self._processes)
        self._busy = max(self._busy, *(card.reading.busy or 0 for card in seen))
        self._samples.read()
        held = tuple(
            HeldSlices(each.uid, each.name.namespace, "", each.name.pod, each.name.container, 1)
            for each in self._known.values()
        )
        node = NodeSlices(max(len(held), 2), "bench", "", held, complete=True)
        observed = Observation(self.cards, seen, self._known, rows(seen, self._known), (), Over())
        picture, self._places = sight(observed, node, self._places)
        now = _now()
        self._state = advance(self._state, picture, now, now)
        times, most = quiet(self._state), time.monotonic() - begin
        return {
            each.key: Judged(_work([share.work for share in each.shares]), min(times[each.key].ms / 1000, most))
            for each in picture.holders
        }

    def _broke(self, doing: Doing, beside: str, why: object) -> None:
        said = str(why) or type(why).__name__
        self.rows.append((doing.what, beside, "", "", "", "", "", f"**broke**: {said}"))


class Samples:
    """The most that NVML said of each process: percent of the SMs' time, and of the memory's. Only to show it."""

    def __init__(self, cards: Cards) -> None:
        self.most: dict[int, tuple[int, int]] = {}
        self._uuid, self.newest = next(iter(cards.whole), ""), 0
        """The stamp of the newest one, in microseconds of the time of day."""

    def read(self) -> None:
        """Read the samples since the last call, and the period before it, as the agent does."""
        try:
            handle = pynvml.nvmlDeviceGetHandleByUUID(self._uuid)
            samples = pynvml.nvmlDeviceGetProcessUtilization(handle, max(self.newest - LONGEST_SAMPLE, 0))
        except pynvml.NVMLError:  # there are none
            return
        for each in samples:
            sm, memory = self.most.get(each.pid, (0, 0))
            self.most[each.pid] = max(sm, each.smUtil), max(memory, each.memUtil)
            self.newest = max(self.newest, each.timeStamp)


def _line(doing: Doing, seconds: float) -> str:
    if " " in doing.command or not doing.command:
        return doing.command
    return f"{doing.command} {round(1000 * seconds)}"


def _work(works: Sequence[bool | None]) -> bool | None:
    """Whether a container worked on any card; None if that is not known."""
    return True if True in works else None if None in works else False


def _verdict(doing: Doing, beside: str, works: Sequence[bool | None]) -> str:
    """Return the judgement of most looks in words, in bold if it would end the pod of a program that works.

    A program that waits and is never taken for idle, with nothing next to it, is an error, too. NVML may say of one
    that waits that it works, while another one copies.
    """
    seen, idle = True in works, 2 * works.count(False) > len(works)
    word = "in use" if seen else "idle" if idle else "not known"
    if doing.seen is False:
        return word if word == "idle" or beside != ALONE else f"**{word}**"
    if word == "idle":
        return "**taken for idle**" if doing.seen else "taken for idle"
    return word


def _now() -> int:
    """Return the monotonic time in milliseconds."""
    return round(time.monotonic() * 1000)
