"""What every test may ask for: the sample policy, the sample cluster, and an engine with all rules."""

import os

import pytest
from hypothesis import HealthCheck, settings

from tests import ROOT
from webhook.documents.documents import read
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.policy.load import load
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


@pytest.fixture(scope="session")
def sample_policy() -> Policy:
    """The policy that the project ships as an example."""
    path = ROOT / "policies" / "sample.yaml"
    documents, problems = read(path.read_text("utf-8"), path.name)
    assert problems == []
    return load(documents, [rule.id for rule in walk()], path.name)


@pytest.fixture(scope="session")
def sample_facts() -> Facts:
    """Two namespaces, of which only vision may be trusted, and a node of each kind."""
    path = ROOT / "webhook" / "sample" / "facts.yaml"
    documents, problems = read(path.read_text("utf-8"), path.name)
    assert problems == []
    return Facts.of(item for document in documents for item in document.value["items"])


@pytest.fixture(scope="session")
def engine(sample_policy: Policy) -> Engine:
    """Every rule, under the sample policy."""
    return Engine(sample_policy, walk())
