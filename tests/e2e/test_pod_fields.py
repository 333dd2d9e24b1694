"""The API server publishes a pod with the fields that were reviewed."""

import json

from tests.e2e.control_plane import Cluster
from tests.support.pod_fields import RECORDED, fields_of


def test_the_fields_of_a_pod_are_those_that_were_reviewed(cluster: Cluster) -> None:
    document = json.loads(cluster.do("get", "--raw=/openapi/v3/api/v1"))
    recorded = json.loads(RECORDED.read_text("utf-8"))
    assert fields_of(document) == recorded, "record it again (tests/support/pod_fields.py), and review what is new"
