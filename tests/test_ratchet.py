"""An update: what it makes worse is refused, what was there before is not."""

from typing import Any

import pytest

from webhook.engine import Engine
from webhook.facts import Facts
from webhook.model import Request, Verdict

TRUSTED = {"slicewarden.dev/trust": "trusted"}


def container(name: str, slices: int = 1, env: tuple[tuple[str, str], ...] = ()) -> dict[str, Any]:
    limits = {"nvidia.com/gpu.shared": slices} if slices else {}
    variables = [{"name": key, "value": value} for key, value in env]
    return {"name": name, "resources": {"limits": limits}, "env": variables}


def deployment(*containers: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"template": {"metadata": {"annotations": TRUSTED}, "spec": {"containers": [*containers]}}}}


def config_map(**data: str) -> dict[str, Any]:
    return {"metadata": {"labels": {}}, "data": data}


def pod(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {},
        "spec": {"containers": [{"name": "a", "resources": {"limits": {"nvidia.com/gpu": 1}}}], **spec},
    }


def sharing(name: str = "nvidia.com/gpu", replicas: int = 4, more: str = "") -> str:
    return f"sharing: {{timeSlicing: {{resources: [{{name: {name}, replicas: {replicas}}}{more}]}}}}"


def update(engine: Engine, facts: Facts, group: str, kind: str, old: dict[str, Any], new: dict[str, Any]) -> Verdict:
    request = Request("u", "UPDATE", group, "v1", kind, "", "vision", "x", "", False, new, old)
    assert not engine.validate(
        Request("u", "CREATE", group, "v1", kind, "", "vision", "x", "", False, old, None), facts
    ).allowed
    return engine.validate(request, facts)


CAP = "PYTORCH_ALLOC_CONF"
RAISED = (CAP, "per_process_memory_fraction:90%")

WORSE = {
    "more containers take slices": (
        deployment(container("a", 2)),
        deployment(container("a", 2), *(container(f"b{n}") for n in range(9))),
    ),
    "a slice more": (deployment(container("a", 2)), deployment(container("a", 3))),
    "the same wrong value twice": (
        deployment(container("a", 1, (RAISED,))),
        deployment(container("a", 1, (RAISED,)), container("b", 1, (RAISED,))),
    ),
    "another wrong value": (
        deployment(container("a", 1, (RAISED,))),
        deployment(container("a", 1, ((CAP, "per_process_memory_fraction:95%"),))),
    ),
}

NO_WORSE = {
    "a label": (deployment(container("a", 2)), {**deployment(container("a", 2)), "metadata": {"labels": {"a": "b"}}}),
    "a container before it goes": (
        deployment(container("side", 0), container("a", 2)),
        deployment(container("a", 2)),
    ),
    "a variable comes before it": (
        deployment(container("a", 1, (RAISED,))),
        deployment(container("a", 1, (("OTHER", "1"), RAISED))),
    ),
    "one of two things is put right": (
        deployment(container("a", 1, (RAISED, ("XLA_PYTHON_CLIENT_MEM_FRACTION", "90%")))),
        deployment(container("a", 1, (RAISED,))),
    ),
}


@pytest.mark.parametrize(("old", "new"), WORSE.values(), ids=WORSE)
def test_what_makes_a_workload_worse_is_denied(
    engine: Engine, sample_facts: Facts, old: dict[str, Any], new: dict[str, Any]
) -> None:
    assert not update(engine, sample_facts, "apps", "Deployment", old, new).allowed


@pytest.mark.parametrize(("old", "new"), NO_WORSE.values(), ids=NO_WORSE)
def test_what_makes_a_workload_no_worse_is_allowed(
    engine: Engine, sample_facts: Facts, old: dict[str, Any], new: dict[str, Any]
) -> None:
    assert update(engine, sample_facts, "apps", "Deployment", old, new).allowed


@pytest.mark.parametrize(
    "new",
    [
        config_map(a=sharing(replicas=8)),
        config_map(a=sharing("nvidia.com/mig-1g.5gb")),
        config_map(a=sharing(more=", {name: nvidia.com/mig-1g.5gb, replicas: 2}")),
        config_map(**{"a": sharing(), "k" * 90 + "2": sharing()}),
    ],
    ids=["more replicas", "another resource", "one resource more", "one key more"],
)
def test_a_bad_configuration_cannot_grow(engine: Engine, sample_facts: Facts, new: dict[str, Any]) -> None:
    old = config_map(**{"a": sharing(), "k" * 90 + "1": sharing()})
    assert not update(engine, sample_facts, "", "ConfigMap", old, new).allowed


def test_a_bad_configuration_may_be_labelled_and_its_good_neighbour_edited(engine: Engine, sample_facts: Facts) -> None:
    old = config_map(a=sharing(), b="version: v1")
    new = {**config_map(a=sharing(), b="version: v1\n# edited"), "metadata": {"labels": {"a": "b"}}}
    assert update(engine, sample_facts, "", "ConfigMap", old, new).allowed


@pytest.mark.parametrize(
    "spec",
    [
        {"tolerations": [{"key": "slicewarden.dev/pool", "operator": "Exists"}]},
        {"nodeSelector": {"nvidia.com/gpu.present": "true"}},
        {"nodeSelector": {"other": "label"}},
    ],
)
def test_a_pod_that_was_never_steered_may_come_closer(
    engine: Engine, sample_facts: Facts, spec: dict[str, Any]
) -> None:
    assert update(engine, sample_facts, "", "Pod", pod(), pod(**spec)).allowed


def test_a_pod_that_was_never_steered_may_not_ask_for_another_pool(engine: Engine, sample_facts: Facts) -> None:
    assert not update(engine, sample_facts, "", "Pod", pod(), {**pod(), "metadata": {"annotations": TRUSTED}}).allowed
