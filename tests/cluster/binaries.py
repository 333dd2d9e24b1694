"""Find the programs of a cluster; build them from the pins in go.mod where that was not done before."""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGES = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kwok": "sigs.k8s.io/kwok/cmd/kwok",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
}
VERSION_PACKAGES = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


class Missing(Exception):
    """What has to be installed, in one line."""


def find(names: Collection[str] = tuple(PACKAGES)) -> Path:
    """Return the folder with these programs: $KUBEBUILDER_ASSETS, or the cache, filled first."""
    if assets := os.environ.get("KUBEBUILDER_ASSETS"):
        folder = Path(assets).resolve()
        if missing := _missing(folder, names):
            raise Missing(
                f"KUBEBUILDER_ASSETS={assets} lacks {', '.join(missing)}; without the variable they are built"
            )
        return folder
    folder = _cache()
    if _missing(folder, names):
        _build(folder, names)
    return folder


def kubernetes_version() -> str:
    """The release of Kubernetes that go.mod pins, as `v1.2.3`."""
    match = re.search(r"^\s+k8s\.io/kubernetes (v\S+)", (HERE / "go.mod").read_text("utf-8"), re.MULTILINE)
    if match is None:
        raise ValueError("go.mod pins no k8s.io/kubernetes")
    return match[1]


def _missing(folder: Path, names: Collection[str]) -> list[str]:
    return [name for name in names if not os.access(folder / name, os.X_OK)]


def _cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    pins = hashlib.sha256(b"".join((HERE / name).read_bytes() for name in ("go.mod", "go.sum")))
    return Path(root) / "slicewarden" / pins.hexdigest()[:16]


def _build(folder: Path, names: Collection[str]) -> None:
    if shutil.which("go") is None:
        raise Missing(
            "the cluster tests need Go 1.26 (https://go.dev/dl), or KUBEBUILDER_ASSETS=FOLDER with " + ", ".join(names)
        )
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        for cut_off in folder.glob(".build-*"):
            shutil.rmtree(cut_off)
        names = _missing(folder, names)  # another run may have built them meanwhile
        for number, name in enumerate(names, start=1):
            _say(f"building {name} ({number} of {len(names)}; the first time, ten minutes or so in all)")
            start = time.monotonic()
            _build_one(name, folder)
            _say(f"built {name} in {time.monotonic() - start:.0f} s")


def _build_one(name: str, folder: Path) -> None:
    major, minor, _ = kubernetes_version().removeprefix("v").split(".", 2)
    variables = {"gitVersion": kubernetes_version(), "gitMajor": major, "gitMinor": minor}
    flags = [
        "-s",
        "-w",
        *(f"-X={package}.{key}={value}" for package in VERSION_PACKAGES for key, value in variables.items()),
    ]
    environment = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "-mod=readonly"}
    # Built beside its place and then moved: a build that is cut off leaves nothing that looks whole.
    with tempfile.TemporaryDirectory(prefix=".build-", dir=folder) as scratch:
        built = Path(scratch) / name
        command = ["go", "build", "-trimpath", "-ldflags", " ".join(flags), "-o", str(built), PACKAGES[name]]
        if subprocess.run(command, cwd=HERE, env=environment, stdout=sys.stderr, check=False).returncode:
            raise Missing(f"{name} could not be built")
        built.replace(folder / name)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let one process build at a time; the lock goes with the process."""
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def main() -> int:
    """Print the folder with the programs that are named, or with all; 2 after one line on what is missing."""
    try:
        print(find(sys.argv[1:] or tuple(PACKAGES)))
    except Missing as missing:
        _say(str(missing))
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
