"""Where the commands write."""

import sys
from pathlib import Path

from webhook.model import Problem, Unusable


def show(text: str) -> None:
    """Write to standard output. Raises Unusable where it takes no more, and BrokenPipeError where its reader left."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Unusable((Problem("standard output", 0, error.strerror or str(error)),)) from error


def save(file: str, text: str) -> None:
    """Write a file, over what is there. Raises Unusable."""
    try:
        Path(file).write_text(text, "utf-8")
    except OSError as error:
        raise Unusable((Problem(file, 0, error.strerror or str(error)),)) from error
