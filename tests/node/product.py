"""The project's own image, built from its Dockerfile by buildah, on a base like the pinned one: Debian's packages.

The pinned base is Debian's trixie with Python 3.13 under /usr/local; this has trixie's own Python 3.13 there.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests import ROOT
from tests.node.images import Image
from tests.support.dockerfile import copy_sources
from tests.support.go_programs import Missing, cache, say

NAME = "docker.io/library/slicewarden:0.1.0"
"""As container runtimes read the name in manifests/base."""
BASE = "localhost/python-base:3.13-trixie"
PACKAGES = ("buildah", "debootstrap")
BUNDLES = Path("/etc/ssl/certs/ca-certificates.crt")


def image() -> Image:
    """Return the image of this tree; build it where the cache has none. Raises Missing."""
    if missing := [name for name in PACKAGES if shutil.which(name) is None]:
        raise Missing(f"the image needs {', '.join(missing)} (apt-get install {' '.join(missing)})")
    with tempfile.TemporaryDirectory(prefix="slicewarden-context-", dir="/var/tmp") as scratch:
        context = Path(scratch) / "context"
        copy_sources(context)
        shutil.copy(ROOT / "Dockerfile", context)
        archive = cache() / "node" / "images" / f"slicewarden-{_hash(context)}.tar"
        if not archive.exists():
            archive.parent.mkdir(parents=True, exist_ok=True)
            _base()
            say("building the image from the Dockerfile (a minute or two)")
            _build(context, Path(scratch) / "image.tar")
            for older in archive.parent.glob("slicewarden-*.tar"):
                older.unlink()
            shutil.move(Path(scratch) / "image.tar", archive)
    return Image(NAME, archive)


def _hash(folder: Path) -> str:
    files = sorted(each for each in folder.rglob("*") if each.is_file())
    lines = [f"{each.relative_to(folder)} {hashlib.sha256(each.read_bytes()).hexdigest()}" for each in files]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _build(context: Path, archive: Path) -> None:
    # pip asks through whatever the machine trusts.
    trusted = ["--volume", f"{BUNDLES}:{BUNDLES}:ro"] if BUNDLES.exists() else []
    _buildah(
        "bud", "--isolation=chroot", "--pull-never", "--timestamp=0", "--squash", f"--build-arg=BASE={BASE}",
        *trusted, f"--tag={NAME}", f"--file={context / 'Dockerfile'}", str(context),
    )  # fmt: skip
    _buildah("push", "--disable-compression", NAME, f"oci-archive:{archive}:{NAME}")
    _buildah("rmi", NAME)


def _base() -> None:
    """Make the base image, once."""
    if _buildah("images", "--quiet", "--filter", f"reference={BASE}"):
        return
    say("making the base image of Debian's packages (a minute or two)")
    with tempfile.TemporaryDirectory(prefix="slicewarden-base-", dir="/var/tmp") as scratch:
        root = Path(scratch) / "root"
        _run("debootstrap", "--variant=minbase", "--include=python3.13-venv,ca-certificates", "trixie", str(root))
        _run("chroot", str(root), "python3.13", "-m", "venv", "/usr/local")
        for folder in ("var/cache/apt", "var/lib/apt/lists", "var/log"):
            shutil.rmtree(root / folder)
            (root / folder).mkdir()
        container = _buildah("from", "scratch")
        _buildah("add", "--quiet", container, str(root), "/")
        _buildah("config", "--env=PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin", container)
        _buildah("commit", "--quiet", "--rm", container, BASE)


def _buildah(*arguments: str) -> str:
    storage = cache() / "node" / "buildah"
    return _run("buildah", f"--root={storage / 'storage'}", f"--runroot={storage / 'run'}", *arguments)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C.UTF-8"})
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-25:])
        raise Missing(f"{' '.join(command)}:\n{tail}")
    return done.stdout.strip()
