"""Build the programs of another release of Kubernetes, and lay them next to the others of the test cluster."""

import re
import sys
from pathlib import Path

from tests.e2e import binaries
from tests.support.go_programs import Missing, built, cache, say

HERE = Path(__file__).resolve().parent
PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")


def minors() -> tuple[str, ...]:
    """The minor releases that folders pin here, oldest first."""
    found = [folder.name for folder in HERE.iterdir() if re.fullmatch(r"1\.\d+", folder.name)]
    return tuple(sorted(found, key=lambda minor: int(minor.removeprefix("1."))))


def assets(minor: str) -> Path:
    """Return a folder with the programs of a minor release, and with etcd, KWOK and kubectl of the pinned one.

    Raises Missing where no folder pins that release, or a program cannot be built.
    """
    pins = HERE / minor
    if not (pins / "go.mod").is_file():
        raise Missing(f"no Kubernetes {minor} is pinned; there are {', '.join(minors())}; {HERE / 'pin.sh'} adds one")
    own = built(
        pins,
        {name: binaries.PACKAGES[name] for name in PROGRAMS},
        without_go="the cluster tests need Go 1.26 (https://go.dev/dl)",
        patience="; the first time, fifteen minutes or so in all",
        ldflags=binaries.version_flags(pins),
    )
    others = binaries.find([name for name in binaries.PACKAGES if name not in PROGRAMS])
    folder = cache() / f"kubernetes-{own.name}-{others.name}"
    folder.mkdir(parents=True, exist_ok=True)
    for name in binaries.PACKAGES:
        link = folder / name
        link.unlink(missing_ok=True)
        link.symlink_to((own if name in PROGRAMS else others) / name)
    return folder


def main() -> int:
    """Print the folder with the programs of a minor release; 2 after one line on what is missing."""
    try:
        print(assets(sys.argv[1]))
    except Missing as missing:
        say(str(missing))
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
