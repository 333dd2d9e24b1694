"""The start of a command imports only what the command needs. Most of its time is imports."""

import subprocess
import sys
from pathlib import Path

import pytest

MODULES = """
import sys
from webhook.cli.main import main
status = main(sys.argv[1:])
print(*{name.partition(".")[0] for name in sys.modules}, *sys.modules, file=sys.stderr)
sys.exit(status)
"""

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: i}]}\n"

SERVING = {"aiohttp", "asyncio", "flask", "jinja2", "werkzeug", "prometheus_client", "ssl", "webhook.serving"}
CLUSTER = {"kubernetes", "urllib3", "webhook.cluster"}
PROGRAMS = {"multiprocessing", "subprocess", "tempfile", "importlib.resources"}
"""Modules that run other programs or unpack files; each takes milliseconds to import."""
OTHERS = {"cryptography", "hypothesis", "jsonschema", "webhook.agent", "webhook.fallback", "webhook.placing"}
UNSHOWN = {"webhook.scan.sharing", "webhook.cli.patched"}
"""Modules that `check` needs for HTML and for --patched alone."""
FAMILIES = ("webhook.rules.", "webhook.memory.driver.", "webhook.memory.frameworks.", "webhook.facts.kinds.")
"""Files that every judgement needs. They are not counted, so that a new one needs no larger number here."""
JUDGING = {"yaml", "webhook.rules", "webhook.engine", "webhook.documents"}


@pytest.mark.parametrize(
    ("command", "forbidden", "most"),
    [
        (
            ["check", "pod.yaml"],
            SERVING | CLUSTER | PROGRAMS | OTHERS | UNSHOWN,
            150,
        ),
        (["--help"], SERVING | CLUSTER | PROGRAMS | OTHERS | JUDGING, 20),
        (["version"], SERVING | CLUSTER | OTHERS | JUDGING, 20),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_command_imports_nothing_that_it_does_not_need(
    command: list[str], forbidden: set[str], most: int, tmp_path: Path
) -> None:
    (tmp_path / "pod.yaml").write_text(POD, "utf-8")
    run = subprocess.run([sys.executable, "-c", MODULES, *command], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    imported = {*run.stderr.splitlines()[-1].split()}
    assert "click" in imported
    assert not imported & forbidden
    assert len([name for name in imported if name.startswith("webhook") and not name.startswith(FAMILIES)]) <= most


def test_the_controller_does_not_import_the_agent_of_a_node(tmp_path: Path) -> None:
    """The binding of NVML takes 12 MiB, and nothing of the controller uses it."""
    command = ["controller", "--kubeconfig", "missing"]
    run = subprocess.run([sys.executable, "-c", MODULES, *command], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 2, run.stderr
    imported = {*run.stderr.splitlines()[-1].split()}
    assert "webhook.controller.controller" in imported
    assert {name for name in imported if name.startswith("webhook.agent")} == set()
    assert "pynvml" not in imported
