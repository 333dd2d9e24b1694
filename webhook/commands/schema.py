"""`slicewarden schema`: print the JSON Schema of a policy or of its tests, for editors."""

import json
from argparse import ArgumentParser, Namespace

from webhook import outputs, policy_file, rules


def options(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("--kind", choices=policy_file.SCHEMAS, default=policy_file.KIND[1], help="default: %(default)s")


def run(chosen: Namespace) -> int:
    """Print the schema."""
    outputs.show(json.dumps(policy_file.schema((rule.id for rule in rules.walk()), chosen.kind), indent=2) + "\n")
    return 0
