"""Finds the objects that a new policy would newly deny while it is waiting, as `slicewarden diff --live` does.

A separate process lists the cluster and ends, so the controller never has the cluster's objects in memory. `python -m
webhook.controller.preview` reads an inquiry from standard input, and writes an answer.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from webhook.policy.model import Policy

if TYPE_CHECKING:
    from webhook.scan.diff import Change

AGAIN_SECONDS = 600.0
"""Seconds after which the same two policies are compared again: the cluster changes too."""

LONGEST = 540.0
"""Seconds that a comparison may take."""

KEPT = 16
"""Maximum number of remembered comparisons: the latest ones."""

SAMPLE, MOST = 10, 300
"""Maximum number of objects that are named, and of characters in a line."""

NOT_COMPARED = 5
"""Maximum number of objects that are named because they cannot be compared."""

CLUSTER = "cluster"
"""The file of a problem with a part of a cluster. Every other problem is that of one object."""

Fields = Mapping[str, Any]
"""The fields of a status: `wouldDeny` (None: not known) and `wouldDenySample`."""
Ask = Callable[[str, str], Fields]
"""Compares two policies, as they were written."""

UNKNOWN: Fields = {"wouldDeny": None, "wouldDenySample": []}
"""The fields while nothing is known, and for a policy that does not wait."""


class Preview:
    """Compares policies in a thread, and remembers the last answer."""

    def __init__(self, ask: Ask, found: Callable[[], object], clock: Callable[[], float] = time.monotonic) -> None:
        """Ask in this way, and call `found` when there is an answer."""
        self._ask, self._found, self._clock = ask, found, clock
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], tuple[float, Fields]] = {}
        self._thread: threading.Thread | None = None

    def of(self, old: Policy, new: Policy) -> Fields:
        """Return the known result of a comparison, and start a new comparison if one is due.

        Only one runs at a time.
        """
        key, now = (old.digest, new.digest), self._clock()
        with self._lock:
            at, fields = self._known.get(key, (now - AGAIN_SECONDS, UNKNOWN))
            due = now - at >= AGAIN_SECONDS
            if due and not (self._thread and self._thread.is_alive()):
                self._thread = threading.Thread(target=self._find, args=(key, old, new), daemon=True, name="preview")
                self._thread.start()
        return fields

    def _find(self, key: tuple[str, str], old: Policy, new: Policy) -> None:
        fields = self._ask(old.written, new.written)
        with self._lock:
            kept = [each for each in self._known.items() if each[0][0] == key[0] and each[0] != key]
            self._known = {**dict(kept[1 - KEPT :]), key: (self._clock(), fields)}
        self._found()


def asking(kubeconfig: str | None, context: str | None) -> Ask:
    """Return a function that compares two policies in a separate process, which uses this kubeconfig and context."""
    return partial(_asked, kubeconfig, context)


def _asked(kubeconfig: str | None, context: str | None, old: str, new: str) -> Fields:
    inquiry = {"kubeconfig": kubeconfig, "context": context, "old": json.loads(old), "new": json.loads(new)}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "webhook.controller.preview"],
            input=json.dumps(inquiry),
            capture_output=True,
            text=True,
            timeout=LONGEST,
            check=False,
        )
        answer = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return unknown(f"it took longer than {LONGEST:.0f} s")
    except (OSError, ValueError) as error:
        return unknown(f"the comparison ended without an answer ({type(error).__name__})")
    return dict(answer)


def unknown(why: str) -> Fields:
    """Return the status fields for a comparison that was not possible."""
    return {"wouldDeny": None, "wouldDenySample": [f"not known: {why}"[:MOST]]}


def main() -> None:
    """Compare the two policies of an inquiry on the objects of its cluster."""
    print(json.dumps(_compared(json.load(sys.stdin))))


def _compared(inquiry: Mapping[str, Any]) -> Fields:
    from webhook import rules  # all of this is only for the process of its own
    from webhook.cluster import listing, watch
    from webhook.documents.files import Item
    from webhook.engine.engine import Engine
    from webhook.facts.snapshot import Facts
    from webhook.memory import frameworks
    from webhook.model import Unusable
    from webhook.policy import load
    from webhook.scan import cluster, diff

    try:
        old, new = (
            Engine(load.of_object(inquiry[key], rules.releases(), frameworks=frameworks.names()), rules.walk())
            for key in ("old", "new")
        )
        api = listing.connect(inquiry["kubeconfig"], inquiry["context"])

        def comparing(item: Item, facts: Facts) -> diff.Compared:
            return diff.compare(item, old, new, facts).brief

        change, _ = cluster.compared(api, old, new, comparing, size=watch.SMALL_PAGE)  # it shares a pod's memory
    except Unusable as error:
        return unknown(str(error.problems[0].message))
    return answer(change)


def answer(change: "Change") -> Fields:
    """Return the fields of a status for a comparison.

    Nothing is known if a part of the cluster cannot be read. A single object that cannot be compared is named: any
    tenant may have one, such as a pod that is too large to be judged.
    """
    from webhook.scan.diff import ChangeEffect

    if missing := [problem.message for problem in change.problems if problem.file == CLUSTER]:
        return unknown(missing[0])
    denied = change.having(ChangeEffect.DENIED)
    lines = [_line(each) for each in denied[:SAMPLE]]
    lines += [f"not compared: {problem.file}: {problem.message}"[:MOST] for problem in change.problems[:NOT_COMPARED]]
    return {"wouldDeny": len(denied), "wouldDenySample": lines}


def _line(changed: Any) -> str:
    judged = changed.after
    place = f"{judged.namespace}/{judged.name}" if judged.namespace else judged.name
    (first, *_) = [found.result.rule for found in changed.differences] or [""]
    return f"{judged.kind} {place}: {first}"[:MOST]


if __name__ == "__main__":
    main()
