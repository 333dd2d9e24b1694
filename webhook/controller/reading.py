"""Reads the object of a policy, and makes the fields of its status. Its only input besides the object is the date."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from webhook import lints, rules
from webhook.facts.snapshot import Facts
from webhook.memory import frameworks
from webhook.model import Action, Object, Unusable, dotted
from webhook.policy import load
from webhook.policy.model import Policy, Switch

SOON = timedelta(days=30)
"""The time in which an exemption ends soon, as in `slicewarden policy lint`."""

MOST = 20
"""The most problems, and likely mistakes, that a status names."""


@dataclass(frozen=True, slots=True)
class PolicyRead:
    """The result of reading a policy object: the policy and its mode or the problems, and the fields of its status."""

    policy: Policy | None
    mode: Switch | None
    problems: tuple[str, ...]
    fields: Object


def read_policy(item: Object) -> PolicyRead:
    """Read the object of a policy, and lint it without facts, as `slicewarden policy lint` does."""
    try:
        policy = load.of_object(item, rules.releases(), frameworks=frameworks.names())
    except Unusable as error:
        problems = tuple(each.message for each in error.problems)
        return PolicyRead(None, None, problems, {"problems": [*problems[:MOST]]})
    mode, today = policy.mode or Switch.AUDIT, datetime.now(UTC).date()
    report = lints.lint(policy, load.of_no_file(item), Facts(), today, SOON)
    found = [
        f"{result.rule}: {dotted(result.finding.path)}: {result.finding.message}"
        for judged in report.judged
        for result in judged.verdict.results
        if result.action is not Action.AUDIT
    ]
    fields = {"digest": policy.digest, "mode": mode.value, "lints": len(found), "lintMessages": found[:MOST] or None}
    return PolicyRead(policy, mode, (), fields)


UNREAD = frozenset({"generation", "managedFields", "resourceVersion"})
"""The keys of metadata that change with a status, and of which nothing is read."""


class PolicyReader:
    """Reads the objects of policies, and caches the result.

    Without the cache, reading took a third of the time of a look at which nothing had changed.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[object, PolicyRead]] = {}

    def read(self, item: Object) -> PolicyRead:
        """Read the object of a policy.

        The result is cached until the object or the day changes; lints look at the day.
        """
        metadata = {key: value for key, value in item["metadata"].items() if key not in UNREAD}
        of = datetime.now(UTC).date(), item.get("apiVersion"), item.get("kind"), metadata, item.get("spec")
        known, read = self._known.get(metadata["name"], (None, None))
        if read is None or known != of:
            read = read_policy(item)
            self._known[metadata["name"]] = of, read
        return read

    def keep(self, items: Iterable[Object]) -> None:
        """Forget all other policies."""
        names = {item["metadata"]["name"] for item in items}
        self._known = {name: known for name, known in self._known.items() if name in names}
