"""Starts common policy engines, and ours, next to an API server. Each is registered for one namespace."""

import base64
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import certs
from bench import apiserver, generator, https, rivals
from bench.generator import Wrong
from tests.e2e.control_plane import Cluster, eventually

Object = dict[str, Any]

HERE = Path(__file__).parent
OURS, GATEKEEPER, KYVERNO = "slicewarden", "Gatekeeper", "Kyverno"
NAMESPACES = {"none": "pods-none", OURS: "pods-slicewarden", GATEKEEPER: "pods-gatekeeper", KYVERNO: "pods-kyverno"}
"""The namespace of each engine. All engines run all the time, and the namespace decides which one is called."""
TRUST = {"slicewarden.dev/trust": "trusted"}
HOOKS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")


@dataclass(frozen=True, slots=True)
class Site:
    """The place where engines run: a folder with certificates for loopback, and an API server with the namespaces."""

    folder: Path
    cluster: Cluster
    facts: Path

    def client_config(self, url: str) -> Object:
        """Return the clientConfig of a webhook on loopback with the folder's certificate."""
        return {"url": url, "caBundle": certs.ca_bundle((self.folder / "ca.crt").read_bytes())}


@dataclass(frozen=True, slots=True)
class Engine:
    """A running and registered engine. `hooks` are its webhooks, the mutating ones first."""

    name: str
    version: str
    process: subprocess.Popen[bytes]
    hooks: Sequence[Object]

    @property
    def namespace(self) -> str:
        """The namespace whose pods the engine judges."""
        return NAMESPACES[self.name]


def find() -> dict[str, Path]:
    """Return the programs of Gatekeeper and Kyverno, and a line for each one that is not available."""
    asked = {
        GATEKEEPER: ("gatekeeper", "gatekeeper", _GATEKEEPER, "some minutes"),
        KYVERNO: ("kyverno", "kyverno-server", f"{_KYVERNO}/cmd/kyverno", "six to twenty minutes"),
    }
    found = {name: rivals.built(*each) for name, each in asked.items()}
    return {name: Path(program) for name, program in found.items() if program}


@contextmanager
def ours(site: Site) -> Iterator[Engine]:
    """Start `slicewarden serve` with all its rules, the sample policy and the facts of the site."""
    command = [*https.SERVE[: https.SERVE.index("--facts")], "--facts", str(site.facts)]
    with https.serving(OURS, command, site.folder, ()) as server:
        built = yaml.safe_load_all(site.cluster.do("kustomize", str(apiserver.OVERLAY)))
        found = [each for each in built if each["kind"].endswith("WebhookConfiguration")]
        for each in found:
            each["webhooks"] = [hook for hook in each["webhooks"] if hook["name"].split(".")[0] in ("mutate", "pods")]
        yield Engine(OURS, "", server.process, _register(site, OURS, found, server.port))


def gatekeeper(site: Site, program: Path) -> Engine:
    """Start Gatekeeper's two webhooks, without its audit, with the template and the mutators of gatekeeper.yaml."""
    file = "manifest_staging/deploy/gatekeeper.yaml"
    for each in _manifests("gatekeeper", _GATEKEEPER, file, ("CustomResourceDefinition",)):
        _apply(site.cluster, each)
    port, health, metrics = _ports(3)
    command = [
        *("POD_NAMESPACE=gatekeeper-system", "POD_NAME=no-pod", str(program)),
        *("--kubeconfig", str(site.cluster.kubeconfig()), "--debug-use-fake-pod"),
        *(f"--operation={each}" for each in ("webhook", "mutation-webhook", "generate")),
        *("--disable-cert-rotation", f"--cert-dir={site.folder}"),
        *(f"--port={port}", "--host=127.0.0.1", f"--health-addr=127.0.0.1:{health}", f"--prometheus-port={metrics}"),
        "--default-create-vap-for-templates=false",
    ]
    written = list(yaml.safe_load_all((HERE / "gatekeeper.yaml").read_text("utf-8")))
    site.cluster.do("create", "namespace", "gatekeeper-system")
    process = _started(site, GATEKEEPER, port, command)
    for each in written:
        if not each["kind"].endswith("WebhookConfiguration"):
            _apply(site.cluster, each, patient=True)
    configurations = [each for each in written if each["kind"].endswith("WebhookConfiguration")]
    hooks = _register(site, GATEKEEPER, configurations, port)
    return Engine(GATEKEEPER, rivals.pinned("gatekeeper", _GATEKEEPER), process, hooks)


def kyverno(site: Site, program: Path) -> Engine:
    """Start only Kyverno's admission controller, with the policies of kyverno.yaml.

    It registers its webhooks itself.
    """
    site.cluster.do("create", "namespace", "kyverno")
    installed = ("CustomResourceDefinition", "ConfigMap")
    for each in _manifests("kyverno", _KYVERNO, "config/install-latest-testing.yaml", installed):
        if each["kind"] == "ConfigMap" and each["metadata"]["name"] == "kyverno":
            each["data"]["webhooks"] = json.dumps({"namespaceSelector": _only(NAMESPACES[KYVERNO])})
        _apply(site.cluster, each)
    port, metrics, profile, other = _ports(4)
    command = [
        *("KYVERNO_NAMESPACE=kyverno", "KYVERNO_POD_NAME=no-pod", "KYVERNO_DEPLOYMENT=kyverno"),
        *("INIT_CONFIG=kyverno", "METRICS_CONFIG=kyverno-metrics", "KYVERNO_SVC=kyverno-svc"),
        *("KYVERNO_SERVICEACCOUNT_NAME=kyverno-admission-controller", str(program)),
        *(f"--kubeconfig={site.cluster.kubeconfig()}", f"--serverIP=127.0.0.1:{port}"),
        *(f"--webhookServerPort={port}", "--webhookServerHost=127.0.0.1", f"--metricsPort={metrics}"),
        *(f"--profilePort={profile}", f"--controllerRuntimeMetricsAddress=127.0.0.1:{other}"),
        *("--caSecretName=ca", "--tlsSecretName=tls", "--admissionReports=false"),
        "--backgroundServiceAccountName=system:serviceaccount:kyverno:kyverno-background-controller",
        "--reportsServiceAccountName=system:serviceaccount:kyverno:kyverno-reports-controller",
        "--omitEvents=PolicyApplied,PolicySkipped",
    ]
    process = _started(site, KYVERNO, port, command)
    policies = list(yaml.safe_load_all((HERE / "kyverno.yaml").read_text("utf-8")))
    for each in policies:
        _apply(site.cluster, each, patient=True)
    site.cluster.wait_until(
        "Kyverno has registered its policies", lambda: len(_registered(site.cluster)) == len(policies)
    )
    return Engine(KYVERNO, rivals.pinned("kyverno", _KYVERNO), process, _registered(site.cluster))


_GATEKEEPER, _KYVERNO = "github.com/open-policy-agent/gatekeeper/v3", "github.com/kyverno/kyverno"


def _registered(cluster: Cluster) -> list[Object]:
    """Return the webhooks that Kyverno has registered for users' policies."""
    lists = [cluster.get(kind)["items"] for kind in HOOKS]
    hooks = [hook for each in lists for item in each for hook in item["webhooks"]]
    return [hook for hook in hooks if hook["name"].startswith(("vpol.", "mpol."))]


def _register(site: Site, name: str, configurations: Sequence[Object], port: int) -> list[Object]:
    """Register a server on loopback for one namespace."""
    found = []
    for configuration in configurations:
        configuration["metadata"]["name"] = name.lower()
        for hook in configuration["webhooks"]:
            path = hook["clientConfig"]["service"]["path"]
            hook["clientConfig"] = site.client_config(f"https://127.0.0.1:{port}{path}")
            hook["namespaceSelector"] = _only(NAMESPACES[name])
            found.append(hook)
        _apply(site.cluster, configuration)
    return found


def _only(namespace: str) -> Object:
    return {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": [namespace]}]}


def _manifests(pins: str, module: str, file: str, kinds: Sequence[str]) -> list[Object]:
    """Read objects from a file of a pinned module."""
    command = ["go", "mod", "download", "-json", module]
    environment = {**os.environ, "GOWORK": "off", "GOFLAGS": "-mod=readonly"}
    done = subprocess.run(command, cwd=rivals.HERE / pins, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise generator.CannotRun(f"{module} cannot be had: {done.stderr.strip() or done.stdout.strip()}")
    text = (Path(json.loads(done.stdout)["Dir"]) / file).read_text("utf-8")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [each for each in yaml.load_all(text, loader) if each and each["kind"] in kinds]


def _apply(cluster: Cluster, each: Object, *, patient: bool = False) -> None:
    """Create an object. With `patient`, wait until its kind exists and the webhook that checks it answers."""
    text, what = json.dumps(each), f"{each['kind']} {each['metadata']['name']}"
    said = ""

    def taken() -> bool:
        nonlocal said
        done = cluster.kubectl("apply", "--server-side", "--filename=-", stdin=text)
        said = done.stderr.strip()
        return done.returncode == 0

    if not (eventually(taken) if patient else taken()):
        raise Wrong(f"{what}: {said}")


def _started(site: Site, name: str, port: int, command: Sequence[str | Path]) -> subprocess.Popen[bytes]:
    """Start a program that ends with the cluster, and wait until it listens."""
    env = shutil.which("env", path=os.defpath) or "/usr/bin/env"
    process = site.cluster.start(name.lower(), env, *command).process

    def listens() -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    site.cluster.wait_until(f"{name} listens", listens)
    return process


def _ports(number: int) -> list[int]:
    """Return free ports. No other process gets them for a while."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    try:
        return [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()


def authority(hook: Object) -> str:
    """Return the CA certificate of a webhook, in PEM."""
    return base64.b64decode(hook["clientConfig"]["caBundle"]).decode()
