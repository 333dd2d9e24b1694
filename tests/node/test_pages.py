"""The pages' copies of kubectl's output are compared with what kubectl prints."""

import re
from pathlib import Path

from tests import ROOT
from tests.e2e.control_plane import Cluster, User, eventually
from tests.support.kubectl_outputs import shown

POD = """
apiVersion: v1
kind: Pod
metadata: {name: server, namespace: readers, annotations: {slicewarden.dev/trust: trusted}}
spec:
  containers:
    - name: server
      image: registry.example.com/inference:1.4
      resources: {limits: {nvidia.com/gpu.shared: 2}}
"""


def test_kubectl_prints_the_denial_that_the_page_shows(enforced: Cluster, tmp_path: Path) -> None:
    """But for the line that a policy with `support` adds. A test of the docs sees that no other page shows any."""
    (block,) = shown(ROOT / "docs" / "denied.md")
    *lines, help_line = block.splitlines()
    assert help_line.startswith("For help: ")
    pattern = r"\n".join(re.escape(line).replace("…", ".*") for line in lines)

    enforced.add_namespace("readers", {"slicewarden.dev/trust": "trusted"})
    enforced.do("create", "rolebinding", "tenant", "--clusterrole=edit", "--user=tenant", "--namespace=readers")
    file = tmp_path / "pod.yaml"
    file.write_text(POD, "utf-8")
    printed: list[str] = []

    def denied() -> bool:
        done = enforced.kubectl("create", "--filename", file, user=User("tenant", ("system:authenticated",)))
        lines = done.stderr.replace(str(file), file.name).splitlines()
        printed[:] = ["\n".join(line for line in lines if not line.startswith("Warning: "))]
        return re.fullmatch(pattern, printed[0]) is not None

    assert eventually(denied), f"{printed[0]}\n\n{pattern}"  # once it has heard of the namespace's label
