"""Put what the image's build steps make to use as a container would: a user without rights, and only /tmp to write to.

No container engine is asked for. The Dockerfile's own lines are read, its build script is run.
"""

import base64
import hashlib
import http.client
import importlib.metadata
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from packaging.utils import canonicalize_name

from tests import ROOT
from tests.image.conftest import build
from tests.support.dockerfile import DOCKERFILE
from webhook.cli import main as cli
from webhook.proving.sighting import sighting

(DEPLOYMENT,) = (
    each
    for each in yaml.safe_load_all((ROOT / "manifests/base/deployment.yaml").read_text("utf-8"))
    if each["kind"] == "Deployment"
)
POD = DEPLOYMENT["spec"]["template"]["spec"]
assert "runAsUser" not in POD["securityContext"]
(USER,) = re.findall(r"^USER (\d+):\1$", DOCKERFILE, re.MULTILINE)
(TMP,) = (each["emptyDir"]["sizeLimit"] for each in POD["volumes"] if each["name"] == "tmp")

USERS = ((USER, USER), ("1000620000", "0"))
"""The image's own user and group, and those of OpenShift's restricted-v2: a user of the namespace, in the root group.

(docs.redhat.com, OpenShift Container Platform, Creating images, Support arbitrary user ids)
"""

# A file system that nobody can write to, but for a /tmp of its own of the Deployment's size, as a user without rights.
CONFINED = (
    "mount --make-rprivate / && mount -o remount,ro,bind / && "
    f"mount -t tmpfs -o size={TMP.removesuffix('Mi')}m none /tmp && "
    'user=$1 group=$2 && shift 2 && exec unshare --user --map-user="$user" --map-group="$group" "$@"'
)


def confined(*command: str | Path, user: tuple[str, str] = USERS[0]) -> list[str | Path]:
    """Have a command run so, by a user and its group."""
    return ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", CONFINED, "sh", *user, *command]


@dataclass
class Running:
    process: subprocess.Popen[str]
    folder: Path
    port: int
    health: int
    user: tuple[str, str]

    def probe(self, path: str) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health}{path}", timeout=5) as answer:
                return int(answer.status)
        except OSError:
            return 0


@pytest.fixture(scope="module", params=USERS, ids=["own-user", "any-user"])
def running(prefix: Path, folder: Path, request: pytest.FixtureRequest) -> Iterator[Running]:
    """The command of the image with the arguments of the Deployment, but for a cluster to watch."""
    folder /= request.param[0]
    if subprocess.run(confined("true", user=request.param), capture_output=True, check=False).returncode:
        pytest.skip("needs user namespaces, which are switched off here")
    mounted = folder / "etc"
    mounted.mkdir(parents=True)
    assert cli.main(["certs", "issue", "--dns", "localhost", "--out", str(mounted)]) == 0
    shutil.copy(ROOT / "policies/sample.yaml", mounted / "policy.yaml")
    shutil.copy(ROOT / "webhook/sample/facts.yaml", mounted / "facts.yaml")
    ports = []
    for _ in range(2):
        with socket.create_server(("127.0.0.1", 0)) as free:
            ports.append(free.getsockname()[1])
    arguments = ["--listen", f"127.0.0.1:{ports[0]}", "--health-listen", f"127.0.0.1:{ports[1]}"]
    arguments += ["--tls-cert", str(mounted / "tls.crt"), "--tls-key", str(mounted / "tls.key")]
    arguments += ["--policy", str(mounted / "policy.yaml"), "--facts", str(mounted / "facts.yaml")]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            confined(prefix / "bin" / "slicewarden", "serve", *arguments, user=request.param),
            cwd="/", env=environment, stdout=log, stderr=log, text=True,
        )  # fmt: skip
    started = Running(process, folder, ports[0], ports[1], request.param)
    try:
        deadline = time.monotonic() + 60
        while started.probe("/readyz") != 200:
            assert process.poll() is None, (folder / "log").read_text("utf-8")
            assert time.monotonic() < deadline, (folder / "log").read_text("utf-8")
            time.sleep(0.1)
        yield started
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def test_it_is_alive_and_ready(running: Running) -> None:
    assert [running.probe(path) for path in ("/healthz", "/readyz", "/metrics")] == [200, 200, 200]


def test_it_is_nobody(running: Running) -> None:
    status = Path(f"/proc/{running.process.pid}/status").read_text("utf-8")
    assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE)
    for kind, own in zip(("uid", "gid"), running.user, strict=True):
        (mapped,) = Path(f"/proc/{running.process.pid}/{kind}_map").read_text("utf-8").splitlines()
        assert mapped.split()[0] == own


def test_it_judges(running: Running) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train", "namespace": "vision"},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}}}]},
    }
    request = {
        "uid": "1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "vision",
        "operation": "CREATE",
        "userInfo": {"username": "mia"},
        "object": pod,
    }
    asked = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
    context = ssl.create_default_context(cafile=running.folder / "etc" / "ca.crt")
    connection = http.client.HTTPSConnection("localhost", running.port, context=context, timeout=10)
    connection.request("POST", "/mutate", asked, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    response = json.loads(answer.read())["response"]
    connection.close()
    assert (answer.status, response["uid"], response["allowed"]) == (200, "1", True)
    changes = json.loads(base64.b64decode(response["patch"]))
    assert "/spec/affinity" in {each["path"] for each in changes}  # an untrusted pod is kept off shared GPUs


def test_it_goes_when_it_is_told_to(running: Running) -> None:
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(timeout=40) == 0


def test_nothing_can_be_written_but_in_tmp(prefix: Path, running: Running) -> None:
    tries = f"touch {prefix}/x; touch /etc/x; touch /x; touch /tmp/x && echo written"
    made = subprocess.run(confined("sh", "-c", tries, user=running.user), capture_output=True, text=True, check=False)
    assert made.stdout == "written\n"
    assert made.stderr.count("Read-only file system") == 3


# What is in it


def test_it_runs_the_probe_as_nobody(prefix: Path, running: Running) -> None:
    command = confined(prefix / "bin" / "python3", "-I", "-m", "webhook.proving.probe", user=running.user)
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    assert sighting(ran.stdout) is not None


def test_it_has_all_that_a_cluster_needs(prefix: Path) -> None:
    modules = "webhook.cluster.watch, webhook.cli.commands.serve, webhook.cli.commands.certs"
    subprocess.run([prefix / "bin" / "python", "-I", "-c", f"import {modules}"], check=True)
    version = subprocess.run([prefix / "bin" / "slicewarden", "--version"], capture_output=True, text=True, check=True)
    label = re.search(r"^ARG VERSION=(.*)$", DOCKERFILE, re.MULTILINE)
    assert label is not None
    assert version.stdout == f"slicewarden {label[1]}\n"


def test_it_has_nothing_to_install_or_build_with(prefix: Path) -> None:
    names = {each.name for each in (prefix / "bin").iterdir()}
    assert "slicewarden" in names
    assert not {each for each in names if re.match(r"pip|hatch|gcc|cc|uv", each)}
    packages = {each.name.partition("-")[0] for each in prefix.glob("lib/python3*/site-packages/*.dist-info")}
    pinned = re.findall(r"^([\w.-]+)==", (ROOT / "manifests/image/runtime.txt").read_text("utf-8"), re.MULTILINE)
    assert {name.replace("-", "_") for name in pinned} >= packages - {"slicewarden"}
    assert packages.isdisjoint({"pip", "setuptools", "wheel", "hatchling", "pytest"})


WITHOUT_TEXT = {"nvidia-ml-py": "its wheel says BSD License, and has no text"}
"""The packages whose licence is named and not quoted, with the reason."""


def licences(package: importlib.metadata.Distribution) -> list[str]:
    """What the metadata of a package says of its licence."""
    known = {key: package.metadata.get_all(key) or [] for key in ("License-Expression", "License", "Classifier")}
    known["Classifier"] = [each for each in known["Classifier"] if each.startswith("License :: ")]
    return [words for each in known.values() for words in each if words]


def test_it_has_the_licence_of_each_package_and_none_binds_what_uses_it(prefix: Path) -> None:
    (packages,) = prefix.glob("lib/python3*/site-packages")
    found = {
        canonicalize_name(each.metadata["Name"]): each
        for each in importlib.metadata.distributions(path=[str(packages)])
    }
    assert found.keys() >= {"slicewarden", *WITHOUT_TEXT}
    assert [name for name, each in found.items() if not licences(each)] == []
    binding = re.compile(r"\b[AL]?GPL|\bSSPL|\bBUSL|Proprietary")
    assert {name: words for name, each in found.items() for words in licences(each) if binding.search(words)} == {}
    text = re.compile(r"\.dist-info/.*(?:LICEN[CS]E|COPYING)", re.IGNORECASE)
    without = {name for name, each in found.items() if not any(text.search(str(file)) for file in each.files or ())}
    assert without == WITHOUT_TEXT.keys()


def test_the_tree_is_everybodys_to_read_and_nobodys_to_write(prefix: Path) -> None:
    for each in (prefix, *prefix.rglob("*")):
        if not each.is_symlink():
            mode = each.stat().st_mode
            assert mode & 0o222 == 0, each
            assert mode & (0o555 if each.is_dir() else 0o444) == (0o555 if each.is_dir() else 0o444), each


def digest(folder: Path) -> str:
    """A hash of every file's name, mode and contents."""
    hashed = hashlib.sha256()
    for each in sorted(folder.rglob("*")):
        content = str(each.readlink()).encode() if each.is_symlink() else each.read_bytes() if each.is_file() else b""
        hashed.update(f"{each.relative_to(folder)} {each.lstat().st_mode} {len(content)}\n".encode() + content)
    return hashed.hexdigest()


def test_the_same_sources_make_the_same_bytes(source: Path, prefix: Path) -> None:
    """A second time at the same place; the first one steps aside meanwhile."""
    first = digest(prefix)
    aside = prefix.with_name("first")
    prefix.rename(aside)
    try:
        build(source, prefix)
        assert digest(prefix) == first
    finally:
        subprocess.run(["chmod", "-R", "u+w", aside], check=True)
        shutil.rmtree(aside)


def test_the_action_installs_what_is_pinned_and_the_plugin_of_kubectl(folder: Path) -> None:
    text = (ROOT / "action.yml").read_text("utf-8")
    step = text.partition("- id: install\n")[2].partition("run: |\n")[2].partition("\n\n")[0]
    environment = {
        **os.environ,
        "PYTHON": sys.executable,
        "RUNNER_TEMP": str(folder / "runner"),
        "GITHUB_ACTION_PATH": str(ROOT),
    }
    (folder / "runner").mkdir()
    subprocess.run(["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step], env=environment, check=True)
    for name in ("slicewarden", "kubectl-slicewarden"):
        done = subprocess.run(
            [folder / "runner/slicewarden/bin" / name, "--version"], capture_output=True, text=True, check=True
        )
        assert done.stdout.startswith("slicewarden ")
