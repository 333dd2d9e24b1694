"""A registration whose paths name policies: what it asks about while it names one, and while it names two."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.policies import POLICY, policy_of
from webhook.engine import filled, probe, registration
from webhook.engine.paths import MUTATE, VALIDATE, Manner, Name, Path
from webhook.policy.model import ALONE, Policy

OLD = policy_of(POLICY)
P, Q = "0123456789abcdef", "fedcba9876543210"
BUNDLE = "Q0E="


def hooks(path: Path, old: Policy = OLD, new: Policy = OLD) -> dict[str, Any]:
    made = filled.webhooks(path, {P: old, Q: new}, BUNDLE)
    assert len({hook["name"] for hook in made}) == len(made)
    return {hook["name"].removesuffix(".slicewarden.dev"): hook for hook in made}


def one(half: str = VALIDATE, manner: Manner = Manner.ENFORCE) -> Path:
    return Path(half, (Name(P, manner),))


TWO = Path(VALIDATE, (Name(P), Name(Q)))

names = st.builds(Name, st.from_regex(r"[0-9a-f]{16}", fullmatch=True), st.sampled_from(Manner))


@given(st.builds(Path, st.just(VALIDATE), st.lists(names, min_size=1, max_size=2).map(tuple)))
def test_a_path_is_read_as_it_was_written(path: Path) -> None:
    assert Path.read(str(path)) == path


@pytest.mark.parametrize(
    "text",
    [
        *("/validate", "/validate/", f"/mutate/{P}.{Q}", f"/validate/{P}.{Q}.{P}", f"validate/{P}", f"/validate/{P}/"),
        *(f"/validate/{P.upper()}", f"/validate/{P}-", f"/validate/{P}-audit-lenient", f"/status/{P}"),
        *(f"/validate/{P}\n", f"/validate/.{P}", f"/validate/{P}-AUDIT", "/validate/" + "٣" * 16),
    ],
)
def test_any_other_path_names_no_policy(text: str) -> None:
    assert Path.read(text) is None


@pytest.mark.parametrize("half", [MUTATE, VALIDATE])
def test_one_policy_is_asked_as_by_its_own_registration_but_for_path_bundle_and_probe(half: str) -> None:
    own = registration.configurations(OLD)[half == VALIDATE]["webhooks"]
    made = filled.webhooks(one(half), {P: OLD}, BUNDLE)
    assert made.pop()["name"] == f"probe-{half}.slicewarden.dev"
    for hook in (*own, *made):
        hook["clientConfig"]["service"].pop("path")
    assert [hook["clientConfig"].pop("caBundle") for hook in made] == [BUNDLE] * len(own)
    assert made == own


def test_audit_and_a_missing_webhook_never_fail_a_request() -> None:
    assert {hook["failurePolicy"] for hook in hooks(one(manner=Manner.AUDIT)).values()} == {"Ignore"}
    assert "Fail" in {hook["failurePolicy"] for hook in hooks(one()).values()}
    audit_to_enforce = Path(VALIDATE, (Name(P, Manner.AUDIT), Name(P)))
    assert {hook["failurePolicy"] for hook in hooks(audit_to_enforce).values()} == {"Ignore"}


def test_two_of_the_same_conditions_ask_as_one() -> None:
    made, alone = hooks(TWO), hooks(one())
    for hook in (*made.values(), *alone.values()):
        hook.pop("clientConfig")
    assert made == alone


def test_two_ask_only_about_what_both_ask_about() -> None:
    new = replace(OLD, annotation="example.com/other-trust", leave_alone=("monitoring",))
    made = hooks(TWO, OLD, new)
    (condition,) = made["pods"]["matchConditions"]
    assert condition["expression"].count(") && (") == 1
    assert OLD.annotation in condition["expression"]
    assert "example.com/other-trust" in condition["expression"]
    for asked in (made, hooks(TWO, new, OLD)):
        (selector,) = asked["pods"]["namespaceSelector"]["matchExpressions"]
        assert selector["operator"] == "NotIn"
        assert set(selector["values"]) == {*ALONE, *OLD.leave_alone, "monitoring"}


def test_a_webhook_that_one_of_two_lacks_is_not_asked_for() -> None:
    pools = tuple(replace(pool, scheduler="volcano") for pool in OLD.pools)
    new = replace(OLD, pools=pools)
    assert "scheduled-bindings" in hooks(one(), new)
    assert "scheduled-bindings" not in hooks(TWO, OLD, new)
    assert "scheduled-bindings" not in hooks(TWO, new, OLD)


def test_a_url_stands_in_the_place_of_the_service_and_is_read_back() -> None:
    made = filled.webhooks(TWO, {P: OLD, Q: OLD}, BUNDLE, url="https://127.0.0.1:8443")
    assert {hook["clientConfig"]["url"] for hook in made} == {f"https://127.0.0.1:8443/validate/{P}.{Q}"}
    assert filled.named({"webhooks": made}) == TWO.names


def test_the_policies_that_a_configuration_names_are_those_of_its_paths() -> None:
    assert filled.named({"metadata": {}}) == filled.named({"webhooks": []}) == ()
    assert filled.named({"webhooks": filled.webhooks(TWO, {P: OLD, Q: OLD}, BUNDLE)}) == TWO.names
    mixed = [hook for path in (one(), TWO) for hook in filled.webhooks(path, {P: OLD, Q: OLD}, BUNDLE)]
    with pytest.raises(ValueError, match="different paths"):
        filled.named({"webhooks": mixed})
    with pytest.raises(ValueError, match="names no policy"):
        filled.named(registration.configurations(OLD)[0])


def test_the_answer_of_a_probe_is_heard_in_the_header_of_a_warning() -> None:
    said = probe.warning(TWO, "0.1.0")
    assert probe.heard([f'299 - "{said}"', '299 - "unknown field"']) == [probe.Proof(TWO, "0.1.0")]
    both = f'299 - "{said}", 299 - "{probe.warning(one(MUTATE), "0.2")}"'
    assert [str(answer.path) for answer in probe.heard([both])] == [str(TWO), f"/mutate/{P}"]
    assert probe.heard(['299 - "slicewarden probe /mutate/x release 1"']) == []


def test_a_policy_that_is_applied_never_waits_for_an_absent_webhook() -> None:
    made = filled.policy_webhook(BUNDLE)
    assert (made["failurePolicy"], made["clientConfig"]["service"]["path"]) == ("Ignore", "/policy")
