"""The programs of a node: found in the cache, or built from the pins in `pins/`, each by its maker's own flags."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.e2e.binaries import version_flags
from tests.support.go_programs import Missing, Unbuilt, built, say

PINS = Path(__file__).resolve().parent / "pins"
WITHOUT_GO = "the tests of a node need Go 1.26 (https://go.dev/dl)"
CONTAINERD = "github.com/containerd/containerd/v2"
RUNC = "github.com/opencontainers/runc"
CNI = "github.com/containernetworking/plugins/plugins"
PLUGIN = "github.com/NVIDIA/k8s-device-plugin"
POLICIES = "sigs.k8s.io/kube-network-policies"
CERT_MANAGER = "github.com/cert-manager/cert-manager"
NFD = "sigs.k8s.io/node-feature-discovery"
TOOLKIT = "github.com/NVIDIA/nvidia-container-toolkit"


class Recipe(NamedTuple):
    """How programs of one module are built."""

    pins: str
    packages: Mapping[str, str]
    version: str = ""
    """The variable that holds the release, and the module whose release it is: `PACKAGE.VARIABLE=MODULE`."""
    ldflags: str = ""
    tags: str = ""
    cgo: bool = False


# NVIDIA's library is found when the program runs, so its functions are not there when it is linked (Makefile of both).
LAZILY = "-extldflags=-Wl,-z,lazy"
RECIPES = (
    Recipe("kubernetes", {name: f"k8s.io/kubernetes/cmd/{name}" for name in ("kubelet", "kube-proxy")}),
    Recipe("runtime", {"runc": RUNC}, tags="seccomp", cgo=True),
    Recipe(
        "runtime",
        {"bridge": f"{CNI}/main/bridge", "loopback": f"{CNI}/main/loopback", "host-local": f"{CNI}/ipam/host-local"},
    ),
    Recipe(
        "runtime",
        {name: f"{CONTAINERD}/cmd/{name}" for name in ("containerd", "containerd-shim-runc-v2", "ctr")},
        version=f"{CONTAINERD}/version.Version={CONTAINERD}",
        tags="no_btrfs no_devmapper no_zfs",
    ),
    Recipe(
        "nvidia",
        {name: f"{PLUGIN}/cmd/{name}" for name in ("nvidia-device-plugin", "config-manager", "gpu-feature-discovery")},
        version=f"{PLUGIN}/internal/info.version={PLUGIN}",
        ldflags=LAZILY,
        cgo=True,
    ),
    Recipe(
        "nvidia",
        {name: f"{TOOLKIT}/cmd/{name}" for name in ("nvidia-container-runtime", "nvidia-container-runtime-hook")},
        ldflags=LAZILY,
        cgo=True,
    ),
    Recipe("policies", {"kube-network-policies": f"{POLICIES}/cmd/kube-network-policies/standard"}),
    Recipe("cert-manager", {"cert-manager": "."}),
    Recipe("labels", {name: f"{NFD}/cmd/{name}" for name in ("nfd-master", "nfd-worker")}),
)
HOOK = Recipe(
    "toolkit",
    {name: f"{TOOLKIT}/cmd/{name}" for name in ("nvidia-cdi-hook", "nvidia-container-runtime")},
    ldflags=LAZILY,
    cgo=True,
)
"""NVIDIA's toolkit with the hook that sets memory limits; built only by the nightly test of it."""
NAMES = tuple(name for recipe in RECIPES for name in recipe.packages)


def find(names: Collection[str] = NAMES) -> dict[str, Path]:
    """Return where these programs are, by name; build those that are not in the cache. Raises Missing."""
    wanted = [(recipe, {key: it for key, it in recipe.packages.items() if key in names}) for recipe in RECIPES]
    with ThreadPoolExecutor(2) as pool:  # to link a program takes one core
        folders = list(pool.map(lambda each: _built(*each), wanted))
    return {name: folder / name for folder, (_, packages) in zip(folders, wanted, strict=True) for name in packages}


def find_hook() -> dict[str, Path]:
    """Return where the toolkit with the hook is, by the programs' names; build it once. Raises Missing."""
    folder = _built(HOOK, HOOK.packages)
    return {name: folder / name for name in HOOK.packages}


def _built(recipe: Recipe, packages: Mapping[str, str]) -> Path:
    """The folder of these programs of a recipe."""
    if recipe.cgo and packages and shutil.which("gcc") is None:
        raise Missing("the tests of a node need a C compiler (apt-get install gcc libc6-dev)")
    return built(
        PINS / recipe.pins,
        packages,
        without_go=WITHOUT_GO,
        ldflags=f"{recipe.ldflags} {_version_flags(recipe)}".strip(),
        tags=recipe.tags,
        cgo=recipe.cgo,
    )


def source(pins: str, module: str) -> Path:
    """The folder of a module's sources that a folder of `pins` pins."""
    command = ["go", "mod", "download", "-json", module]
    done = subprocess.run(command, cwd=PINS / pins, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unbuilt(f"{module}: {done.stdout}{done.stderr}")
    return Path(json.loads(done.stdout)["Dir"])


def release(pins: str, module: str) -> str:
    """The release of a module that a folder of `pins` pins, as `v1.2.3`."""
    match = re.search(rf"^\s+{re.escape(module)} (v\S+)", (PINS / pins / "go.mod").read_text("utf-8"), re.MULTILINE)
    if match is None:
        raise ValueError(f"{pins}/go.mod pins no {module}")
    return match[1]


def _version_flags(recipe: Recipe) -> str:
    if recipe.pins == "kubernetes":
        return version_flags()
    if not recipe.version:
        return ""
    variable, _, module = recipe.version.partition("=")
    return f"-X={variable}={release(recipe.pins, module)}"


def main() -> int:
    """Print where the programs are that are named, or all; 2 after one line on what is missing."""
    try:
        places = find(sys.argv[1:] or NAMES)
    except Missing as missing:
        say(str(missing))
        return 2
    print("\n".join(str(place) for place in places.values()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
