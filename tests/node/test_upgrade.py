"""From the release before to this one and back, with one policy, under a stream of pods: none is judged wrongly.

There has been no release yet: a commit stands for the one before (tests/node/product.py), under another name.
"""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests import ROOT
from tests.e2e.control_plane import Cluster, eventually
from tests.node import product
from tests.node.conftest import Sh
from tests.node.nodes import WORKER, Bed
from tests.node.replicas import SYSTEM, all_ready, stream
from tests.support.manifests import commands

INSTALL, POLICY = commands()["Two commands"]
READY = POLICY.splitlines()[-1]
NAMED = [
    {"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--release"},
    {"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "before"},
]


@pytest.fixture
def before(enforced: Cluster, bed: Bed, sh: Sh, tmp_path: Path) -> Iterator[Path]:
    """The folder of the release before, which is installed; after it this release is again, as it was."""
    image, tree = product.before(), tmp_path / "before"
    if image is None:
        pytest.skip(f"the history of this clone does not reach {product.BEFORE}, which stands for the release before")
    product.checked_out(tree)
    bed[WORKER].import_images([image])
    content = {
        "resources": ["manifests/controller"],
        "images": [{"name": "slicewarden", "newTag": "before"}],
        "patches": [{"target": {"kind": "Deployment", "name": "slicewarden$"}, "patch": json.dumps(NAMED)}],
    }
    (tree / "kustomization.yaml").write_text(json.dumps(content))
    yield tree
    sh(INSTALL)
    assert eventually(partial(all_ready, enforced), 120)
    sh(READY)


def images_of(cluster: Cluster) -> str:
    """The image that the Deployment names."""
    path = "--output=jsonpath={.spec.template.spec.containers[*].image}"
    return cluster.do("get", "deployment", "slicewarden", SYSTEM, path)


def test_a_rollback_an_upgrade_and_a_rollback_of_the_release(enforced: Cluster, sh: Sh, before: Path) -> None:
    def put_in(image: str, commands: str, folder: Path) -> None:
        with stream(enforced):
            sh(commands, folder)
            assert eventually(partial(all_ready, enforced), 120)
            sh(READY)
        assert images_of(enforced) == f"slicewarden:{image}"

    older = INSTALL.replace("apply -f manifests/install.yaml", "apply -k .")
    assert older != INSTALL
    put_in("before", older, before)
    put_in("0.1.0", INSTALL, ROOT)
    put_in("before", older, before)
