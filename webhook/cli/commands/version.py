"""`slicewarden version`: print the version."""

import click

from webhook.cli import outputs, parser


@click.command(
    cls=parser.Command,
    page=parser.Page(("slicewarden version",), parser.SHOWN, files={}, environment={}),
    help="Print the version of this installation, as `slicewarden --version` does.",
)
def command() -> None:
    """Print the version."""
    from importlib.metadata import version  # which no other command needs

    outputs.show(f"slicewarden {version('slicewarden')}\n")
