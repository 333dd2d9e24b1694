"""Kueue beside the cluster: built from its module, installed by its own manifests, run as it runs in a pod."""

import json
import shutil
import socket
import subprocess
from base64 import b64encode
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

import certs
from tests.e2e import pki
from tests.e2e.access import established
from tests.e2e.control_plane import Cluster
from tests.support.go_programs import Missing, built

HERE = Path(__file__).resolve().parent
MODULE, NAMESPACE = "sigs.k8s.io/kueue", "kueue-system"
SERVICE = f"kueue-webhook-service.{NAMESPACE}.svc"
LEFT_OUT = frozenset(("APIService", "ConfigMap", "Deployment", "Service"))
"""The kinds of its installation that run it in a pod, or lead to that pod."""

Object = dict[str, Any]


def program() -> Path:
    """Kueue's program, from the cache or built; raise Missing, in one line, where it cannot be had."""
    folder = built(
        HERE,
        {"kueue": f"{MODULE}/cmd/kueue"},
        without_go="the tests of queues need Go 1.26 (https://go.dev/dl)",
        patience="; five minutes of one core the first time",
    )
    return folder / "kueue"


def manifests(cluster: Cluster) -> list[Object]:
    """The objects of Kueue's own installation, from its module."""
    if shutil.which("go") is None:
        raise Missing("the tests of queues need Go 1.26, to find Kueue's manifests in its module")
    command = ["go", "mod", "download", "-json", MODULE]
    found = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    if found.returncode:
        raise Missing(f"Kueue's module cannot be had: {found.stdout} {found.stderr}")
    folder = json.loads(found.stdout)["Dir"]
    return list(yaml.safe_load_all(cluster.do("kustomize", f"{folder}/config/default")))


class Kueue:
    """Kueue in a cluster: its objects, and its process."""

    def __init__(self, cluster: Cluster) -> None:
        """Install it, start it, and wait until its webhooks answer."""
        self.cluster = cluster
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self._files = cluster.folder / "kueue"
        self._files.mkdir(exist_ok=True)
        authority = pki.named_authority("kueue-ca")
        pair = certs.issue_serving(authority, [SERVICE, "localhost"], ["127.0.0.1"], datetime.now(UTC), days=300)
        secret = {"ca.crt": authority.certificate_pem, "ca.key": authority.key_pem}
        secret |= {"tls.crt": pair.certificate_pem, "tls.key": pair.key_pem}
        for name, data in secret.items():
            (self._files / name).write_bytes(data)
        encoded = {name: b64encode(data).decode("ascii") for name, data in secret.items()}
        self._objects = [self._here(each, encoded) for each in manifests(cluster) if each["kind"] not in LEFT_OUT]
        hooks = [each for each in self._objects if each["kind"].endswith("WebhookConfiguration")]
        rest = [each for each in self._objects if each not in hooks]
        self._apply([each for each in rest if each["kind"] == "Namespace"])
        self._apply([each for each in rest if each["kind"] != "Namespace"])
        established(cluster, *(each["metadata"]["name"] for each in rest if each["kind"] == "CustomResourceDefinition"))
        self._apply(hooks)
        account = cluster.kubeconfig_of_account("kueue-controller-manager", NAMESPACE)
        config = self._files / "config.yaml"
        config.write_text(json.dumps(self._config()), "utf-8")
        cluster.start("kueue", program(), f"--config={config}", f"--kubeconfig={account}")
        cluster.wait_until("Kueue's webhooks answer", self._answers)

    def _here(self, item: Object, secret: dict[str, str]) -> Object:
        """Return an object of its installation, for a process beside the cluster instead of a pod."""
        if item["kind"] == "Secret":
            return {**item, "data": secret}
        clients = [hook["clientConfig"] for hook in item.get("webhooks", ())]
        if conversion := item.get("spec", {}).get("conversion", {}).get("webhook"):
            clients.append(conversion["clientConfig"])
        for client in clients:
            path = client.pop("service")["path"]
            client |= {"url": f"https://localhost:{self._port}{path}", "caBundle": secret["ca.crt"]}
        return item

    def _config(self) -> Object:
        return {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "namespace": NAMESPACE,
            "health": {"healthProbeBindAddress": "0"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": "127.0.0.1", "port": self._port, "certDir": str(self._files)},
            "leaderElection": {"leaderElect": False},
            "featureGates": {"VisibilityOnDemand": False},
            "integrations": {"frameworks": ["batch/job", "pod"]},
        }

    def _apply(self, objects: list[Object]) -> None:
        listed = {"apiVersion": "v1", "kind": "List", "items": objects}
        self.cluster.do("apply", "--server-side", "--force-conflicts", "--filename=-", stdin=json.dumps(listed))

    def _answers(self) -> bool:
        spec: Object = {}
        probe = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ResourceFlavor",
            "metadata": {"name": "probe"},
            "spec": spec,
        }
        return not self.cluster.kubectl(
            "create", "--dry-run=server", "--filename=-", stdin=json.dumps(probe)
        ).returncode

    def leave(self) -> None:
        """End it, and take its objects away."""
        self.cluster.stop("kueue")
        for kind in ("mutatingwebhookconfiguration", "validatingwebhookconfiguration"):
            self.cluster.do("delete", kind, f"kueue-{kind.removesuffix('webhookconfiguration')}-webhook-configuration")
        listed = {"apiVersion": "v1", "kind": "List", "items": self._objects}
        flags = ("--wait=false", "--ignore-not-found", "--filename=-")
        self.cluster.do("delete", *flags, stdin=json.dumps(listed))
