"""Builds cosign, crane, Helm and a registry from their pins, and prints their folders as $PATH has them.

The workflow that publishes a release runs it.
"""

import os
import sys

from tests.signing import programs
from tests.support.go_programs import Missing

if __name__ == "__main__":
    try:
        print(os.pathsep.join(map(str, programs())))
    except Missing as missing:
        sys.exit(str(missing))
