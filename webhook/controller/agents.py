"""Keeps the copy of the policy that the nodes' agents read up to date, in clusters where agents are installed."""

from webhook.cluster import client
from webhook.policy.model import Policy

AGENTS = "/api/v1/namespaces/slicewarden-node/configmaps/slicewarden-node-policy"
"""The policy of the agents, where they are installed."""


def update(api: client.Api, policy: Policy) -> bool:
    """Write the policy for the agents if the written one differs. Returns whether it was written.

    Raises StatusError.
    """
    try:
        known = client.ask(api, AGENTS)
    except client.StatusError as error:
        if error.status in (client.NOT_FOUND, client.FORBIDDEN):
            return False
        raise
    if (known.get("data") or {}).get("policy.yaml") == policy.written:
        return False
    body = {
        "metadata": {"resourceVersion": known["metadata"]["resourceVersion"]},
        "data": {"policy.yaml": policy.written},
    }
    client.ask(api, AGENTS, method="PATCH", body=body, patch=client.MERGE)
    return True
