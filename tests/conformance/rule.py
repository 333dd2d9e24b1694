"""`invalid-sharing-config`, asked as an API server asks it: a ConfigMap in, a verdict out."""

import base64
from typing import Any

from webhook.api import admission
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.policy.model import Policy
from webhook.rules import walk

UNREAD = "Slicewarden cannot judge this text"
"""What the rule says of a text that it does not read although the plugin may: by bounds of its own."""


def engine(policy: Policy) -> Engine:
    """The one rule, under a policy that names a ConfigMap."""
    return Engine(policy, [rule for rule in walk() if rule.id == "invalid-sharing-config"])


def findings(judge: Engine, config: str | bytes) -> list[str]:
    """Return what the rule says of a configuration, its text or its bytes, in the ConfigMap that the policy names."""
    namespace, name = sorted(judge.policy.config_maps)[0]
    item: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
    }
    if isinstance(config, str):
        item["data"] = {"any": config}
    else:
        item["binaryData"] = {"any": base64.b64encode(config).decode()}
    verdict = judge.validate(admission.decode(admission.wrap(item)), Facts())
    assert verdict.malformed is None
    assert verdict.allowed == (not verdict.results)
    return [result.finding.message for result in verdict.results]
