"""Build what a node is made of, then run the tests here in a bed: `python -m tests.node [ARGUMENTS OF PYTEST]`.

With `--build` alone it builds and runs no test.
"""

import sys
import time
from pathlib import Path

from tests.chart import helm
from tests.e2e import binaries
from tests.monitoring import prometheus
from tests.node import bed, charts, product, programs
from tests.node.carried import carried
from tests.support.go_programs import Missing, Unbuilt, say

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Return pytest's exit status; 0 after one line where this machine cannot be a node, 1 where a build fails."""
    if lack := bed.lacking():
        say(f"skipped: {lack}")
        return 0
    start = time.monotonic()
    try:
        binaries.find()
        places = programs.find()
        (
            helm.find(),
            charts.find(),
            prometheus.find("prometheus"),
            carried(places),
            product.built_again(),
            product.before(),
        )
    except Unbuilt as unbuilt:
        say(f"error: {unbuilt}")
        return 1
    except Missing as missing:
        say(f"skipped: {missing}")
        return 0
    say(f"all that a node is made of is there after {time.monotonic() - start:.0f} s")
    if sys.argv[1:] == ["--build"]:
        return 0
    return bed.run([sys.executable, "-m", "pytest", "-rs", HERE, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
