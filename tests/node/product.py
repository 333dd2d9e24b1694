"""The project's own image, built from a Dockerfile by buildah, on a base like the pinned one: Debian's packages.

The pinned base is Debian's trixie with Python 3.13 under /usr/local; this has trixie's own Python 3.13 there.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from tests import ROOT
from tests.node.images import Image
from tests.support import checkouts
from tests.support.dockerfile import copy_sources
from tests.support.go_programs import Missing, Unbuilt, cache, say

NAME = "docker.io/library/slicewarden:0.1.0"
"""As container runtimes read the name in manifests/base."""
BEFORE = "before"
"""What the version of the release before ends with, since both releases may have the same version."""
NAME_BEFORE = "docker.io/library/slicewarden:before"
BASE = "localhost/python-base:3.13-trixie"
RECIPE = ("build", "--isolation=chroot", "--pull-never", "--no-cache", "--timestamp=1700000000")
"""How an image is built. All in it has one time: any will do, and the same makes the same image."""
PACKAGES = ("buildah", "debootstrap")
BUNDLES = Path("/etc/ssl/certs/ca-certificates.crt")


def image() -> Image:
    """Return the image of this tree; build it where the cache has none. Raises Missing."""
    _need_packages()
    with tempfile.TemporaryDirectory(prefix="slicewarden-context-", dir="/var/tmp") as scratch:
        context = Path(scratch) / "context"
        copy_sources(context)
        shutil.copy(ROOT / "Dockerfile", context)
        return _cached("slicewarden", _hash(context), NAME, context)


def before() -> Image | None:
    """Return the image of the release before this one; None where the clone's history does not go back so far.

    Raises Missing.
    """
    _need_packages()
    if (commit := checkouts.before()) is None:
        return None
    with tempfile.TemporaryDirectory(prefix="slicewarden-before-", dir="/var/tmp") as scratch:
        tree = checkouts.unpacked(commit, Path(scratch) / "tree")
        project = tree / "pyproject.toml"
        text, count = re.subn(r'(?m)^(version = "[^"+]+)"$', rf'\1+{BEFORE}"', project.read_text("utf-8"))
        assert count == 1
        project.write_text(text, "utf-8")
        return _cached("before", f"{commit}+{BEFORE}", NAME_BEFORE, tree)


def _need_packages() -> None:
    if missing := [name for name in PACKAGES if shutil.which(name) is None]:
        raise Missing(f"the image needs {', '.join(missing)} (apt-get install {' '.join(missing)})")


def _cached(stem: str, version: str, name: str, context: Path) -> Image:
    """The image of a folder with a Dockerfile, built where the cache does not have this version; older ones go."""
    key = hashlib.sha256(f"{version} {RECIPE}".encode()).hexdigest()[:16]
    archive = cache() / "node" / "images" / f"{stem}-{key}.tar"
    if not archive.exists():
        archive.parent.mkdir(parents=True, exist_ok=True)
        _base()
        say(f"building {name} from its Dockerfile (a minute or two)")
        with tempfile.TemporaryDirectory(prefix="slicewarden-image-", dir="/var/tmp") as scratch:
            built = Path(scratch) / "image.tar"
            _build(name, context, built)
            for older in archive.parent.glob(f"{stem}-*.tar"):
                older.unlink()
            shutil.move(built, archive)
    return Image(name, archive)


def digest(image: Image) -> str:
    """The digest by which a registry would know an image."""
    with tarfile.open(image.archive) as tar:
        index = tar.extractfile("index.json")
        assert index is not None
        (entry,) = json.load(index)["manifests"]
    return str(entry["digest"])


def built_again() -> str:
    """The digest of this tree's image, built once more from a copy of the tree; from the cache where that was done."""
    found = image()
    record = found.archive.with_suffix(".again")
    if not record.exists():
        with tempfile.TemporaryDirectory(prefix="slicewarden-again-", dir="/var/tmp") as scratch:
            context, again = Path(scratch) / "another-folder", Path(scratch) / "again.tar"
            copy_sources(context)
            shutil.copy(ROOT / "Dockerfile", context)
            for each in context.rglob("*"):
                os.utime(each)
            say("building the image once more, which has to make the same bytes")
            _build(NAME, context, again)
            for older in record.parent.glob("*.again"):
                older.unlink()
            record.write_text(digest(Image(NAME, again)))
    return record.read_text()


def _hash(folder: Path) -> str:
    files = sorted(each for each in folder.rglob("*") if each.is_file())
    lines = [f"{each.relative_to(folder)} {hashlib.sha256(each.read_bytes()).hexdigest()}" for each in files]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _build(name: str, context: Path, archive: Path) -> None:
    # pip asks through whatever the machine trusts.
    trusted = ["--volume", f"{BUNDLES}:{BUNDLES}:ro"] if BUNDLES.exists() else []
    _buildah(
        *RECIPE, f"--build-arg=BASE={BASE}", *trusted, f"--tag={name}",
        f"--file={context / 'Dockerfile'}", str(context),
    )  # fmt: skip
    _buildah("push", "--disable-compression", name, f"oci-archive:{archive}:{name}")
    _buildah("rmi", name)


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
        raise Unbuilt(f"{' '.join(command)}:\n{tail}")
    return done.stdout.strip()
