"""`slicewarden schema`: print the JSON Schema of a policy, for editors."""

import json
from argparse import ArgumentParser, Namespace

from webhook import outputs, policy_file, rules


def options(_: ArgumentParser) -> None:
    """Add the options of the command: it has none."""


def run(_: Namespace) -> int:
    """Print the schema."""
    outputs.show(json.dumps(policy_file.schema(rule.id for rule in rules.walk()), indent=2) + "\n")
    return 0
