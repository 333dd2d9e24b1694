"""`slicewarden version`: print the version."""

import click

from webhook.cli import outputs, parser


@click.command(
    cls=parser.Command,
    page=parser.HelpEpilog(("slicewarden version",), parser.SHOWN, files={}, environment={}),
    help="Print the version of this installation, as `slicewarden --version` does.",
)
def command() -> None:
    """Print the version."""
    show()


def show() -> None:
    """Print the version. Raises Unusable where the package is not installed."""
    from webhook.telemetry import release  # which nearly no other command needs

    outputs.show(f"slicewarden {release.needed()}\n")
