"""The API of Argo CD takes the objects of docs/gitops.md, by the definitions of its own module."""

import json
import re

import pytest
import yaml

from tests import ROOT
from tests.e2e.access import served
from tests.e2e.argo import DEFINITION, definition
from tests.e2e.conftest import Space
from tests.e2e.control_plane import Cluster
from tests.e2e.objects import Object
from tests.support.go_programs import Missing

PAGE = (ROOT / "docs" / "gitops.md").read_text("utf-8")


@pytest.fixture(scope="module")
def applications(cluster: Cluster) -> list[Object]:
    """The Applications of the page, with their kind in the cluster."""
    try:
        file = definition()
    except Missing as missing:
        pytest.skip(str(missing))
    cluster.do("apply", "--server-side", f"--filename={file}")
    served(cluster, DEFINITION)
    (found,) = re.findall(r"^```yaml\n(# argocd.yaml\n.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return [*yaml.safe_load_all(found)]


def test_argo_cd_has_every_field_of_the_applications(
    cluster: Cluster, applications: list[Object], space: Space
) -> None:
    namespace = space()
    assert [each["kind"] for each in applications] == ["Application", "Application"]
    strict = ("create", "--validate=strict", "--dry-run=server", f"--namespace={namespace}", "--filename=-")
    for each in applications:
        here = {**each, "metadata": {"name": "page"}}
        made = cluster.kubectl(*strict, stdin=json.dumps(here))
        assert made.returncode == 0, made.stderr
        unknown = cluster.kubectl(*strict, stdin=json.dumps({**here, "spec": {**here["spec"], "heal": True}}))
        assert 'unknown field "spec.heal"' in unknown.stderr
