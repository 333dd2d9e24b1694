"""Reads the names of annotations that container runtimes, their plugins and schedulers know, from their sources."""

import io
import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests import ROOT

RECORDED, RECORDED_OF_SCHEDULERS = ROOT / "tests/runtimes", ROOT / "tests/schedulers"

_NRI = r"[a-z.-]*(?:noderesource\.dev|nri\.io|nri\.containerd\.io)(?:/[a-z.-]*)?"


@dataclass(frozen=True)
class Source:
    """The part of a repository in which a runtime or a scheduler names annotations.

    `files` are git's path specifications. `names` matches the strings that are names of annotations.
    """

    repository: str
    files: tuple[str, ...]
    names: str


SOURCES = {
    "container-engine-accelerators": Source(
        "GoogleCloudPlatform/container-engine-accelerators", ("nri_device_injector",), r"[a-z.-]*gke\.io"
    ),
    "containerd": Source(
        "containerd/containerd",
        (
            "internal/cri",
            "cmd/containerd-shim-runc-v2/manager",
            "core/snapshots",
            "plugins/snapshots",
            "vendor/github.com/intel/goresctrl/pkg/kubernetes",
            "vendor/tags.cncf.io/container-device-interface/pkg/cdi/annotations.go",
        ),
        r"(?:io\.kubernetes\.cri|microsoft\.com|containerd\.io/snapshot|[a-z.-]*kubernetes\.io|cdi\.k8s\.io)[./].*"
        r"|[a-z.-]+\.kubernetes\.io"
        r"|io\.containerd\.(?:cri\.[a-z-]+|runc\.v2\.[a-z]+)",
    ),
    "cri-o": Source(
        "cri-o/cri-o",
        (
            "internal/annotations/annotations.go",
            "internal/annotations/checkpoint.go",
            "pkg/annotations/v2/annotations.go",
        ),
        r"[^ :]*\.[^ :]*|bundle",
    ),
    "crun": Source(
        "containers/crun", ("src/libcrun",), r"(?:run\.oci|org\.criu|org\.systemd|krun|module|io\.kubernetes)\.[a-z].*"
    ),
    "gvisor": Source("google/gvisor", ("runsc", "pkg/shim", "shim"), r"(?:dev\.gvisor|io\.kubernetes)\.[a-z].*"),
    "kata-containers": Source(
        "kata-containers/kata-containers",
        ("src/runtime", "src/runtime-rs", "src/libs"),
        r"io\.katacontainers\.[a-z][^= ]*|io\.kubernetes\.[a-z].*|sgx\.intel\.com/.*",
    ),
    "nri": Source("containerd/nri", ("plugins", "pkg/plugin"), _NRI),
    "nri-plugins": Source("containers/nri-plugins", ("cmd", "pkg"), _NRI),
    "nvidia-container-toolkit": Source(
        "NVIDIA/nvidia-container-toolkit",
        ("cmd", "internal", "pkg", "vendor/tags.cncf.io/container-device-interface/pkg/cdi/annotations.go"),
        r"(?:[a-z.-]+\.)?cdi\.k8s\.io/?",
    ),
    "oci-seccomp-bpf-hook": Source("containers/oci-seccomp-bpf-hook", (".",), r"io\.containers\..*"),
    "runc": Source("opencontainers/runc", ("libcontainer", "features.go"), r"org\.(?:criu|systemd)\..*"),
}
"""The runtimes and plugins that read annotations of pods, by their names in tests/runtimes."""

_OF_SCHEDULERS = (
    r"(?!(?:github|google|k8s|app\.kubernetes|node\.kubernetes|sigs\.k8s)\.|volcano\.sh/(?:apis|volcano)/)"
    r"[a-z.-]+\.(?:com|ai|io|sh)/[A-Za-z][\w.%-]*|(?:BAIDU_COM|CAMBRICON)_[A-Z_]+|gas-[a-z-]+|predicate-time"
    r"|assigned-containers"
)

SCHEDULERS = {
    "hami": Source("Project-HAMi/HAMi", ("pkg/device", "pkg/util"), _OF_SCHEDULERS),
    "koordinator": Source(
        "koordinator-sh/koordinator",
        ("apis/extension/constants.go", "apis/extension/device_share.go", "pkg/scheduler/plugins/deviceshare"),
        _OF_SCHEDULERS,
    ),
    "platform-aware-scheduling": Source("intel/platform-aware-scheduling", ("gpu-aware-scheduling",), _OF_SCHEDULERS),
    "volcano": Source("volcano-sh/volcano", ("pkg/scheduler/api/devices",), _OF_SCHEDULERS),
}
"""The schedulers that write their choice of a GPU into annotations of pods, by their names in tests/schedulers."""

_STRING = r'"(?:[^"\\\n]|\\.)*"'
_COMMENT = re.compile(rf"({_STRING})|/\*.*?\*/|//[^\n]*", re.DOTALL)
_TERM = rf"(?:{_STRING}|[A-Za-z_][\w.]*)"
_CONSTANT = re.compile(rf"\b(\w+)[ \t]*(?::[ \t]*&(?:'static )?str[ \t]*)?=\s*({_TERM}(?:[ \t]*\+[ \t]*{_TERM})*)")
_SUM = re.compile(rf"{_TERM}(?:[ \t]*\+[ \t]*{_TERM})*")


def names_in(texts: Iterable[str], pattern: str) -> set[str]:
    """Return the strings in some files of Go, Rust or C that match a pattern, and the sums of strings and constants.

    Comments and Rust's tests are left out. Of a sum the part before its first variable counts.
    """
    files = [_COMMENT.sub(r"\1", text).partition("#[cfg(test)]")[0] for text in texts]
    constants = [dict(_CONSTANT.findall(file)) for file in files]
    everywhere = {name: value for each in constants for name, value in each.items()}
    sums = (
        _value(each, {**everywhere, **own}, 0)
        for file, own in zip(files, constants, strict=True)
        for each in _SUM.findall(file)
    )
    return {name for name in sums if re.fullmatch(pattern, name)}


def _value(sum_: str, constants: Mapping[str, str], depth: int) -> str:
    """Return the text of a sum up to its first variable; constants that refer to each other end at a depth of 8."""
    value = ""
    for term in re.findall(_TERM, sum_):
        constant = constants.get(term.rpartition(".")[2])
        if term.startswith('"'):
            value += term[1:-1]
        elif constant is None or depth == 8:
            return value
        else:
            value += _value(constant, constants, depth + 1)
    return value


def read(folder: Path, commit: str, source: Source) -> set[str]:
    """Return the names in the source at a commit of a Git repository."""
    archive = ["git", "-C", str(folder), "archive", commit, "--", *source.files]
    content = subprocess.run(archive, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(content)) as files:
        return names_in((_text(files, file) for file in files if file.isfile() and _is_own(file.name)), source.names)


def _text(files: tarfile.TarFile, file: tarfile.TarInfo) -> str:
    opened = files.extractfile(file)
    return opened.read().decode() if opened else ""


def _is_own(file: str) -> bool:
    """Whether a file is source code of the repository, or of a library that SOURCES names, and no test."""
    code = file.endswith((".go", ".rs", ".c")) and not file.endswith(("_test.go", "_tests.rs"))
    return code and not any(part in file for part in ("/vendor/", "/tests/", "/mock"))


def main() -> None:
    """Record the names in a Git repository: `python -m tests.support.runtimes NAME FOLDER COMMIT...`."""
    name, folder, commits = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    source, recorded = (SOURCES[name], RECORDED) if name in SOURCES else (SCHEDULERS[name], RECORDED_OF_SCHEDULERS)
    names = set[str]().union(*(read(folder, commit, source) for commit in commits))
    record = {"repository": source.repository, "commits": commits, "names": sorted(names)}
    (recorded / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
