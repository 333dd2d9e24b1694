"""`slicewarden demo`: a tour."""

from argparse import ArgumentParser, Namespace

from webhook import demo, manual


def options(parser: ArgumentParser) -> None:
    """Say what the command does; it has no options."""
    parser.description = (
        "Run the real webhook on loopback, with certificates and a sample cluster of its own, and ask it about one "
        "object after the other as an API server would. Nothing is left behind."
    )
    parser.epilog = manual.epilog(("slicewarden demo",), manual.PLAIN, files={}, environment={})


def run(_: Namespace) -> int:
    """Show the tour."""
    return demo.run()
