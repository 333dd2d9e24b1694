"""The pages' copies of kubectl's output are compared with what kubectl prints."""

import re
from pathlib import Path

from tests import ROOT
from tests.e2e.control_plane import Cluster, User, eventually

KUBECTLS = re.compile(
    r"Error from server|^Warning: |^NAME +\S|^Events:$|^\S+/\S+ (created|configured|labeled)$", re.MULTILINE
)
"""By which lines its output is known."""
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


def shown() -> dict[str, list[str]]:
    """The blocks of the pages that show what kubectl printed, by page."""
    found: dict[str, list[str]] = {}
    for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("manifests/**/*.md")]:
        blocks = re.findall(r"^```(?:console|text)?\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
        if outputs := [block for block in blocks if KUBECTLS.search(block)]:
            found[str(page.relative_to(ROOT))] = outputs
    return found


def test_kubectl_prints_the_denial_that_the_page_shows(enforced: Cluster, tmp_path: Path) -> None:
    """But for the line that a policy with `support` adds. A new page with its output needs a test here."""
    ((page, (block,)),) = shown().items()
    assert page == "docs/denied.md"
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
