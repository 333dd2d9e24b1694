"""Every row of the tables of labels says where the label comes from."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from webhook.catalog import node_labels

LINES = Path(node_labels.__file__).read_text("utf-8").splitlines()
TABLES = {
    node.targets[0].id: node.value
    for node in ast.parse("\n".join(LINES)).body
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
}


def rows(table: ast.expr) -> Iterator[ast.expr]:
    """The labels that a table has itself: the rows of a tuple, or the keys of a map; not those of another table."""
    inner = table.args[0] if isinstance(table, ast.Call) else table
    assert isinstance(inner, ast.Tuple | ast.Dict)
    for each in inner.elts if isinstance(inner, ast.Tuple) else inner.keys:
        if each is not None and not isinstance(each, ast.Starred):
            yield each


def comment(row: ast.expr) -> str:
    """The comment at the end of a row's line, or on the line above it."""
    own, above = LINES[row.lineno - 1], LINES[row.lineno - 2].strip()
    return own.partition("  # ")[2] or (above if above.startswith("# ") else "")


NAMES = (
    "PRODUCTS",
    "STRATEGIES",
    "REPLICAS",
    "PARTITIONS",
    "MEMORIES",
    "COUNTS",
    "MANUFACTURERS",
    "INSTANCE_TYPES",
    "SCALING",
    "GROUPS",
    "GPU_NODE_LABELS",
)


@pytest.mark.parametrize("name", NAMES)
def test_each_label_has_its_source(name: str) -> None:
    found = {ast.unparse(row): comment(row) for row in rows(TABLES[name])}
    assert found
    assert [
        label for label, source in found.items() if not re.search(r"[\w-]/[\w-]|Discovery|STRATEGIES", source)
    ] == []
