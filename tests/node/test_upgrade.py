"""From the release before to this one and back by plain manifests, with one policy, under a stream of pods.

test_chart.py does the same with Helm.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests import ROOT
from tests.e2e.control_plane import Cluster, eventually
from tests.node.conftest import Sh
from tests.node.replicas import all_ready, change
from tests.support.manifests import NAMED, commands

INSTALL, POLICY = commands()["Two commands"]
READY = POLICY.splitlines()[-1]


@pytest.fixture
def before(enforced: Cluster, sh: Sh, older: Path) -> Iterator[Path]:
    """The folder of the release before, whose page names its image; afterwards this release is installed again."""
    *_, name_image = commands(str(older / "manifests/README.md"))["# Install it"]
    sh(name_image.replace(NAMED, "slicewarden:before"), older)
    yield older
    sh(INSTALL)
    assert eventually(partial(all_ready, enforced), 120)
    sh(READY)


def test_a_rollback_an_upgrade_and_a_rollback_judge_no_pod_wrongly(enforced: Cluster, sh: Sh, before: Path) -> None:
    for folder, image in ((before, "slicewarden:before"), (ROOT, "slicewarden:0.1.0"), (before, "slicewarden:before")):
        change(enforced, partial(sh, INSTALL, folder), partial(sh, READY), image, folder)
