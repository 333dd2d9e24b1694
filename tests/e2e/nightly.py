"""`python -m tests.e2e.nightly`: many changes of policy, and then random faults under load, on two API servers.

It prints how long a first installation and changes take, and how many pods were judged wrongly, which has to be none. A
pod that no replica could patch or judge because of a fault is counted by itself: that is an outage, and no wrong
answer. The audit log of the API servers tells the two apart. It says of each pod whether the mutating webhook was asked
in vain.
"""

import argparse
import json
import random
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.e2e import binaries
from tests.e2e.control_plane import HERE, eventually
from tests.e2e.release import TEAM, Load, P, Q, Relay, Release, digest, releasing

DRAIN = 15.0
"""Seconds, as in an installation."""

LONGEST = 10.0
"""Seconds that a fault lasts at most."""

STEP = 900
"""Seconds by which a clock is wrong at most: more than the controller issues certificates with."""

REPLICAS = (0, 1, 2)

UNASKED = "failed calling webhook"
"""What is said to a pod that no replica judged."""

UNLOADED = "unable to handle the request"
"""What an API server says of a replica that answers 503: it does not hold a policy that the registration names.

No fault leads there, only a wrong order: the replicas that are asked are ready.
"""

FAILED_OPEN = "failed-open.mutation.webhook.admission.k8s.io/"
"""The beginning of an audit annotation: a mutating webhook did not answer, and the request went on without it."""

LOG = "audit.log"

AUDITED = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {
            "level": "Metadata",
            "namespaces": [TEAM],
            "verbs": ["create"],
            "resources": [{"group": "", "resources": ["pods"]}],
        },
        {"level": "None"},
    ],
}


def changes(release: Release, count: int) -> None:
    """Change the policy again and again, and print how long it takes from the apply until it is Ready."""
    took = list[float]()
    for number in range(count):
        value, began = (Q, P)[number % 2], time.monotonic()
        release.apply(value)
        if not eventually(partial(release.ready, digest(value))):
            raise SystemExit(f"change {number}: {release.condition('Ready')}")
        took.append(time.monotonic() - began)
    if took:
        print(
            f"{count} changes: median {statistics.median(took):.1f} s, worst {max(took):.1f} s; drain {release.drain} s"
        )


class Clocks:
    """The clocks of the day of our programs: each can be stepped while the program runs."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._library = folder, folder / "clock.so"
        compiler = shutil.which("cc") or "cc"
        command: list[str | Path] = [compiler, "-O2", "-shared", "-fPIC", "-o", self._library, HERE / "clock.c"]
        subprocess.run(command, check=True)

    def environment(self, name: str) -> Mapping[str, str | Path]:
        """The variables by which a program has a clock of its own, which is right."""
        self.step(name, 0)
        return {"LD_PRELOAD": self._library, "CLOCK_STEP": self._file(name)}

    def step(self, name: str, seconds: int) -> None:
        """Set a clock so many seconds ahead of the right time."""
        with self._file(name).open("r+b" if self._file(name).exists() else "w+b") as file:
            file.write(struct.pack("q", seconds))

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.clock"


class Faults:
    """What can go wrong in a release whose programs have clocks of their own, and reach API servers through relays."""

    def __init__(self, release: Release, clocks: Clocks) -> None:
        """Start the programs of a release that is in force again."""
        self.release, self._clocks = release, clocks
        ports = [urlsplit(url).port or 0 for url in release.servers]
        self._of_controller = [Relay("127.0.0.1", 0, [port]) for port in ports]
        self._of_replicas = [Relay("127.0.0.1", 0, [port]) for port in (ports[0], ports[1], ports[0])]
        self.kill_controller()
        for number in REPLICAS:
            self.kill_replica(number)
        assert eventually(lambda: all(release.health_of(number)[0] == 200 for number in REPLICAS))

    def one(self, chance: random.Random) -> tuple[str, Callable[[], None]]:
        """Choose a fault. Returns its name, and what plays it."""
        seconds, number, other = chance.uniform(0, LONGEST), chance.choice(REPLICAS), chance.choice((0, 1))
        step, value = chance.choice((-1, 1)) * chance.randrange(1, STEP), chance.choice((P, Q))
        replica, controller = f"replica-{number}", self.release.controller
        some: dict[str, Callable[[], None]] = {
            "policy changed": lambda: self.release.apply(value),
            "controller killed": self.kill_controller,
            "replica killed": partial(self.kill_replica, number),
            "controller frozen": partial(self._for, seconds, self._frozen(controller)),
            "API server frozen": partial(self._for, seconds, self._frozen("kube-apiserver-2")),
            "replica frozen": partial(self._for, seconds, self._frozen(replica)),
            "controller parted from an API server": partial(self._for, seconds, self._of_controller[other].parted()),
            "controller parted from both": partial(self._for, seconds, *map(Relay.parted, self._of_controller)),
            "replica parted": partial(self._for, seconds, self._of_replicas[number].parted()),
            "controller's clock stepped": partial(self._for, seconds, self._stepped("controller", step)),
            "controller's clock stepped, and it is killed": partial(
                self._for, seconds, self._stepped("controller", step), self._killed()
            ),
            "replica's clock stepped": partial(self._for, seconds, self._stepped(replica, step)),
        }
        what = chance.choice([*some, *("policy changed",) * 4])
        return what, some[what]

    def kill_controller(self) -> None:
        """Kill the controller, and start another one."""
        self.release.cluster.stop(self.release.controller)
        urls = [each.url for each in self._of_controller]
        self.release.start_controller(urls, self._clocks.environment("controller"))

    def kill_replica(self, number: int) -> None:
        """Kill a replica, and start another one in its place."""
        name = f"replica-{number}"
        self.release.cluster.stop(name)
        self.release.start_replica(
            number, server=self._of_replicas[number].url, environment=self._clocks.environment(name)
        )

    def _for(self, seconds: float, *faults: Any) -> None:
        with ExitStack() as stack:
            for each in faults:
                stack.enter_context(each)
            time.sleep(seconds)

    def _frozen(self, name: str) -> Any:
        (one,) = [each for each in self.release.cluster.components if each.name == name]
        return one.frozen()

    @contextmanager
    def _stepped(self, name: str, seconds: int) -> Iterator[None]:
        self._clocks.step(name, seconds)
        try:
            yield
        finally:
            self._clocks.step(name, 0)

    @contextmanager
    def _killed(self) -> Iterator[None]:
        yield
        self.kill_controller()


def audited(folder: Path) -> list[str]:
    """The flags of API servers that write an audit log into the folder of their cluster."""
    policy = folder / "audit.json"
    policy.write_text(json.dumps(AUDITED), "utf-8")
    return [f"--audit-policy-file={policy}", f"--audit-log-path={LOG}", "--audit-log-maxsize=100000"]


def without_patches(log: Path, names: AbstractSet[str]) -> set[str]:
    """Return those of these pods for which the mutating webhook gave no answer, by an audit log."""
    found = set[str]()
    with log.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if FAILED_OPEN in line and (event := json.loads(line))["objectRef"].get("name") in names:
                found.add(event["objectRef"]["name"])
    return found


def answers_since(log: Path, began: datetime) -> Iterator[Mapping[str, str]]:
    """Yield what each webhook said of each pod that an API server received after a moment, by an audit log.

    The keys are audit annotations, such as `pods.slicewarden.dev/policy`.
    """
    after = began.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    with log.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.endswith("\n") and (event := json.loads(line))["requestReceivedTimestamp"] > after:
                yield event.get("annotations", {})


def wrong(release: Release, refused: Sequence[str]) -> list[str]:
    """Return the refusals of honest pods, NAME: MESSAGE, that no outage explains."""
    unpatched = without_patches(release.cluster.folder / LOG, {each.partition(": ")[0] for each in refused})

    def outage(each: str) -> bool:
        name, _, message = each.partition(": ")
        return UNLOADED not in message and (UNASKED in message or name in unpatched)

    return [each for each in refused if not outage(each)]


def unloaded(release: Release) -> int:
    """How often an API server called a path whose policy the replica did not hold."""
    logs = [file.read_text("utf-8", "replace") for file in release.cluster.folder.glob("kube-apiserver*.log")]
    return sum("webhook" in line and UNLOADED in line for log in logs for line in log.splitlines())


def faults(release: Release, clocks: Clocks, minutes: float, chance: random.Random) -> int:
    """Play random faults while policies change. Returns how many pods were judged wrongly."""
    done, some = Counter[str](), Faults(release, clocks)
    before, ends = unloaded(release), time.monotonic() + 60 * minutes
    with Load(release) as load:
        while time.monotonic() < ends:
            what, play = some.one(chance)
            done[what] += 1
            play()
            time.sleep(chance.uniform(0, 5))
        release.apply(Q)
        ready = eventually(partial(release.ready, digest(Q)))
    refused, admitted = wrong(release, load.refused), sum(map(sum, load.admitted))
    missing = unloaded(release) - before
    print(f"faults: {dict(done)}")
    print(
        f"{load}; {len(refused)} honest pods refused wrongly, {admitted} forbidden ones admitted; "
        f"{missing} calls of a policy that is not held; ready: {ready}"
    )
    for each in refused[:10]:
        print(each)
    return len(refused) + admitted + missing + (not ready)


def main(arguments: list[str] | None = None) -> int:
    """Run both; the status is 1 if anything was judged wrongly."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.nightly", description=__doc__)
    parser.add_argument("--changes", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=None)
    given = parser.parse_args(arguments)
    seed = given.seed if given.seed is not None else random.randrange(2**32)  # noqa: S311 - a seed to play again
    print(f"seed {seed}", flush=True)
    programs = binaries.find(tuple(binaries.PACKAGES))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with releasing(folder, programs, DRAIN, audited(folder)) as release:
            began = time.monotonic()
            release.in_force(P)
            print(f"from nothing to Ready: {time.monotonic() - began:.1f} s; drain {release.drain} s", flush=True)
            changes(release, given.changes)
            chance = random.Random(seed)  # noqa: S311 - the same seed plays the same faults
            return int(faults(release, Clocks(folder), given.minutes, chance) > 0) if given.minutes else 0


if __name__ == "__main__":
    sys.exit(main())
