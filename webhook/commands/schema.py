"""`slicewarden schema`: print the JSON Schema of a policy or of its tests, for editors."""

import json
from argparse import ArgumentParser, Namespace

from webhook import manual, outputs, policy_file, reference, rules
from webhook.memory import frameworks


def options(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = (
        "Print the JSON Schema of a policy or of its tests, by which editors complete and check them as they are "
        "written. The line `# yaml-language-server: $schema=FILE` at the top of a file names it."
    )
    parser.epilog = manual.epilog(
        ("slicewarden schema > gpusharingpolicy.json", "slicewarden schema --kind PolicyTest > policytest.json"),
        manual.PLAIN,
        files={},
        environment={},
    )
    parser.add_argument("--markdown", action="store_true", help="as a page for people")
    parser.add_argument("--kind", choices=policy_file.SCHEMAS, default=policy_file.KIND[1], help="default: %(default)s")


def run(chosen: Namespace) -> int:
    """Print the schema."""
    ids = (rule.id for rule in rules.walk())
    schema = policy_file.schema(ids, chosen.kind, frameworks=frameworks.names())
    outputs.show(reference.schema(schema) if chosen.markdown else json.dumps(schema, indent=2) + "\n")
    return 0
