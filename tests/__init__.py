"""The tests: a folder for each package of webhook/, the whole tree in `tree`, and suites that are asked for by path."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
