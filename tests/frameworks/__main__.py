"""`python -m frameworks`: make ready what the tests here need. Exit status 2 after one line on what is missing."""

import sys

from frameworks import card, environments
from frameworks.cache import Missing


def main() -> int:
    try:
        card.library()
        for name in environments.NAMES:
            environments.python(name)
    except Missing as missing:
        print(missing, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
