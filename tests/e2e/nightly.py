"""`python -m tests.e2e.nightly`: many changes of policy, and then random faults under load, on two API servers.

It prints how long changes take, and how many pods were judged wrongly, which has to be none. A pod that a replica could
not judge because it was frozen or killed is counted by itself: that is an outage, and no wrong answer.
"""

import argparse
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.e2e import binaries
from tests.e2e.control_plane import eventually
from tests.e2e.release import Load, P, Q, Release, digest, releasing

DRAIN = 15.0
"""Seconds, as in an installation."""

LONGEST = 10.0
"""Seconds that a program is frozen at most."""

OUTAGE = ("failed calling webhook", "Slicewarden's mutating webhook", "context deadline exceeded")
"""What is said to a pod that no replica judged, or that none patched."""


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


def freeze(release: Release, name: str, seconds: float) -> None:
    """Stop a program for so long."""
    (one,) = [each for each in release.cluster.components if each.name == name]
    one.process.send_signal(signal.SIGSTOP)
    time.sleep(seconds)
    one.process.send_signal(signal.SIGCONT)


def kill_controller(release: Release) -> None:
    """Kill the controller, and start another one."""
    release.cluster.stop(release.controller)
    release.start_controller()


def kill_replica(release: Release, number: int) -> None:
    """Kill a replica, and start another one in its place."""
    release.cluster.stop(f"replica-{number}")
    release.start_replica(number)


def faults(release: Release, minutes: float, chance: random.Random) -> int:
    """Play random faults while policies change. Returns how many pods were judged wrongly."""
    done, ends = dict[str, int](), time.monotonic() + 60 * minutes
    with Load(release) as load:
        while time.monotonic() < ends:
            seconds, number = chance.uniform(0, LONGEST), chance.randrange(3)
            some: dict[str, Callable[[], None]] = {
                "policy changed": lambda: release.apply(chance.choice((P, Q))),
                "controller killed": partial(kill_controller, release),
                "controller frozen": partial(freeze, release, release.controller, seconds),
                "API server frozen": partial(freeze, release, "kube-apiserver-2", seconds),
                "replica killed": partial(kill_replica, release, number),
                "replica frozen": partial(freeze, release, f"replica-{number}", seconds),
            }
            what = chance.choice([*some, "policy changed", "policy changed"])
            some[what]()
            done[what] = done.get(what, 0) + 1
            time.sleep(chance.uniform(0, 5))
        release.apply(Q)
        ready = eventually(partial(release.ready, digest(Q)))
    refused = [each for each in load.refused if not any(outage in each for outage in OUTAGE)]
    admitted = sum(map(sum, load.admitted))
    print(f"faults: {done}")
    print(f"{load}; {len(refused)} honest pods refused wrongly, {admitted} forbidden ones admitted; ready: {ready}")
    for each in refused[:10]:
        print(each)
    return len(refused) + admitted + (not ready)


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
    with tempfile.TemporaryDirectory() as folder, releasing(Path(folder), programs, DRAIN) as release:
        release.in_force(P)
        changes(release, given.changes)
        chance = random.Random(seed)  # noqa: S311 - the same seed plays the same faults
        return int(faults(release, given.minutes, chance) > 0) if given.minutes else 0


if __name__ == "__main__":
    sys.exit(main())
