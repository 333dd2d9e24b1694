"""Match tolerations with taints as Kubernetes does, and read both from objects of any shape."""

import pytest

from webhook.api.taints import Taint, Toleration, taints_of, tolerations_of

TAINT = Taint("a", "x", "NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        (Toleration("", "Exists", "", ""), True),
        (Toleration("a", "Exists", "", "NoSchedule"), True),
        (Toleration("a", "Equal", "x", ""), True),
        (Toleration("a", "", "x", ""), True),
        (Toleration("a", "Equal", "y", ""), False),
        (Toleration("a", "Exists", "", "NoExecute"), False),
        (Toleration("b", "Exists", "", ""), False),
        # The API server refuses these; the answers are those of ToleratesTaint.
        (Toleration("", "Equal", "x", ""), True),
        (Toleration("", "Equal", "y", ""), False),
        (Toleration("a", "In", "x", ""), False),
        # A feature gate that is off by default allows this one.
        (Toleration("a", "Gt", "x", ""), False),
    ],
)
def test_a_toleration_tolerates_a_taint(toleration: Toleration, tolerates: bool) -> None:
    assert toleration.tolerates(TAINT) is tolerates


@pytest.mark.parametrize(("effect", "repels"), [("NoSchedule", True), ("NoExecute", True), ("PreferNoSchedule", False)])
def test_a_taint_repels_pods_unless_it_is_a_preference(effect: str, repels: bool) -> None:
    assert Taint("a", "", effect).repels is repels


def test_a_taint_is_written_as_kubectl_takes_it() -> None:
    assert (f"{TAINT}", f"{Taint('a', '', 'NoExecute')}") == ("a=x:NoSchedule", "a:NoExecute")


def test_what_has_another_type_counts_as_absent() -> None:
    assert taints_of({"taints": "none"}) == ()
    assert taints_of({"taints": [None, {"key": "a", "value": 1, "effect": "NoSchedule"}]}) == (
        Taint("a", "", "NoSchedule"),
    )
    assert tolerations_of([{"key": "a", "operator": None}]) == (Toleration("a", "", "", ""),)
