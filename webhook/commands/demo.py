"""`slicewarden demo`: a tour."""

from argparse import ArgumentParser, Namespace

from webhook import demo


def options(_: ArgumentParser) -> None:
    """Add the options of the command: it has none."""


def run(_: Namespace) -> int:
    """Show the tour."""
    return demo.run()
