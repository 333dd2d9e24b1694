"""The tests: a folder for each package of webhook/, the whole tree in `tree`, and suites that are asked for by path."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

SUITES = frozenset(
    {
        "browser",
        "chart",
        "conformance",
        "e2e",
        "evaluator",
        "faults",
        "frameworks",
        "image",
        "monitoring",
        "node",
        "oracles",
        "release",
        "signing",
    }
)
"""Folders of tests that need more than Python, or long: they run when a path names them, as in `pytest tests/e2e`."""
