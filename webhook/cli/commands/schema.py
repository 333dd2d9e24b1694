"""`slicewarden schema`: print the JSON Schema of a policy or of its tests, for editors."""

import json

import click

from webhook import policy_file, rules
from webhook.cli import docs, outputs, parser
from webhook.memory import frameworks


@click.command(
    cls=parser.Command,
    page=parser.Page(
        ("slicewarden schema > gpusharingpolicy.json", "slicewarden schema --kind PolicyTest > policytest.json"),
        parser.SHOWN,
        files={},
        environment={},
    ),
    help="Print the JSON Schema of a policy or of its tests, by which editors complete and check them as they are "
    "written. The line `# yaml-language-server: $schema=FILE` at the top of a file names it.",
)
@click.option("--markdown", is_flag=True, help="as a page for people")
@click.option(
    "--kind",
    type=parser.Choice(tuple(policy_file.SCHEMAS)),
    default=policy_file.KIND[1],
    help=f"default: {policy_file.KIND[1]}",
)
def command(markdown: bool, kind: str) -> None:
    """Print the schema."""
    ids = (rule.id for rule in rules.walk())
    schema = policy_file.schema(ids, kind, frameworks=frameworks.names())
    outputs.show(docs.schema(schema) if markdown else json.dumps(schema, indent=2) + "\n")
