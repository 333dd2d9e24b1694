"""Container images of files, made without an engine or a registry: OCI archives that `ctr images import` takes."""

import hashlib
import io
import json
import re
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from tests.node import programs
from tests.support.go_programs import Missing, Unbuilt, cache
from webhook.memory import frameworks

HERE = Path(__file__).resolve().parent
PAUSE, TOOLS, GREEDY, LEGACY, WIDE, SWITCHES, CHANNELS, NVIDIA, NFD, CERT_MANAGER = (
    f"slicewarden.test/{name}:1"
    for name in ("pause", "tools", "greedy", "legacy", "wide", "switches", "channels", "nvidia", "nfd", "cert-manager")
)
OCI = "application/vnd.oci.image"
UNCAPPED = {row.name: "of-the-image" for framework in frameworks.walk() for row in framework.variables}
"""A value of the image's own for each variable by which a framework is capped."""
LIBRARY = "/usr/local/pretended/libnvidia-ml.so.1"
"""Where the image of NVIDIA's programs has the pretended NVML, before the one that the runtime gives it."""


class Image(NamedTuple):
    """An image in an archive."""

    name: str
    archive: Path


def made(name: str, files: Mapping[str, Path | bytes], **config: Any) -> Image:
    """Return the image of these files, by their places, each of them a program; make it where the cache has none.

    `config` is more of what OCI's image specification calls so (config.md). The same files make the same bytes.
    """
    layer = _tar({place: each.read_bytes() if isinstance(each, Path) else each for place, each in files.items()}, 0o755)
    blobs: dict[str, bytes] = {}

    def blob(data: bytes, kind: str) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        return {"mediaType": f"{OCI}.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    layers = [blob(layer, "layer.v1.tar")]  # not compressed, since it is unpacked at once
    described = {
        "architecture": "amd64",
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [each["digest"] for each in layers]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{OCI}.manifest.v1+json",
        "config": blob(json.dumps(described).encode(), "config.v1+json"),
        "layers": layers,
    }
    entry = blob(json.dumps(manifest).encode(), "manifest.v1+json")
    archive = cache() / "node" / "images" / f"{name.rpartition('/')[2].replace(':', '-')}-{entry['digest'][7:23]}.tar"
    if not archive.exists():
        entry["annotations"] = {"io.containerd.image.name": name}
        index = {"schemaVersion": 2, "mediaType": f"{OCI}.index.v1+json", "manifests": [entry]}
        about = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index).encode()}
        archive.parent.mkdir(parents=True, exist_ok=True)
        partial = archive.with_suffix(".new")
        partial.write_bytes(_tar({**about, **blobs}, 0o644))
        partial.replace(archive)
    return Image(name, archive)


def pause() -> Image:
    """Make the image that holds the namespaces of each pod."""
    return made(PAUSE, {"pause": compiled(HERE / "pause.c", "-static")}, Entrypoint=["/pause"])


def tools() -> list[Image]:
    """A shell and its tools; and the same with variables by which an image asks NVIDIA's runtime for devices."""
    busybox = shutil.which("busybox")
    if busybox is None or _libraries(Path(busybox)):
        raise Missing("the tests of a node need a static busybox (apt-get install busybox-static)")
    listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    # A script for each name, since an image here has plain files alone.
    applets = {f"bin/{name}": f'#!/bin/busybox sh\nexec /bin/busybox {name} "$@"\n'.encode() for name in listed}
    files: dict[str, Path | bytes] = {**applets, "bin/busybox": Path(busybox)}
    uncapped = [f"{name}={value}" for name, value in UNCAPPED.items()]
    env: dict[str, list[str]] = {
        TOOLS: [],
        GREEDY: ["NVIDIA_VISIBLE_DEVICES=all"],
        LEGACY: ["CUDA_VERSION=9.0"],
        WIDE: ["NVIDIA_GPU_MEMORY_LIMIT=40000"],
        SWITCHES: ["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_NVSWITCH=enabled", *uncapped],
        CHANNELS: ["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_IMEX_CHANNELS=0", *uncapped],
    }
    return [made(name, files, Env=["PATH=/bin", *more]) for name, more in env.items()]


def nvidia(places: Mapping[str, Path]) -> Image:
    """NVIDIA's programs of a node that are among these, and the pretended NVML."""
    names = [name for name in ("nvidia-device-plugin", "config-manager", "gpu-feature-discovery") if name in places]
    files: dict[str, Path | bytes] = {f"usr/bin/{name}": places[name] for name in names}
    files |= {str(each).lstrip("/"): each for name in names for each in _libraries(places[name])}
    return made(
        NVIDIA, {**files, LIBRARY.lstrip("/"): nvml()}, Env=["PATH=/usr/bin", f"LD_LIBRARY_PATH={Path(LIBRARY).parent}"]
    )


def nfd(places: Mapping[str, Path]) -> Image:
    """The two programs of Node Feature Discovery."""
    files: dict[str, Path | bytes] = {f"usr/bin/{name}": places[name] for name in ("nfd-master", "nfd-worker")}
    return made(NFD, files, Env=["PATH=/usr/bin"], User="65532")


def cert_manager(places: Mapping[str, Path]) -> Image:
    """cert-manager's programs, which are one."""
    return made(CERT_MANAGER, {"cert-manager": places["cert-manager"]}, Entrypoint=["/cert-manager"], User="65532")


def nvml() -> Path:
    """The pretended NVML, by the header that NVIDIA's programs are built with."""
    header = programs.source("nvidia", "github.com/NVIDIA/go-nvml")
    return compiled(HERE / "nvml.c", "-shared", "-fPIC", f"-I{header}/pkg/nvml")


def compiled(source: Path, *options: str) -> Path:
    """Return what a file of C makes; from the cache, by the file and the options."""
    hashed = hashlib.sha256(source.read_bytes() + repr(options).encode()).hexdigest()[:16]
    place = cache() / "node" / f"{source.stem}-{hashed}"
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        partial = place.with_suffix(".new")
        command = ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", *options, "-o", str(partial), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unbuilt(f"{source.name} could not be compiled: {done.stderr}")
        partial.replace(place)
    return place


def _libraries(program: Path) -> list[Path]:
    """List what a program is linked with, as ldd tells it; nothing where it is static."""
    shown = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False).stdout
    return [Path(place) for place in re.findall(r"(/\S+) \(0x", shown)]


def _tar(files: Mapping[str, bytes], mode: int) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        folders = {str(parent) for place in files for parent in PurePosixPath(place).parents} - {"."}
        for folder in sorted(folders):
            info = tarfile.TarInfo(folder)
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(info)
        for place, data in sorted(files.items()):
            info = tarfile.TarInfo(place)
            info.size, info.mode = len(data), mode
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()
