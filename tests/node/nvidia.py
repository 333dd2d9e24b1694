"""NVIDIA's side of a node: its container runtime for all containers, and its device plugin as its chart installs it.

In mode `cdi` the container runtime gives what a specification holds, which `nvidia-ctk cdi generate` writes on a real
node. In `jit-cdi`, which `auto` becomes on most nodes, it makes that by itself; in `legacy` a program in C gives it.
"""

import json
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.e2e.control_plane import Cluster, eventually
from tests.node.images import NVIDIA, nvml
from tests.node.nodes import GPU_NODE
from tests.support.card.library import library
from tests.support.card.state import State

HERE = Path(__file__).resolve().parent
CARDS = tuple(f"GPU-51ce0000-0000-4000-8000-{index:012x}" for index in range(2))
"""The cards of nvml.c by their UUIDs."""
MIB_OF_CARD = 40960
STATE, LIBRARIES = "/run/pretended-cards", "/usr/lib/x86_64-linux-gnu"
"""Where a container with a card has the file of its memory, and the driver's libraries."""
OPERATOR = "gpu-operator"
"""The namespace of NVIDIA's programs."""
CONFIGS = {
    "shared-4": {"failRequestsGreaterThanOne": True, "resources": [{"name": "nvidia.com/gpu", "replicas": 4}]},
    "shared-8": {"failRequestsGreaterThanOne": True, "resources": [{"name": "nvidia.com/gpu", "replicas": 8}]},
    "renamed": {"renameByDefault": True, "resources": [{"name": "nvidia.com/gpu", "replicas": 4}]},
    "twice": {"resources": [{"name": "gpu", "replicas": 2}, {"name": "nvidia.com/gpu", "replicas": 3}]},
    "one-card": {"resources": [{"name": "nvidia.com/gpu", "devices": [0], "rename": "gpu.part", "replicas": 4}]},
    "partitions": {"resources": [{"name": "nvidia.com/mig-1g.5gb", "replicas": 4}]},
}
"""The `timeSlicing` of each configuration that the node can choose; `whole` shares nothing."""
MODES = {"cdi": "runc", "legacy": "nvidia-legacy", "jit-cdi": "nvidia-jit-cdi"}
"""The modes of NVIDIA's container runtime, and the handlers by which the node knows them."""
DRIVER = "580.65.06"
"""The driver's version, as nvml.c has it."""
LABEL = "nvidia.com/device-plugin.config"


def runtimes(folder: Path, programs: Mapping[str, Path]) -> dict[str, str]:
    """Set NVIDIA's container runtime up in a folder, once for each mode, and return what containerd is to start.

    `cdi` starts the containers that choose no RuntimeClass. The others have handlers of their own: `legacy`, whose hook
    calls a stand-in for nvidia-container-cli, which is C; and `jit-cdi`, which asks the pretended NVML by itself.
    """
    home = folder / "nvidia-container-runtime"
    home.mkdir()
    cards = State(home / "cards", len(CARDS), MIB_OF_CARD, name="NVIDIA A100-SXM4-40GB", uuids=CARDS)
    made = {handler: _runtime(home / mode, programs, mode, cards.file) for mode, handler in MODES.items()}
    return {
        **made,
        LIMITED: _script(
            home / "limited",
            f'[ -e {home}/limits ] || exec {programs["runc"]} "$@"\nexec {home}/limits/start-container "$@"',
        ),
    }


LIMITED = "nvidia-limits"
"""The handler of the toolkit whose hook sets memory limits; plain runc until `limits` has set that toolkit up."""


class LimitHook(NamedTuple):
    """The toolkit with the hook: the cards' file, and a file that switches the hook off while it is there."""

    cards: Path
    disabled: Path


def limits(folder: Path, runc: Path, toolkit: Mapping[str, Path]) -> LimitHook:
    """Set up, in the bed's folder, a newer toolkit in mode `jit-cdi`, and its hook with an NVML that counts.

    The bed's own NVML answers the runtime. In the hook's mounts lies another one in its place, whose limits the
    pretended CUDA keeps, and cgroup v2 alone: the hook refuses a node that has version 1 too. The runtime gives a
    container five other hooks, which need more of a driver than there is here.
    """
    home, cards = folder / "nvidia-container-runtime", folder / "nvidia-container-runtime" / "cards"
    made = home / "limits.new"
    settings = made / "nvidia-container-runtime"
    settings.mkdir(parents=True)
    driver, disabled = _driver(made / "driver"), home / "limits-disabled"
    place = home / "limits" / driver.relative_to(made)
    nvml_of = place / f"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{DRIVER}"
    inside = f'mount -t cgroup2 cgroup2 /sys/fs/cgroup && mount --bind {library()} {nvml_of} && exec "$@"'
    _script(
        made / "nvidia-cdi-hook",
        f"""[ "$1" = apply-cuda-memory-limits ] && [ ! -e {disabled} ] || exit 0
export PATH=/usr/sbin:/usr/bin:/sbin:/bin CARD_STATE={cards}
exec unshare --mount --propagation=private /bin/sh -c {shlex.quote(inside)} sh {toolkit["nvidia-cdi-hook"]} "$@\"""",
    )
    (settings / "config.toml").write_text(f"""
accept-nvidia-visible-devices-as-volume-mounts = true
[nvidia-container-cli]
root = "{place}"
[nvidia-ctk]
path = "{home}/limits/nvidia-cdi-hook"
[nvidia-container-runtime]
debug = "{home}/limits/log"
runtimes = ["{runc}"]
mode = "jit-cdi"
""")
    started = f"XDG_CONFIG_HOME={shlex.quote(str(home / 'limits'))} exec"
    _script(made / "start-container", f'{started} {toolkit["nvidia-container-runtime"]} "$@"')
    made.rename(home / "limits")
    return LimitHook(cards, disabled)


def _runtime(home: Path, programs: Mapping[str, Path], mode: str, cards: Path) -> str:
    settings = home / "nvidia-container-runtime"
    settings.mkdir(parents=True)
    (home / "cdi.json").write_text(json.dumps(specification(cards)))
    started = f"XDG_CONFIG_HOME={shlex.quote(str(home))} exec"
    hook = _script(
        home / "nvidia-container-runtime-hook", f'{started} {programs["nvidia-container-runtime-hook"]} "$@"'
    )
    stand_in = _script(home / "nvidia-container-cli", (HERE / "nvidia-container-cli.sh").read_text("utf-8"))
    (settings / "config.toml").write_text(f"""
accept-nvidia-visible-devices-as-volume-mounts = true
[nvidia-container-cli]
path = "{stand_in}"
root = "{_driver(home / "driver")}"
[nvidia-container-runtime-hook]
path = "{hook}"
skip-mode-detection = true
[nvidia-ctk]
path = "/bin/true"
[nvidia-container-runtime]
debug = "{home}/log"
runtimes = ["{programs["runc"]}"]
mode = "{mode}"
[nvidia-container-runtime.modes.cdi]
spec-dirs = ["{home}"]
default-kind = "nvidia.com/gpu"
annotation-prefixes = ["cdi.k8s.io/"]
""")
    return _script(home / "start-container", f'{started} {programs["nvidia-container-runtime"]} "$@"')


def _script(place: Path, text: str) -> str:
    place.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
    place.chmod(0o755)
    return str(place)


def _driver(root: Path) -> Path:
    """A driver's root: its libraries by their version, all of them the pretended NVML, and the cards."""
    libraries = root / "usr/lib/x86_64-linux-gnu"
    libraries.mkdir(parents=True)
    for name in ("libnvidia-ml.so", "libcuda.so"):
        shutil.copy(nvml(), libraries / f"{name}.{DRIVER}")
    (libraries / "libnvidia-ml.so.1").symlink_to(f"libnvidia-ml.so.{DRIVER}")
    (root / "dev").symlink_to("/dev")
    return root


def specification(cards: Path) -> dict[str, Any]:
    """The devices that a container gets with each card, by its index and its UUID, and with all (CDI's SPEC.md).

    As on a real node these are the driver's libraries too. `cards` is the file that the pretended ones count in.
    """

    def device(name: str, *cards: int) -> dict[str, Any]:
        nodes = [{"path": f"/dev/nvidia{card}", "type": "c"} for card in cards]
        return {"name": name, "containerEdits": {"deviceNodes": nodes}}

    each = [device(name, card) for card, uuid in enumerate(CARDS) for name in (str(card), uuid)]
    return {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [*each, device("all", *range(len(CARDS)))],
        "containerEdits": {
            "deviceNodes": [{"path": "/dev/nvidiactl", "type": "c"}],
            "env": [f"CARD_STATE={STATE}"],
            "mounts": [
                {"hostPath": str(cards), "containerPath": STATE, "options": ["rw", "bind"]},
                *(
                    {"hostPath": str(library()), "containerPath": f"{LIBRARIES}/{name}", "options": ["ro", "bind"]}
                    for name in ("libnvidia-ml.so.1", "libcuda.so.1")
                ),
            ],
        },
    }


def configurations() -> dict[str, str]:
    """The texts of the configurations, by name."""
    shared = {name: yaml.safe_dump({"version": "v1", "sharing": {"timeSlicing": it}}) for name, it in CONFIGS.items()}
    return {**shared, "whole": "version: v1\n"}


def install(cluster: Cluster) -> None:
    """Install the device plugin, with `shared-4` for nodes that choose nothing."""
    text = (HERE / "device-plugin.yaml").read_text("utf-8").replace("IMAGE", NVIDIA)
    data = {"apiVersion": "v1", "kind": "ConfigMap", "data": configurations()}
    objects = [*yaml.safe_load_all(text), data | {"metadata": {"name": "time-slicing-config", "namespace": OPERATOR}}]
    cluster.do("apply", "--filename=-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))


def resources(cluster: Cluster, which: str = "allocatable") -> dict[str, int]:
    """How many of each of NVIDIA's resources the node says that there are, but for those of which there are none."""
    found = cluster.get("node", GPU_NODE)["status"].get(which, {})
    return {name: int(count) for name, count in found.items() if name.startswith("nvidia.com/") and int(count)}


def choose(cluster: Cluster, config: str, **expected: int) -> None:
    """Have the node choose a configuration, and wait for what it then has: counts by the ends of resources' names."""
    cluster.do("label", "node", GPU_NODE, f"{LABEL}={config}", "--overwrite")
    awaited = {f"nvidia.com/{name}": count for name, count in expected.items()}
    assert eventually(lambda: resources(cluster) == awaited, 120), (resources(cluster), awaited)
