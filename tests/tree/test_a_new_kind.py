"""A kind of facts is one file and an example: one is added to a copy of the tree, and commands write all else."""

from pathlib import Path

import pytest

from tests.support.copies import copy_tree, run_python

KIND = '''"""RuntimeClasses: their handlers."""

from webhook.api.lenient import string
from webhook.api.resources import Resource
from webhook.facts.kind import Fact, Part, Reach, Table
from webhook.model import Object
from webhook.policy.model import Policy

RESOURCES = (Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass"),)
TABLE = Table[str, str]("runtime_classes")
REACH = Reach.EVERYWHERE


def needed(policy: Policy) -> bool:
    """For sandboxes of tests; without one nothing of this is read."""
    return bool(policy.forms.sandboxes.patterns)


def read(item: Object, _: str, name: str) -> Fact:
    """Read the handler."""
    return TABLE.row(name, string(item.get("handler")) or None)


def kept(item: Object) -> Part:
    """Keep the handler."""
    return {"handler": item.get("handler")}
'''

EXAMPLE = """apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: gvisor}
handler: runsc
"""

READ = """
from webhook.facts.kinds.runtime_class import TABLE
from webhook.cli.inputs import load_sample
from webhook.cluster import listing, watch
from webhook.facts.snapshot import Facts
import sys, yaml
facts = Facts.of(yaml.safe_load_all(open(sys.argv[1])))
assert facts.table(TABLE) == {"gvisor": "runsc"}
for read in (watch.resources, listing.resources):
    assert "runtimeclasses" in {each.plural for each in read(load_sample())}
"""

KEPT_BY = (
    "facts/test_kinds.py",
    "cluster/test_watch.py",
    "cluster/test_read_for_a_policy.py",
    "tree/test_manifests.py",
    "tree/test_architecture.py",
)
"""The tests that walk all kinds, or keep what is generated from them."""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy with one more kind and its example, and with what `make chart` writes."""
    copy_tree(tmp_path)
    (tmp_path / "webhook" / "facts" / "kinds" / "runtime_class.py").write_text(KIND, "utf-8")
    (tmp_path / "tests" / "facts" / "kinds" / "runtime_class.yaml").write_text(EXAMPLE, "utf-8")
    run_python(tmp_path, "-m", "manifests.make_chart")
    return tmp_path


@pytest.mark.thorough
def test_a_kind_of_facts_is_one_file_and_an_example(tree: Path) -> None:
    """It is read, kept, written to files and watched, and the webhook and the audit have the rights."""
    roles = ("base/rbac.yaml", "chart/templates/rbac.yaml", "components/audit/rbac.yaml", "components/prove/rbac.yaml")
    for role in roles:
        text = (tree / "manifests" / role).read_text("utf-8")
        assert "  # For sandboxes of tests; without one nothing of this is read.\n" in text
        assert "    resources: [runtimeclasses]\n" in text
    example = tree / "tests" / "facts" / "kinds" / "runtime_class.yaml"
    run_python(tree, "-c", READ, str(example))
    assert '"handler": "runsc"' in run_python(tree, "-m", "webhook", "facts", str(example))
    tests = [str(tree / "tests" / name) for name in KEPT_BY]
    chosen = "runtime_class or RuntimeClass or kind or role or audit_may or chart or every_fact"
    run_python(tree, "-m", "pytest", "-x", "-k", chosen, *tests)
