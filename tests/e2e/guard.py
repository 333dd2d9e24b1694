"""The webhook beside a cluster: run with the powers that the manifests give it, and registered by them."""

import json
import re
import shlex
import signal
import socket
import ssl
import sys
from base64 import b64decode
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from tests import ROOT
from tests.e2e.control_plane import Cluster, eventually
from tests.e2e.neighbour import identity, listening_address
from tests.e2e.objects import Object, config_map, pod, template, workload
from tests.support.waiting import reached

MANIFESTS = ROOT / "manifests"
COMMANDS = re.findall(r"^kubectl .*", (MANIFESTS / "README.md").read_text("utf-8"), re.MULTILINE)
IDENTITY = ("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
OPERATORS = "gpu-operator"
"""The namespace of which the policy has the ConfigMaps read."""
MUTATE, VALIDATE = "/mutate", "/validate"


def commands(*words: str) -> list[list[str]]:
    """The commands of the manifests' README that begin so, without `kubectl`."""
    return [shlex.split(line)[1:] for line in COMMANDS if line.split()[1 : 1 + len(words)] == [*words]]


def rendered(cluster: Cluster, folder: str = "overlays/file") -> list[Object]:
    """The objects of an overlay."""
    return list(yaml.safe_load_all(cluster.do("kustomize", str(MANIFESTS / folder))))


def policy_of(cluster: Cluster, folder: str = "overlays/file") -> str:
    """The policy that an overlay installs."""
    (found,) = [each for each in rendered(cluster, folder) if each["kind"] == "ConfigMap"]
    return str(found["data"]["policy.yaml"])


def logged(cluster: Cluster) -> list[Object]:
    """Every line that a cluster's webhook has logged so far; one that it is writing is left for the next time."""
    whole, _, _ = (cluster.folder / "webhook.log").read_text("utf-8", "replace").rpartition("\n")
    return [json.loads(line) for line in whole.splitlines() if line.startswith("{")]


class Guard:
    """The webhook of a cluster: its process, what it was asked, and its registration."""

    def __init__(self, cluster: Cluster, host: str = "localhost") -> None:
        """Give the webhook its identity; `host` is where the API server reaches what runs here."""
        self.cluster = cluster
        self._certificate, self._key, self._bundle = identity(cluster.folder, "webhook", host)
        with socket.create_server(listening_address(host)) as free:
            self._listen = "{}:{}".format(*free.getsockname())
        self.url = f"https://{host}:{self._listen.rpartition(':')[2]}"
        self._identity = [each for each in rendered(cluster) if each["kind"] in IDENTITY]
        if cluster.kubectl("get", "namespace", OPERATORS).returncode:
            operators: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OPERATORS}}
            self._identity.insert(0, operators)
        self.install(*self._identity)
        self._account = cluster.kubeconfig_of_account("slicewarden", "slicewarden-system")
        self._policy = cluster.folder / "policy.yaml"
        self.registered_for: list[Object] = []
        """The configurations of a policy that is not the overlay's."""

    def start(self, policy: str | None = None, *options: str | Path) -> None:
        """Start the webhook, by default with the policy of the overlay, and wait until it is ready."""
        self._policy.write_text(policy or policy_of(self.cluster), "utf-8")
        command: list[str | Path] = [sys.executable, "-m", "webhook", "serve", "--policy", self._policy, "--live"]
        command += ["--kubeconfig", self._account, "--listen", self._listen]
        command += ["--tls-cert", self._certificate, "--tls-key", self._key]
        # One worker: what it has seen is then known to whoever asks next.
        self.cluster.start("webhook", *command, "--workers", "1", *options, orphaned=signal.SIGTERM)
        self.cluster.wait_until("the webhook is ready", self._ready)

    @property
    def alive(self) -> bool:
        """Whether it was started, and not stopped since."""
        return any(each.name == "webhook" for each in self.cluster.components)

    def stop(self) -> None:
        """Kill the webhook."""
        self.cluster.stop("webhook")

    def judge_by(self, policy: str | None = None, *options: str) -> None:
        """Start it again with another policy, or with other options."""
        self.stop()
        self.start(policy, *options)

    def leave(self) -> None:
        """Take the identity away again."""
        identity = {"apiVersion": "v1", "kind": "List", "items": self._identity}
        self.cluster.do("delete", "--wait=false", "--ignore-not-found", "--filename=-", stdin=json.dumps(identity))

    def _ready(self) -> bool:
        context = ssl.create_default_context(cadata=b64decode(self._bundle).decode("ascii"))
        return reached(f"{self.url}/readyz", context)

    def logged(self) -> list[Object]:
        """Every line of its log so far."""
        return logged(self.cluster)

    def reviews(self, namespace: str | None) -> list[Object]:
        """The questions that it was asked about a namespace so far; each is logged before it is answered."""
        entries = (entry for entry in self.logged() if "endpoint" in entry)
        return [entry for entry in entries if (entry.get("namespace") or None) == namespace]

    def asked(self, namespace: str | None) -> list[str]:
        """The path of each of those."""
        return [entry["endpoint"] for entry in self.reviews(namespace)]

    def reached_by(self, item: Object, *, refused: bool | None = None) -> list[str]:
        """The questions that it is asked while an object is created for show; `refused` says how that has to end."""
        namespace = item["metadata"].get("namespace")  # none for a cluster-scoped object
        before = len(self.asked(namespace))
        made = self.cluster.kubectl("create", "--dry-run=server", "--filename=-", stdin=json.dumps(item))
        if refused is not None:
            assert bool(made.returncode) == refused, made.stderr
        return self.asked(namespace)[before:]

    def registration(self, url: str | None = None, bundle: str | None = None) -> list[Object]:
        """The webhook configurations of the overlay, or of another policy, but for where the webhook is."""
        configurations = deepcopy(self.registered_for) or [
            each for each in rendered(self.cluster) if each["kind"].endswith("WebhookConfiguration")
        ]
        for hook in (hook for each in configurations for hook in each["webhooks"]):
            path = hook["clientConfig"]["service"]["path"]
            hook["clientConfig"] = {"url": f"{url or self.url}{path}", "caBundle": bundle or self._bundle}
        return configurations

    def register(self) -> None:
        """Register the webhook, and wait until the API server calls it."""
        self.install(*self.registration())
        self.cluster.wait_until("the API server calls the webhook", self.in_force)

    def without(self, hook: str, gone: Callable[[], bool]) -> None:
        """Register all but one webhook, and wait until the API server has heard of it: `gone` tells."""
        for each in (found := self.registration()):
            each["webhooks"] = [one for one in each["webhooks"] if one["name"] != hook]
        self.install(*found)
        self.cluster.wait_until(f"{hook} is asked no more", gone)

    def install(self, *objects: Object) -> None:
        """Store objects of an administrator's."""
        applied = self.cluster.apply(*objects)
        assert applied.returncode == 0, applied.stderr

    def unregister(self) -> None:
        """Run the command for emergencies, and wait until the API server calls it no more."""
        remove, *_ = commands("delete")
        self.cluster.do(*remove)
        assert eventually(lambda: all(map(self._passed_by, _probes())))

    def _passed_by(self, item: Object) -> bool:
        """Tell whether an object is let in unseen; while the webhook is dead, not being asked says nothing."""
        namespace = item["metadata"].get("namespace")  # none for a cluster-scoped object
        before = len(self.asked(namespace))
        made = self.cluster.kubectl("create", "--dry-run=server", "--filename=-", stdin=json.dumps(item))
        return made.returncode == 0 and self.asked(namespace)[before:] == []

    def in_force(self) -> bool:
        """Tell whether the API server calls every one of the four hooks; it learns of them after a moment."""
        return [self.reached_by(each) for each in _probes()] == [[MUTATE, VALIDATE], [VALIDATE], [VALIDATE]]


def _probes() -> list[Any]:
    """An object for each hook, in a namespace where nobody else makes any."""
    return [
        pod("probe", "default"),
        workload("Deployment", "probe", "default", template({"nvidia.com/gpu": 1})),
        config_map("probe", "default", {"a": "timeSlicing"}),
    ]
