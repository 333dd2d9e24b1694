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
@click.option("--crd", is_flag=True, help="as the CustomResourceDefinition of policies, in YAML")
@click.option("--markdown", is_flag=True, help="as a page for people, in Markdown")
@click.option(
    "--kind",
    type=parser.WordChoice(tuple(schemas.SCHEMAS)),
    default=schemas.KIND[1],
    help=f"default: {schemas.KIND[1]}",
)
def command(crd: bool, markdown: bool, kind: str) -> None:
    """Print the schema."""
    if crd and (markdown or kind != schemas.KIND[1]):
        raise click.UsageError("--crd is of policies, and no page: without --markdown and --kind")
    ids = (rule.id for rule in rules.walk())
    schema = schemas.schema(ids, kind, frameworks=frameworks.names())
    if crd:
        from webhook.documents import goyaml_writer
        from webhook.policy.crd import definition

        outputs.show(f"# Made by `slicewarden schema --crd`.\n{goyaml_writer.write(definition(schema))}")
        return
    outputs.show(docs.schema(schema) if markdown else json.dumps(schema, indent=2) + "\n")
