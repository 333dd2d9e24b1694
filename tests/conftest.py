"""Fixtures for every test: the sample policy, the sample cluster, and an engine with all rules."""

import gc
import os
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, settings

from tests import ROOT, SUITES
from tests.support import checkouts, stamps
from tests.support.policies import FACTS, POLICY, facts_of, policy_of
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.policy.model import Policy
from webhook.rules import walk

# By libyaml, as the product reads: the same values, in a tenth of the time.
vars(yaml).update(
    safe_load=partial(yaml.load, Loader=yaml.CSafeLoader), safe_load_all=partial(yaml.load_all, Loader=yaml.CSafeLoader)
)

# No deadline: a busy machine is no failure. In CI the same examples are tried every time.
settings.register_profile(
    "slicewarden",
    deadline=None,
    max_examples=int(os.environ.get("EXAMPLES", "20")),  # `make fuzz` tries more
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("slicewarden-ci", settings.get_profile("slicewarden"), derandomize=True)
settings.load_profile("slicewarden-ci" if os.environ.get("CI") else "slicewarden")


_SUITES = {ROOT / "tests" / name for name in SUITES}


def pytest_configure(config: pytest.Config) -> None:
    """Let a suite have no stamp that reads a file of the checkout which its stamp does not cover."""
    asked = {(config.invocation_params.dir / argument.partition("::")[0]).resolve() for argument in config.args}
    folders = {each.relative_to(ROOT / "tests").parts[:1] for each in asked if each.is_relative_to(ROOT / "tests")}
    for suite, own in stamps.TARGETS.items():
        if folders and folders <= {(folder,) for folder in own}:
            config.add_cleanup(partial(_note, suite, stamps.noting()))


def _note(suite: str, noted: Callable[[], list[str]]) -> None:
    if unseen := stamps.unseen(suite, noted()):
        place = stamps.uncovered(suite)
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("a", encoding="utf-8") as lines:  # two processes may share a suite
            lines.write("\n".join(unseen) + "\n")


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


@pytest.fixture(scope="session")
def release_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of the release before this one."""
    if (commit := checkouts.before()) is None:
        pytest.skip(f"the history of this clone has no release, nor {checkouts.STAND_IN}, which stands for one")
    return checkouts.unpacked(commit, tmp_path_factory.mktemp("before") / "tree")
