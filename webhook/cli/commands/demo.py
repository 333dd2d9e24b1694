"""`slicewarden demo`: show the webhook at work on a sample cluster."""

import click

from webhook.cli import demo, parser


@click.command(
    cls=parser.Command,
    page=parser.HelpEpilog(("slicewarden demo",), parser.SHOWN, files={}, environment={}),
    help="Run the real webhook on loopback, with its own certificates and a sample cluster, and send it one object "
    "after another, as an API server would. Nothing is left behind.",
)
def command() -> int:
    """Show the tour."""
    return demo.run()
