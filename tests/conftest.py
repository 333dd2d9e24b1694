"""Fixtures for every test: the sample policy, the sample cluster, and an engine with all rules."""

import gc
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import ROOT, SUITES
from tests.support import stamps
from tests.support.policies import FACTS, POLICY, facts_of, policy_of
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.policy.model import Policy
from webhook.rules import walk

# No deadline: a busy machine is no failure. In CI the same examples are tried every time.
settings.register_profile(
    "slicewarden",
    deadline=None,
    max_examples=50,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("slicewarden-ci", settings.get_profile("slicewarden"), derandomize=True)
settings.load_profile("slicewarden-ci" if os.environ.get("CI") else "slicewarden")


_SUITES = {ROOT / "tests" / name for name in SUITES}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave a suite out of a run of all tests."""
    if collection_path not in _SUITES:
        return None
    asked = ((config.invocation_params.dir / argument.partition("::")[0]).resolve() for argument in config.args)
    return None if any(path.is_relative_to(collection_path) for path in asked) else True


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let the garbage collector pass over the list of all tests, at which it would look again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def stamped(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let a suite have no stamp that reads a file of the checkout which its stamp does not cover."""
    folders = {item.path.relative_to(ROOT / "tests").parts[0] for item in request.session.items}
    suites = [name for name, own in stamps.TARGETS.items() if folders <= set(own)]
    if not suites:
        yield
        return
    opened: list[str] | None = []

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and opened is not None and isinstance(arguments[0], str):
            opened.append(arguments[0])

    sys.addaudithook(hook)
    yield
    read = opened or []
    opened = None
    modules = [file for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))]
    if unseen := stamps.unseen(suites[0], [*read, *modules]):
        place = stamps.uncovered(suites[0])
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(", ".join(unseen))


@pytest.fixture(scope="session")
def sample_policy() -> Policy:
    """The policy that the project ships as an example."""
    return policy_of(POLICY)


@pytest.fixture(scope="session")
def sample_facts() -> Facts:
    """Two namespaces, of which only vision may be trusted, and a node of each kind."""
    return facts_of(FACTS)


@pytest.fixture(scope="session")
def engine(sample_policy: Policy) -> Engine:
    """Every rule, under the sample policy."""
    return Engine(sample_policy, walk())
