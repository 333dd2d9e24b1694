"""Delivers the shim in a volume of the downward API, which needs no other object, and checks that a pod has it.

The text travels in an annotation. Containers mount it by subPath, so a container keeps the file that it started with
when the annotation changes (kubernetes/website, "Expose Pod Information to Containers Through Files").
"""

import pkgutil
import posixpath
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from webhook.api.fields import entries
from webhook.api.pods import Container, EnvVar, Pod
from webhook.facts.images import ImageSetting, is_path
from webhook.memory import frameworks
from webhook.memory.budget import Budget, InvalidAnnotation
from webhook.memory.shim import flags
from webhook.memory.steps import fraction, natural
from webhook.model import Finding, Fix, Path
from webhook.policy.model import Policy
from webhook.text.words import sha256, shown

CODE = "slicewarden.dev/memory-shim-code"
"""The annotation that carries the text."""
CHOICE = "slicewarden.dev/memory-shim"
"""The annotation with which a pod opts out of the shim: "off"."""
IMAGE_PATH = "slicewarden.dev/python-path"
"""The annotation that names the PYTHONPATH that the pod's images set; empty where they set none."""

VOLUME = "slicewarden-memory-shim"
FOLDER = flags.FOLDER
FILE = "sitecustomize.py"
NAMES = (FILE, "usercustomize.py")
"""Python runs the file by its second name where another sitecustomize is found first."""

PYTHONPATH, PYTHONHOME = "PYTHONPATH", "PYTHONHOME"
FRACTION, MIB = "SLICEWARDEN_MEMORY_FRACTION", "SLICEWARDEN_MEMORY_MIB"
READ = frozenset({PYTHONPATH, PYTHONHOME, FRACTION, MIB})
"""The variables that `deliver` looks at."""

SHIMMED = tuple(framework for framework in frameworks.walk() if framework.shimmed)
CAPS = ", ".join((*(framework.shimmed for framework in SHIMMED), "onnxruntime by session"))
"""The frameworks that the shim caps, in the words of the record."""

EARLIER: frozenset[str] = frozenset()
"""SHA-256 digests of the last release's text: while replicas are replaced, both releases judge the same pods."""


@cache
def code() -> str:
    """The Python file of the shim in this release: ASCII text of less than 8 KiB."""
    return (pkgutil.get_data(__package__, FILE) or b"").decode("ascii")


@cache
def _digests() -> frozenset[str]:
    return EARLIER | {sha256(code())}


def volume() -> dict[str, Any]:
    """The volume with the shim's file. Every user may read the file, and none may write it."""
    field = {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{CODE}']"}
    return {"name": VOLUME, "downwardAPI": {"defaultMode": 0o444, "items": [{"path": FILE, "fieldRef": field}]}}


def mounts() -> list[dict[str, Any]]:
    """Return the mounts by which a container gets the shim."""
    return [{"name": VOLUME, "mountPath": f"{FOLDER}/{name}", "subPath": FILE, "readOnly": True} for name in NAMES]


class Delivery(NamedTuple):
    """The way in which one container gets the shim: `findings` with fixes, or a `note` if it does not get the shim.

    `given` is whether the container has the shim once the fixes are applied. `unread` is what prevents its Python from
    reading the shim, as far as the pod shows that.
    """

    given: bool
    findings: tuple[Finding, ...] = ()
    note: str = ""
    unread: str = ""

    @property
    def caps(self) -> bool:
        """Whether the container has the shim, and nothing in the pod shows that its Python does not read the file."""
        return self.given and not self.unread


def wanted(pod: Pod, policy: Policy, budget: Budget) -> bool:
    """Return whether containers of a pod should get the shim. Raises Refused for an unknown choice.

    On a card that uses the host's memory a fraction is no cap, so the shim is not delivered there. A pod that runs
    without it cannot be given it.
    """
    choice = pod.annotations.get(CHOICE)
    if choice not in (None, "off"):
        raise InvalidAnnotation(
            CHOICE, f'{shown(choice)} is no choice; the only one is "off", which leaves the shim out'
        )
    if pod.old is not None and not pod.template and CODE not in pod.old.annotations:
        return False
    if not policy.shim or budget.unified or not any(policy.caps(framework.name) for framework in SHIMMED):
        return False
    return choice is None or policy.strict


def image_path(pod: Pod) -> str | None:
    """Return the PYTHONPATH that a pod's annotation says its images set; None if it says none. Raises Refused."""
    path = pod.annotations.get(IMAGE_PATH)
    if path is None or is_path(path):
        return path
    raise InvalidAnnotation(
        IMAGE_PATH, f"{shown(path)} is no PYTHONPATH; write the folders that the image sets, or an empty text"
    )


def deliver(
    container: Container, env: Mapping[str, EnvVar], budget: Budget, known: ImageSetting, *, strict: bool, runs: bool
) -> Delivery:
    """Compare a container with what the shim needs in it. `known` is the PYTHONPATH that its image sets.

    `env` has the container's variables whose names are in READ. `runs` is whether the pod already exists, so that its
    containers cannot be changed.
    """
    own = env.get(PYTHONPATH)
    if own is not None and own.value is None:
        cause = f"{PYTHONPATH} is not known before the pod runs"
        return Delivery(given=False, findings=_opted_out(own.path, cause, "set a value", known, strict), note=cause)
    if own is None:
        if runs:
            return Delivery(given=False, note="it was created without")
        if any(PYTHONPATH.startswith(prefix) for prefix in container.env_from):
            path, cause, way = (*container.path, "envFrom"), f"envFrom may set {PYTHONPATH}", "set it under env"
            findings = _opted_out(path, cause, way, known, strict)
            return Delivery(given=False, findings=findings, note=f"{cause}; {way}")
        if known.path is None:
            why = known.why or f"its image's {PYTHONPATH} is not known"
            return Delivery(given=False, note=f"{why}; say {IMAGE_PATH}")
    path = (*container.path, "env")
    missing: list[str] = []
    fixes: list[Fix] = []
    before = known.path if own is None else own.value
    after = ":".join([FOLDER, *(part for part in (before or "").split(":") if part and part != FOLDER)])
    if own is None:
        missing.append(PYTHONPATH)
        fixes.append(Fix(path, [{"name": PYTHONPATH, "value": after}]))
    elif (own.value or "").partition(":")[0] != FOLDER:
        missing.append(f"{FOLDER} at the start of {PYTHONPATH}")
        fixes.append(Fix((*own.path, "value"), after))
    refused: list[Finding] = []
    for name, value in ((FRACTION, budget.fraction), (MIB, str(budget.mib))):
        variable = env.get(name)
        if variable is None:
            missing.append(name)
            fixes.append(Fix(path, [{"name": name, "value": value}]))
        elif variable.value is None:
            refused.append(Finding(variable.path, f"{name} is set by valueFrom, so no cap is sure; remove it"))
        elif not _within(variable.value, budget, name):
            at = (*variable.path, "value")
            message = f"{name} is {shown(variable.value)}, and the slice has {value}; remove it"
            refused.append(Finding(at, message, (Fix(at, value),)))
    lacking = [*_mounts(container, refused)]
    if lacking:
        missing.append("its mounts")
        fixes.append(Fix((*container.path, "volumeMounts"), lacking))
    if missing:
        message = (
            f"the container lacks {', '.join(missing)} of the memory shim, which caps {CAPS}; "
            "Slicewarden's mutating webhook did not run, or another webhook undid its changes"
        )
        refused.append(Finding(path, message, tuple(fixes), parts=tuple(missing)))
    unread = PYTHONHOME if PYTHONHOME in env else shown(flags.unread(container.words), quotes=False)
    if unread == PYTHONHOME:
        message = f"{PYTHONHOME} may name a Python that does not read the memory shim; remove it"
        refused.append(Finding(env[PYTHONHOME].path, message, advice=not strict))
    elif unread:
        message = f"{unread} reads no memory shim, so there is no cap; remove {unread.rpartition(' ')[2]}"
        refused.append(Finding((*container.path, "command"), message, advice=not strict, parts=(message,)))
    return Delivery(given=True, findings=tuple(refused), unread=unread)


def _opted_out(path: Path, cause: str, way: str, known: ImageSetting, strict: bool) -> tuple[Finding, ...]:
    """Flag a container that would get the shim if the pod set PYTHONPATH to a value; nothing for unknown images."""
    if known.path is None:
        return ()
    message = f"{cause}, so the container gets no memory shim; {way}"
    return (Finding(path, message, advice=not strict, parts=(message,)),)


def _within(value: str, budget: Budget, name: str) -> bool:
    if name == MIB:
        return natural(value) and 0 < int(value) <= budget.mib
    number = fraction(value)
    return number is not None and 0 < number <= budget.permille / 1000


def _mounts(container: Container, refused: list[Finding]) -> Iterator[dict[str, Any]]:
    """Yield the mounts that are missing, and refuse those that would hide the file."""
    there: list[str] = []
    ours, at = mounts(), (*container.path, "volumeMounts")
    listed = entries(container.spec, "volumeMounts", container.path)
    own = {(*at, index, "mountPath") for index, mount in listed if mount in ours}
    for path, written in container.places:
        place = posixpath.normpath("/" + written.lstrip("/"))
        if path in own:
            there.append(place)
        elif f"{place}/".startswith(f"{FOLDER}/"):
            message = f"a mount at {shown(place)} hides the memory shim, which lies in {FOLDER}; mount it elsewhere"
            refused.append(Finding(path, message))
            there.append(place)
    yield from (mount for mount in ours if mount["mountPath"] not in there)


def pod_findings(pod: Pod) -> Iterator[Finding]:
    """Compare a pod with what the shim needs in it: the annotation with the text, and the volume."""
    at = pod.at("spec", "volumes")
    own = [(index, one) for index, one in entries(pod.spec, "volumes", pod.spec_path) if one.get("name") == VOLUME]
    missing: list[str] = []
    fixes: list[Fix] = []
    if not own:
        missing.append(f"volume {VOLUME}")
        fixes.append(Fix(at, [volume()]))
    elif own[0][1] != volume():
        message = f"a volume named {VOLUME} hides the memory shim, which needs that name; rename the volume"
        yield Finding((*at, own[0][0]), message)
    there = pod.annotations.get(CODE)
    if not isinstance(there, str) or sha256(there) not in _digests():
        missing.append(f"annotation {CODE}")
        fixes.append(Fix(pod.at("metadata", "annotations"), {CODE: code()}))
    if missing:
        message = (
            f"the pod lacks {' and '.join(missing)} of the memory shim; Slicewarden's mutating webhook did not run, or "
            "another webhook undid its changes"
        )
        yield Finding(pod.at("spec"), message, tuple(fixes), parts=tuple(missing))
