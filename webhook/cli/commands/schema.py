"""`slicewarden schema`: print the JSON Schema of a policy or of its tests, for editors."""

import json

import click

from webhook import rules
from webhook.cli import docs, outputs, parser
from webhook.memory import frameworks
from webhook.policy import schemas


@click.command(
    cls=parser.Command,
    page=parser.HelpEpilog(
        ("slicewarden schema > gpusharingpolicy.json", "slicewarden schema --kind PolicyTest > policytest.json"),
        parser.SHOWN,
        files={},
        environment={},
    ),
    help="Print the JSON Schema of a policy or of its tests. Editors use it to complete and check these files; the "
    "line `# yaml-language-server: $schema=FILE` at the top of a file names it.",
)
@click.option("--markdown", is_flag=True, help="as a page for people, in Markdown")
@click.option(
    "--kind",
    type=parser.WordChoice(tuple(schemas.SCHEMAS)),
    default=schemas.KIND[1],
    help=f"default: {schemas.KIND[1]}",
)
def command(markdown: bool, kind: str) -> None:
    """Print the schema."""
    ids = (rule.id for rule in rules.walk())
    schema = schemas.schema(ids, kind, frameworks=frameworks.names())
    outputs.show(docs.schema(schema) if markdown else json.dumps(schema, indent=2) + "\n")
