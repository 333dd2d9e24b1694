"""`python -m tests.frameworks`: prepare what these tests need. Exits with 2 after one line on what is missing."""

import sys

from tests.frameworks import card, environments
from tests.frameworks.cache import Missing


def main() -> int:
    try:
        card.compiled()
        for name in environments.NAMES:
            environments.python(name)
    except Missing as missing:
        print(missing, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
