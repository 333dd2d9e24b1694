"""Flux beside the cluster: its controllers of sources and of kustomizations, built from their modules."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from tests.e2e.access import served
from tests.e2e.control_plane import Cluster, eventually
from tests.e2e.release import free_port
from tests.support.go_programs import Missing, built

HERE = Path(__file__).resolve().parent
MODULE, NAMESPACE = "github.com/fluxcd", "flux-system"
CONTROLLERS = ("source-controller", "kustomize-controller")
SOURCE, KUSTOMIZATION = "gitrepositories.source.toolkit.fluxcd.io", "kustomizations.kustomize.toolkit.fluxcd.io"
WITHOUT_GO = "the tests of GitOps need Go 1.26 (https://go.dev/dl)"
Object = dict[str, Any]


def programs() -> Path:
    """The folder of Flux's programs, from the cache or built; raise Missing, in one line, where they cannot be had."""
    return built(
        HERE,
        {name: f"{MODULE}/{name}" for name in CONTROLLERS},
        without_go=WITHOUT_GO,
        patience="; seven minutes of one core the first time",
    )


def definitions() -> Iterator[Path]:
    """The definitions of Flux's kinds, in its modules; raise Missing where they cannot be had."""
    if shutil.which("go") is None:
        raise Missing(WITHOUT_GO)
    for name in CONTROLLERS:
        command = ["go", "mod", "download", "-json", f"{MODULE}/{name}"]
        found = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
        if found.returncode:
            raise Missing(f"Flux's modules cannot be had: {found.stdout} {found.stderr}")
        yield from sorted(Path(json.loads(found.stdout)["Dir"]).glob("config/crd/bases/*.yaml"))


class Flux:
    """Flux in a cluster: its kinds, its accounts, and its processes, which keep the cluster by a repository."""

    def __init__(self, cluster: Cluster) -> None:
        """Install its kinds, and start it."""
        self.cluster, self._tokens = cluster, count(1)
        cluster.do("create", "namespace", NAMESPACE)
        cluster.do("apply", "--server-side", *(f"--filename={file}" for file in definitions()))
        served(cluster, SOURCE, KUSTOMIZATION)
        store = free_port()
        own = {
            "source-controller": (
                f"--storage-path={cluster.folder}/flux",
                f"--storage-addr=127.0.0.1:{store}",
                f"--storage-adv-addr=127.0.0.1:{store}",
            ),
            "kustomize-controller": (
                "--requeue-dependency=1s",
                "--feature-gates=CancelHealthCheckOnNewRevision=true",
            ),
        }
        (cluster.folder / "flux").mkdir()
        for name, flags in own.items():
            cluster.do("create", "serviceaccount", name, f"--namespace={NAMESPACE}")
            # It installs what needs all rights, and Flux's own installation gives it them.
            account = f"--serviceaccount={NAMESPACE}:{name}"
            cluster.do("create", "clusterrolebinding", f"flux-{name}", "--clusterrole=cluster-admin", account)
            cluster.start(
                name,
                "/usr/bin/env",
                f"KUBECONFIG={cluster.kubeconfig_of_account(name, NAMESPACE)}",
                f"RUNTIME_NAMESPACE={NAMESPACE}",
                programs() / name,
                "--metrics-addr=0",
                f"--health-addr=127.0.0.1:{free_port()}",
                *flags,
            )

    def kustomization(self, name: str) -> Object:
        """A Kustomization, as it is."""
        return dict(self.cluster.get(KUSTOMIZATION, name, f"--namespace={NAMESPACE}"))

    def result(self, name: str, revision: str = "") -> tuple[str, str]:
        """The status and the message of a Kustomization's condition `Ready`; Unknown before it has tried a revision."""
        status = self.kustomization(name).get("status", {})
        ready = next((each for each in status.get("conditions", ()) if each["type"] == "Ready"), None)
        tried = status.get("lastAttemptedRevision", "").endswith(revision)
        if ready is None or ready["reason"] == "DependencyNotReady" or not tried:
            return "Unknown", ""
        return ready["status"], ready["message"]

    def read(self, revision: str, source: str) -> None:
        """Have a source read its repository, and wait until it has this commit."""
        self._request(SOURCE, source)

        def has_it() -> bool:
            found = self.cluster.get(SOURCE, source, f"--namespace={NAMESPACE}")
            return bool(found.get("status", {}).get("artifact", {}).get("revision", "").endswith(revision))

        assert eventually(has_it), (self.cluster.folder / "source-controller.log").read_text("utf-8")[-4000:]

    def tried(self, name: str, revision: str) -> tuple[str, str]:
        """Wait until a Kustomization has tried a commit; return the status and the message of `Ready`."""
        assert eventually(lambda: self.result(name, revision)[0] != "Unknown"), self.kustomization(name)["status"]
        return self.result(name, revision)

    def reconcile(self, *names: str) -> None:
        """Have Kustomizations compare the cluster with their commit, one after the other, and wait until they did."""
        for name in names:
            token = self._request(KUSTOMIZATION, name)
            assert eventually(partial(self._handled, name, token)), self.kustomization(name)["status"]

    def _handled(self, name: str, token: str) -> bool:
        status = self.kustomization(name)["status"]
        return status.get("lastHandledReconcileAt") == token and self.result(name)[0] != "Unknown"

    def _request(self, kind: str, name: str) -> str:
        """Do what `flux reconcile` does."""
        token = f"request-{next(self._tokens)}"
        note = f"reconcile.fluxcd.io/requestedAt={token}"
        self.cluster.do("annotate", "--overwrite", kind, name, note, f"--namespace={NAMESPACE}")
        return token

    def changed(self) -> list[str]:
        """What it has written into the cluster so far: each object, and how."""
        text = (self.cluster.folder / "kustomize-controller.log").read_text("utf-8")
        found = [json.loads(line)["output"] for line in text.splitlines() if '"server-side apply' in line]
        return [f"{name} {how}" for output in found for name, how in output.items() if how != "unchanged"]
