"""The entry point of `slicewarden`."""

import atexit
import gc
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns its exit status; `parser.JUDGED` and `parser.ENDED` list the meanings."""
    gc.set_threshold(50_000, 10, 10)  # startup objects live for the whole run; collecting them took 10 % of a start
    atexit.register(gc.freeze)  # without it, Python's last collection takes 6 % of a start
    from webhook.cli import root  # only now: the imports make most of these objects

    return root.run(argv)
