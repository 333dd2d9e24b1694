"""An API server takes the conditions that are made from a policy, whatever its guard."""

import json
from dataclasses import replace

import pytest

from tests.e2e.control_plane import Cluster
from webhook.engine.registration import configurations
from webhook.policy.model import Guard, Policy


@pytest.mark.parametrize("guard", [Guard("slicewarden.dev/pool"), Guard(), None], ids=["taint", "every-pod", "none"])
def test_the_api_server_takes_the_conditions(cluster: Cluster, sample_policy: Policy, guard: Guard | None) -> None:
    for each in configurations(replace(sample_policy, guard=guard)):
        name = f"{each['metadata']['name']}-try"
        item = json.dumps({**each, "metadata": {"name": name}})
        taken = cluster.kubectl("create", "--dry-run=server", "--filename=-", stdin=item)
        assert taken.returncode == 0, taken.stderr
