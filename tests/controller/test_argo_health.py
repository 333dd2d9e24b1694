"""The health that Argo CD's script reads in a policy's status, in the Lua of Argo CD: 5.1.

Argo CD runs a script in gopher-lua, which is Lua 5.1, with the object as `obj` and without most libraries (argo-cd
util/lua/lua.go, runLuaWithResourceActions). It shows the table that the script returns.
"""

from datetime import UTC, datetime
from typing import Any, cast

import pytest
from lupa import lua51

from tests import ROOT
from webhook.controller.status import READY, STALLED, Reason, Standing, status
from webhook.model import Object

SCRIPT = (ROOT / "manifests" / "argocd" / "gpusharingpolicy.lua").read_text("utf-8")
ABSENT = ("coroutine", "debug", "io", "os", "string", "math", "require", "dofile", "loadfile")
"""Libraries and functions that the script must do without."""
UNSEEN = {"status": "Progressing", "message": "the controller has not seen it yet"}


def health(item: Object) -> Object:
    """Return what the script says of an object."""
    lua = lua51.LuaRuntime(register_eval=False, register_builtins=False)
    for name in ABSENT:
        lua.globals()[name] = None
    lua.globals()["obj"] = lua.table_from(item, recursive=True)
    return dict(cast("Any", lua.execute(SCRIPT)))


def policy(generation: int = 2, made: Object | None = None) -> Object:
    item: Object = {"metadata": {"name": "sample", "generation": generation}, "spec": {}}
    return item if made is None else {**item, "status": made}


def written(reason: Reason) -> Object:
    """The status that the controller writes, as the API server stores it: a merge patch stores no null."""
    made = status(policy(), Standing(reason, f"why {reason}", {}), datetime.now(UTC))
    return {key: value for key, value in made.items() if value is not None}


@pytest.mark.parametrize("reason", Reason)
def test_argo_shows_the_health_of_every_reason_with_its_message(reason: Reason) -> None:
    wanted = "Healthy" if reason in READY else "Degraded" if reason in STALLED else "Progressing"
    assert health(policy(made=written(reason))) == {"status": wanted, "message": f"why {reason}"}


@pytest.mark.parametrize("reason", Reason)
def test_the_status_of_an_older_generation_says_nothing_of_this_one(reason: Reason) -> None:
    assert health(policy(3, written(reason))) == UNSEEN


@pytest.mark.parametrize("made", [None, {}, {"conditions": []}, {"observedGeneration": 1}])
def test_a_policy_that_the_controller_has_not_seen_is_progressing(made: Object | None) -> None:
    assert health(policy(made=made)) == UNSEEN


@pytest.mark.parametrize("conditions", [[], [{"type": "Other", "status": "True", "message": "no word of ours"}]])
def test_a_status_without_our_conditions_is_never_healthy(conditions: list[Object]) -> None:
    assert health(policy(made={"observedGeneration": 2, "conditions": conditions}))["status"] == "Progressing"


def test_what_is_stalled_is_degraded_wherever_its_condition_stands() -> None:
    made = written(Reason.INVALID)
    for conditions in (made["conditions"], made["conditions"][::-1]):
        assert health(policy(made={**made, "conditions": conditions}))["status"] == "Degraded"
