"""From the release before to this one and back, with one policy, under a stream of pods.

None is judged wrongly, because the policy bears with what the release before does not write, as the page says.
There has been no release yet: a commit stands for the one before (tests/node/product.py).
"""

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests import ROOT
from tests.e2e.control_plane import Cluster, eventually
from tests.node import product
from tests.node.conftest import Sh
from tests.node.nodes import GPU_NODE, WORKER, Bed
from tests.node.replicas import SYSTEM, all_ready, stream
from tests.support.manifests import commands

OVERLAY = "manifests/overlays/enforce"
STATUS = f"kubectl rollout status deployment/slicewarden {SYSTEM}"
APPLY = f"kubectl apply -k {OVERLAY}\nslicewarden certs keep\n{STATUS}"
LINE = "  unpatched: Warn\n"
"""What the page adds to a policy for the time of an upgrade."""


@pytest.fixture
def before(enforced: Cluster, bed: Bed, sh: Sh, tmp_path: Path) -> Iterator[Path]:
    """The folder of the release before, which is installed; after it this release is again, as it was."""
    image, tree = product.before(), tmp_path / "before"
    if image is None:
        pytest.skip(f"the history of this clone does not reach {product.BEFORE}, which stands for the release before")
    product.checked_out(tree)
    bed[WORKER].import_images([image])
    with (tree / OVERLAY / "kustomization.yaml").open("a") as overlay:
        overlay.write("images: [{name: slicewarden, newTag: before}]\n")
    # It knows nodes with GPUs by the GPU Operator's label alone.
    enforced.do("label", "node", GPU_NODE, "nvidia.com/gpu.present=true")
    sh(APPLY, tree)
    assert eventually(partial(all_ready, enforced), 120)
    yield tree
    sh(APPLY)
    assert eventually(partial(all_ready, enforced), 120)
    enforced.do("label", "node", GPU_NODE, "nvidia.com/gpu.present-")


@pytest.fixture
def after(before: Path, tmp_path: Path) -> Path:
    """A clone of this release, beside the policy of the one before with the page's line for upgrades."""
    clone = tmp_path / "after"
    for name in ("manifests", "policies"):
        shutil.copytree(ROOT / name, clone / name)
    (clone / "policy.yaml").write_text((before / "policies/sample.yaml").read_text("utf-8") + LINE)
    return clone


CONFIGURATIONS = "mutatingwebhookconfigurations,validatingwebhookconfigurations"


def bundles(cluster: Cluster) -> dict[str, str]:
    """The caBundle of each webhook of ours, by its name; empty where it has none."""
    found = cluster.get(CONFIGURATIONS, "--selector=app.kubernetes.io/part-of=slicewarden")["items"]
    return {hook["name"]: hook["clientConfig"].get("caBundle", "") for each in found for hook in each["webhooks"]}


def images_of(cluster: Cluster) -> str:
    """The image that the Deployment names."""
    path = "--output=jsonpath={.spec.template.spec.containers[*].image}"
    return cluster.do("get", "deployment", "slicewarden", SYSTEM, path)


def test_an_upgrade_its_way_back_and_its_end(enforced: Cluster, sh: Sh, before: Path, after: Path) -> None:
    del before
    assert images_of(enforced) == "slicewarden:before"
    known = bundles(enforced)
    (upgrade, *_) = commands()["Upgrade it, or change the policy"]
    # The first line judges the reader's own manifests, and a difference is what `kubectl diff` fails for.
    lines = [line for line in upgrade.splitlines() if not line.startswith(("slicewarden check", "kubectl diff"))]

    def put_in(image: str, commands: str) -> None:
        with stream(enforced):
            sh(commands, after)
            assert eventually(partial(all_ready, enforced), 120)
        assert images_of(enforced) == f"slicewarden:{image}"

    put_in("0.1.0", "\n".join(lines))
    assert bundles(enforced).keys() - known.keys()  # this release asks about more
    assert {*bundles(enforced).values()} == {*known.values()}
    put_in("before", f"kubectl rollout undo deployment/slicewarden {SYSTEM}\n{STATUS}")
    put_in("0.1.0", "\n".join(lines))
    policy = after / "policy.yaml"
    policy.write_text(policy.read_text("utf-8").removesuffix(LINE))
    put_in("0.1.0", "\n".join(lines))
