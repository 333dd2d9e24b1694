"""Find the programs of a cluster; build them from the pins in go.mod where that was not done before."""

import os
import re
import sys
from collections.abc import Collection
from pathlib import Path

from tests.e2e.karpenter import program as karpenter
from tests.e2e.queueing import program as kueue
from tests.support.go_programs import Missing as Missing
from tests.support.go_programs import built, lacking, say

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


def find(names: Collection[str] = tuple(PACKAGES)) -> Path:
    """Return the folder with these programs: $KUBEBUILDER_ASSETS, or the cache, filled first."""
    if assets := os.environ.get("KUBEBUILDER_ASSETS"):
        folder = Path(assets).resolve()
        if missing := lacking(folder, names):
            raise Missing(
                f"KUBEBUILDER_ASSETS={assets} lacks {', '.join(missing)}; without the variable they are built"
            )
        return folder
    return built(
        HERE,
        {name: PACKAGES[name] for name in names},
        without_go="the cluster tests need Go 1.26 (https://go.dev/dl), or KUBEBUILDER_ASSETS=FOLDER with "
        + ", ".join(names),
        patience="; the first time, ten minutes or so in all",
        ldflags=version_flags(),
    )


def kubernetes_version(pins: Path = HERE) -> str:
    """The release of Kubernetes that a folder's go.mod pins, as `v1.2.3`."""
    match = re.search(r"^\s+k8s\.io/kubernetes (v\S+)", (pins / "go.mod").read_text("utf-8"), re.MULTILINE)
    if match is None:
        raise ValueError(f"{pins / 'go.mod'} pins no k8s.io/kubernetes")
    return match[1]


def version_flags(pins: Path = HERE) -> str:
    """The linker's flags by which Kubernetes' programs know their release."""
    version = kubernetes_version(pins)
    major, minor, _ = version.removeprefix("v").split(".", 2)
    variables = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    return " ".join(f"-X={package}.{key}={value}" for package in VERSION_PACKAGES for key, value in variables.items())


def main() -> int:
    """Print the folder with the programs that are named, or with all; 2 after one line on what is missing."""
    try:
        print(find(sys.argv[1:] or tuple(PACKAGES)))
        if not sys.argv[1:]:
            kueue()
            karpenter()
    except Missing as missing:
        say(str(missing))
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
