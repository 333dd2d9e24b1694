"""Reads the names of annotations that CRI-O reads or writes, from the Go files of its source that list them."""

import json
import re
import sys
from pathlib import Path

from tests import ROOT

RECORDED = ROOT / "tests/runtimes/cri-o.json"

FILES = (
    "internal/annotations/annotations.go",
    "internal/annotations/checkpoint.go",
    "pkg/annotations/v2/annotations.go",
)
"""The files of CRI-O's source with constants for annotations."""


def names_in(source: str) -> set[str]:
    """Return the strings of a Go file that are constants, or items of a list, and look like the name of an annotation.

    A name has a dot, or is an item of the list of all annotations that CRI-O may pass on, such as `bundle`.
    """
    constants = re.findall(r'^\s*\w+\s*=\s*"([^"]*\.[^"]*)"$', source, re.MULTILINE)
    return {*constants, *re.findall(r'^\s*"([^"]+)",$', source, re.MULTILINE)}


def main() -> None:
    """Record the names in a checkout: `python -m tests.support.cri_o FOLDER COMMIT`."""
    folder, commit = Path(sys.argv[1]), sys.argv[2]
    names = set[str]().union(*(names_in((folder / file).read_text("utf-8")) for file in FILES))
    RECORDED.write_text(json.dumps({"commit": commit, "names": sorted(names)}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
