"""Writes the fallback as it is installed with a controller: policies that deny nothing yet, and their bindings.

The bindings never change. The controller adds validations to a policy while exactly one policy is in force.
"""

from collections.abc import Iterator
from pathlib import Path

from webhook import rules
from webhook.cli.inputs import load_sample
from webhook.controller import fallback
from webhook.documents import goyaml_writer
from webhook.engine.registration import API_VERSION, CLUSTER_SCOPED, LABELS, webhooks
from webhook.fallback import policies
from webhook.fallback.answers import ValidationActions
from webhook.fallback.policies import SOURCES, Made
from webhook.policy.model import ALONE
from webhook.policy.scopes import NAME_LABEL

FILE = Path(__file__).resolve().parent / "controller" / "fallback.yaml"
NOTE = "# Written by `make chart`. The controller fills the policies; the bindings never change (docs/operator.md).\n"


def made() -> Iterator[Made]:
    """Make the policies without validations, then their bindings.

    A binding repeats the match constraints of its policy, and skips the namespaces that must be able to start without
    the webhook. So a user who may change only the policies cannot deny more.
    """
    policy = load_sample()
    heard = {each.name: each for each in webhooks(policy)}
    sources = {f"slicewarden-{asked}": (asked, source) for asked, source in SOURCES.items()}
    limits: dict[str, Made] = {}
    for name in fallback.NAMES:
        asked, source = sources[name.removesuffix(policies.AUDITED)]
        constraints = policies.matching(asked, heard[source.webhook])["matchConstraints"]
        limits[name] = {"resourceRules": constraints["resourceRules"]}
        if source.webhook not in CLUSTER_SCOPED:
            elsewhere = {"key": NAME_LABEL, "operator": "NotIn", "values": [*ALONE]}
            limits[name]["namespaceSelector"] = {"matchExpressions": [elsewhere]}
        # Required by the API; null records nothing.
        unfilled = [{"key": "filled", "valueExpression": "null"}]
        spec = {"failurePolicy": "Fail", "matchConstraints": constraints, "auditAnnotations": unfilled}
        metadata = {"name": name, "labels": LABELS}
        yield {"apiVersion": API_VERSION, "kind": fallback.KIND, "metadata": metadata, "spec": spec}
    actions = {
        each["metadata"]["name"]: each["spec"]
        for each in policies.fallback(policy, rules.walk(), ValidationActions.BY_RULE)
        if each["kind"] != fallback.KIND
    }
    for name in fallback.NAMES:
        metadata = {"name": name, "labels": LABELS}
        spec = {**actions[name], "matchResources": limits[name]}
        yield {"apiVersion": API_VERSION, "kind": f"{fallback.KIND}Binding", "metadata": metadata, "spec": spec}


def files() -> Iterator[tuple[Path, str]]:
    """Make the file, by its path."""
    yield FILE, NOTE + "".join(f"---\n{goyaml_writer.write(each)}" for each in made())
