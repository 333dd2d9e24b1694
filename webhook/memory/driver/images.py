"""Judges the driver's limits that an image sets: containerd puts its variables before those of the pod.

NVIDIA's hook takes the first entry of a name, so the image's value is the limit until the agent corrects it
(docs/evidence/toolkit-memory-limits.md). Only a list of images shows these values, and only administrators write it.
"""

from collections.abc import Iterable
from typing import NamedTuple

from webhook.facts import images
from webhook.facts.snapshot import Facts
from webhook.memory.driver.variables import HARD
from webhook.memory.steps import natural
from webhook.text.words import shown

UNTIL = "so it may be the container's limit until the agent's next look"

LIST = "slicewarden facts --images"


class ImageLimit(NamedTuple):
    """A reason why an image may set a wider limit than a container's slice; `known` if a list of images shows it."""

    why: str
    known: bool


def judge(facts: Facts, namespaces: Iterable[str], reference: str, most: int) -> ImageLimit | None:
    """Compare an image's limits with the MiB of a container. Returns None if a list shows that they are not wider.

    A tag can move to another image after the list was written. So only an image that the pod names by its digest is
    known to set nothing wider. A value that is no number does not count as within the MiB either.
    """
    found = images.find(facts, namespaces, reference)
    wide = [(name, value) for name, value in found.limits or () if name in HARD and not _within(value, most)]
    if wide:
        name, value = wide[0]
        said = f"its image sets {name} to {shown(value)}, and the slice has {most} MiB"
        return ImageLimit(f"{said}; the image's value goes before the pod's, {UNTIL}; use an image without it", True)
    if found.limits is None:
        way = "name the image by its digest, and ask an administrator to list it"
        why = found.why or "no list of images shows which limit of the driver its image sets"
        return ImageLimit(f"{why}; the image's value would go before the pod's, {UNTIL}; {way} ({LIST})", False)
    if not images.digest(reference):
        why = "its image is named by a tag, which can move to one with another limit"
        return ImageLimit(f"{why}; that limit would go before the pod's, {UNTIL}; name the image by its digest", False)
    return None


def _within(value: str, most: int) -> bool:
    return natural(value) and 0 < int(value) <= most
