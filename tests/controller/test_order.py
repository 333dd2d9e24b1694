"""The order of a change: all interleavings of the right one, and a counterexample of each wrong one."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.interleavings import P_AUDIT, PODS, Q_AUDIT, Order, P, Q, check
from webhook.controller import order
from webhook.controller.order import Place, Seen, Wait, Write
from webhook.engine.paths import MUTATE, VALIDATE, Manner, Name

POLICY, LENIENT = Name("D"), Name("P", Manner.LENIENT)
ONE, TWO = frozenset("1"), frozenset("12")
WELL = Seen(frozenset("PQD"), ONE, called=True, drained=True)

RIGHT = {
    "a change of policy": (Order((P,), Q), ["validate P.Q", "mutate Q", "validate Q"]),
    "from audit to enforce": (Order((P_AUDIT,), P), ["validate P-audit.P", "mutate P", "validate P"]),
    "from enforce to audit": (Order((P,), P_AUDIT), ["validate P.P-audit", "mutate P-audit", "validate P-audit"]),
    "a change of both at once": (Order((P_AUDIT,), Q), ["validate P-audit.Q", "mutate Q", "validate Q"]),
    "a first installation": (
        Order((), Q),
        ["validate Q-audit", "mutate Q-audit", "validate Q-audit.Q", "mutate Q", "validate Q"],
    ),
    "off": (Order((P,), None), ["validate nothing", "mutate nothing"]),
    "off in the middle of a change": (Order((P, Q), None), ["validate nothing", "mutate nothing"]),
    "a change of mind after the first write": (Order((P,), Q, turns=1), ["validate P.Q", "validate P"]),
    "a change of mind after the second write": (
        Order((P,), Q, turns=2),
        ["validate P.Q", "mutate Q", "mutate P", "validate P"],
    ),
    "a change of mind in audit mode": (
        Order((P_AUDIT,), P, turns=2),
        ["validate P-audit.P", "mutate P", "mutate P-audit", "validate P-audit"],
    ),
    "a change of mind for a third": (
        Order((P, Q), P_AUDIT),
        ["validate P", "validate P.P-audit", "mutate P-audit", "validate P-audit"],
    ),
    "an upgrade or a rollback of the release": (
        Order((POLICY,), POLICY, releases=True),
        ["validate D-lenient", "releases P Q", "releases Q", "validate D"],
    ),
    "an upgrade, and enforcement from then on": (
        Order((Name("D", Manner.AUDIT),), POLICY, releases=True),
        ["releases P Q", "releases Q", "validate D-audit.D", "mutate D", "validate D"],
    ),
}
"""Changes, with the writes of each."""
SEARCHED_IN_FULL = {
    *("from audit to enforce", "from enforce to audit", "a change of both at once"),
    *("a change of mind in audit mode", "a change of mind for a third"),
    *("off in the middle of a change", "an upgrade, and enforcement from then on", "no resourceVersion"),
    *("requests counted from the last write", "the old release is not withdrawn"),
    *("back without a wait for API servers", "a change of mind after the second write"),
}
"""Changes whose interleavings only `make fuzz` tries: `make test` tries others with the same steps."""


def cases(table: Mapping[str, tuple[Any, ...]]) -> list[Any]:
    """The rows of a table, of which some are `thorough`."""
    marks = {name: [pytest.mark.thorough] if name in SEARCHED_IN_FULL else [] for name in table}
    return [pytest.param(*row, id=name, marks=marks[name]) for name, row in table.items()]


@pytest.mark.parametrize(("change", "writes"), RIGHT.values(), ids=RIGHT)
def test_each_change_is_written_in_its_order(change: Order, writes: list[str]) -> None:
    assert [*map(str, change.written)] == writes


@pytest.mark.parametrize("change", cases({name: (change,) for name, (change, _) in RIGHT.items()}))
def test_no_interleaving_refuses_or_admits_wrongly(change: Order) -> None:
    states, way = check(change)
    assert way == ""
    assert states > 5000


AT_ONCE = (Write(MUTATE, (Q,)), Write(VALIDATE, (Q,)))

AT_ONCE_BACK = (Write(VALIDATE, (P,)), Write(MUTATE, (P,)))


def blind(*what: str) -> Order:
    return Order((P,), Q, frozenset(what))


def upgrade(*what: str) -> Order:
    return Order((POLICY,), POLICY, frozenset(what), releases=True)


WRONG = {
    "replicas answer by what they loaded last": (Order((P,), Q, steps=AT_ONCE[::-1], paths=False), "I2"),
    "audit mode is a replica's own": (Order((P_AUDIT,), Q, steps=AT_ONCE[::-1], paths=False), "I2"),
    "mutate is written first": (Order((P,), Q, steps=AT_ONCE), "I2"),
    "validate names only the new one": (Order((P,), Q, steps=AT_ONCE[::-1]), "I2"),
    "no wait for API servers": (blind("servers"), "I2"),
    "no wait for replicas": (blind("replicas"), "I4"),
    "no wait for requests": (blind("requests"), "I2"),
    "no resourceVersion": (blind("version"), "I2"),
    "back without a wait for API servers": (Order((P,), Q, frozenset({"servers"}), turns=2), "I2"),
    "back without a wait for requests": (Order((P,), Q, frozenset({"requests"}), turns=2), "I2"),
    "back by validate first": (
        Order(
            (P,), Q, steps=(Write(VALIDATE, (P, Q)), Write(MUTATE, (Q,)), Write(VALIDATE, (P,)), Write(MUTATE, (P,)))
        ),
        "I2",
    ),
    "off without a wait for API servers": (Order((P,), None, frozenset({"servers"})), "I2"),
    "a new release is ready at once": (upgrade("admission"), "I2"),
    "the old release is not withdrawn": (upgrade("withdrawal"), "I2"),
    "requests counted from the last write": (upgrade("count"), "I2"),
}
"""Orders that go wrong, and the invariant that each breaks."""


@pytest.mark.parametrize(("change", "broken"), cases(WRONG))
def test_each_wrong_order_has_a_counterexample(change: Order, broken: str) -> None:
    _, way = check(change)
    assert f"{broken}: " in way


def test_the_pods_of_the_model_differ_in_what_both_policies_say() -> None:
    assert len({(pod.asked, *sorted(pod.accepted.items())) for pod in PODS.values()}) == len(PODS)


@pytest.mark.parametrize(
    ("place", "target", "seen", "due"),
    [
        (Place((), ()), None, Seen(frozenset(), frozenset(), called=False, drained=False), None),
        (Place((), ()), P, WELL, Write("releases", admitted=ONE)),
        (Place((), ()), P, WELL._replace(releases=frozenset()), Write(VALIDATE, (P_AUDIT,))),
        (Place((P,), (P,), ONE), P, WELL, None),
        (Place((P,), (P,), ONE), P, WELL._replace(called=False), Wait.SERVERS),
        (Place((P,), (P,), ONE), P, WELL._replace(held=frozenset("Q")), Wait.REPLICAS),
        (Place((P,), (P,), ONE), Q, WELL._replace(held=frozenset("P")), Wait.REPLICAS),
        (Place((P,), (P,), ONE), None, Seen(frozenset(), None, called=False, drained=False), Write(VALIDATE)),
        (Place((), (P,), ONE), None, WELL._replace(called=False), Wait.SERVERS),
        (Place((P, Q), (Q,), ONE), Q, WELL._replace(drained=False), Wait.REQUESTS),
        (
            Place((P,), (P,), ONE),
            P,
            WELL._replace(releases=TWO),
            Write(VALIDATE, (Name("P", Manner.LENIENT),)),
        ),
        (
            Place((LENIENT,), (P,), ONE),
            P,
            WELL._replace(releases=frozenset("23")),
            Write("releases", admitted=frozenset("23")),
        ),
        (
            Place((LENIENT,), (P,), ONE),
            P,
            WELL._replace(releases=frozenset("23"), called=False),
            Wait.SERVERS,
        ),
        (Place((P,), (P,), ONE), P, WELL._replace(releases=None), None),
        (Place((P, Q), (Q,), ONE), P_AUDIT, WELL, Write(MUTATE, (P,))),
        (Place((P, Q), (P,), ONE), P, WELL._replace(held=frozenset("P")), Write(VALIDATE, (P,))),
        (Place((P, Q), (Q,), ONE), POLICY, WELL._replace(held=frozenset("P")), Write(MUTATE, (P,))),
        (Place((P, Q), (P,), ONE), P, WELL._replace(held=frozenset("Q")), Wait.REPLICAS),
        (Place((P, Q), (P,), ONE), P, WELL._replace(drained=False), Wait.REQUESTS),
        (Place((P, Q), (P,), ONE), Q, WELL._replace(held=frozenset("Q")), Wait.REPLICAS),
        (Place((LENIENT, Q), (Q,), ONE), P, WELL, Write(MUTATE, (P,))),
        (
            Place((Q_AUDIT,), (Q_AUDIT,), ONE),
            Q_AUDIT,
            WELL._replace(releases=frozenset("2")),
            Write("releases", admitted=frozenset("2")),
        ),
    ],
)
def test_the_next_write(place: Place, target: Name | None, seen: Seen, due: object) -> None:
    assert order.due(place, target, seen) == due
