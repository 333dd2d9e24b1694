"""The webhook tells by its metrics and its log when the fallback is not the one that the policy needs."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from tests.support.policies import POLICY, policy_of
from webhook import rules
from webhook.fallback.answers import ValidationActions
from webhook.fallback.comparison import compare
from webhook.fallback.current import recording
from webhook.fallback.params import Params
from webhook.fallback.policies import fallback
from webhook.model import Object
from webhook.serving.fallback_watch import FallbackWatch, kept
from webhook.telemetry.metrics import Metrics

WANTED = fallback(policy_of(POLICY), rules.walk(), ValidationActions.BY_RULE)


def made(params: Params | None) -> Sequence[Object]:
    return fallback(policy_of(POLICY), rules.walk(), ValidationActions.BY_RULE, params)


class Server:
    """The objects that a watch has heard of, and the log and metrics that came of it."""

    def __init__(self, *, audit: bool = False) -> None:
        self.found: Sequence[Object] | None = None
        self.metrics, self.logged = Metrics(), list[Any]()
        compares = partial(compare, policy_of(POLICY), rules.walk(), answer=ValidationActions.BY_RULE, audit=audit)
        self.watch = FallbackWatch(lambda: self.found, compares, self.logged.append, self.metrics, audit=audit)

    def shows(self, found: Sequence[Object] | None) -> dict[str, float]:
        """Let it have these objects, and return the number of objects by state, but for none."""
        self.found = found
        self.watch.look()
        lines = (
            line.rpartition(" ") for line in self.metrics.text().decode().splitlines() if "fallback_objects{" in line
        )
        return {name.split('"')[1]: float(value) for name, _, value in lines if float(value)}


def test_a_fallback_that_is_removed_or_weakened_is_told() -> None:
    server, whole = Server(), float(len(WANTED))
    assert server.shows(None) == {"unread": 1}
    assert server.logged == []
    assert server.shows(WANTED) == {"current": whole}
    assert server.shows([]) == {"missing": whole}
    first = next(each for each in WANTED if each["spec"].get("validationActions") == ["Deny", "Audit"])
    weak = {**first, "spec": {**first["spec"], "validationActions": ["Audit"]}}
    weaker = [weak if each is first else each for each in WANTED]
    assert server.shows(weaker) == {"current": whole - 1, "differing": 1}
    left = {**WANTED[0], "metadata": {**WANTED[0]["metadata"], "name": "slicewarden-old"}}
    assert server.shows([*WANTED, left]) == {"current": whole, "unneeded": 1}
    assert server.shows(WANTED) == {"current": whole}
    assert server.shows(None) == {"current": whole, "unread": 1}
    said = [each["message"] for each in server.logged]
    assert said == ["fallback is current", *["fallback differs"] * 3, "fallback is current"]
    assert server.logged[2]["differences"] == ["slicewarden-pods: actions are Audit, not Deny and Audit"]


def test_a_fallback_that_reads_a_config_map_is_current_without_it() -> None:
    server = Server()
    policies = made(Params.of("fallback"))[1:]
    assert server.shows(policies) == {"current": float(len(WANTED))}
    assert server.shows(policies[1:]) == {"current": float(len(WANTED)) - 1, "missing": 1}


def test_a_fallback_that_denies_in_audit_mode_is_told_with_the_way_out() -> None:
    server, whole = Server(audit=True), float(len(WANTED))
    server.shows(WANTED)
    assert server.shows(recording(WANTED)) == {"current": whole}
    server.shows([])
    denies, records, missing = server.logged
    assert "list components/fallback before components/audit-mode" in denies["caution"]
    assert any("actions are Deny and Audit, not Audit" in line for line in denies["differences"])
    assert records == {"message": "fallback is current"}
    assert "caution" not in missing
    enforced = Server()
    enforced.shows(WANTED[2:])
    assert "caution" not in enforced.logged[0]


def test_what_did_not_change_is_not_told_twice() -> None:
    server = Server()
    for _ in range(3):
        server.shows([])
    assert len(server.logged) == 1


def test_only_our_own_policies_are_kept_and_without_what_changes_by_itself() -> None:
    ours = {**WANTED[0], "metadata": {**WANTED[0]["metadata"], "resourceVersion": "7"}, "status": {"observed": 1}}
    assert kept(ours) == {key: WANTED[0][key] for key in ("kind", "metadata", "spec")}
    assert kept({**ours, "metadata": {"name": "another"}}) is None
