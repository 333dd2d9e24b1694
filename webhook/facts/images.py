"""Finds which variables each image sets: reads the output of registry tools, and the ConfigMap that stores it.

The variables are PYTHONPATH and the limits of NVIDIA's driver. A list of images is a ConfigMap, read from files and
watched in a cluster like those of the device plugin, so it needs no further object, permission or watch. Its texts are
JSON: image references, each with its variables, or with its PYTHONPATH only, as lists were written before the limits
were read.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from webhook.api.lenient import mapping, sequence, string
from webhook.catalog.device_variables import DRIVER_LIMITS, MEMORY_LIMIT
from webhook.facts.kinds.config_map import MAX_TEXT
from webhook.facts.snapshot import Facts
from webhook.model import Object

LIST = "slicewarden-images"
"""The name of the ConfigMaps. They are read in the policy's sharing namespaces."""

MAX_LIST = 1000 * 1024
"""Characters of all texts of a ConfigMap. The API server takes 1 MiB (kubernetes pkg/apis/core/validation)."""

LONGEST = 4096
"""Characters of the longest value that is read."""

PYTHONPATH = "PYTHONPATH"

Limits = tuple[tuple[str, str], ...]
"""The variables of DRIVER_LIMITS that an image sets, with their values, in the order of DRIVER_LIMITS."""


class ImageVariables(NamedTuple):
    """The PYTHONPATH (`path`) that an image sets, empty for none, and the limits of NVIDIA's driver that it sets.

    `limits` is None if the list does not record them.
    """

    path: str
    limits: Limits | None = None

    @property
    def value(self) -> str | dict[str, str]:
        """The variables, in the form in which a list stores them."""
        return self.path if self.limits is None else {PYTHONPATH: self.path, **dict(self.limits)}


class ImageSetting(NamedTuple):
    """The variables that an image sets. Each is None if unknown; then `why` says why the lists do not show it."""

    path: str | None
    why: str = ""
    limits: Limits | None = None


def is_path(value: object) -> bool:
    """Whether a value can be that of PYTHONPATH: a printable text, empty if the image does not set the variable."""
    return isinstance(value, str) and len(value) <= LONGEST and value.isprintable()


# References

_NAME = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_DOMAIN = r"(?:[a-zA-Z0-9.-]+|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_REFERENCE = re.compile(
    rf"(?:(?P<domain>{_DOMAIN})/)?(?P<name>{_NAME}(?:/{_NAME})*)(?::(?P<tag>\w[\w.-]{{0,127}}))?"
    r"(?:@(?P<digest>[a-z0-9]+(?:[+._-][a-z0-9]+)*:[0-9a-f]{32,}))?",
    re.ASCII,
)


def reference(text: str) -> str:
    """Return the full form of an image reference, as registries use it; empty for a text that is no reference.

    Without a registry it is Docker Hub's, and without a tag `latest`. A tag next to a digest is dropped, since runtimes
    ignore it (distribution/reference normalize.go, regexp.go).
    """
    if len(text) > MAX_REFERENCE:
        return ""
    domain, slash, rest = text.partition("/")
    if (slash and not (domain == "localhost" or domain.lower() != domain or set(domain) & set(".:"))) or not slash:
        domain, rest = "", text
    if domain in ("", "docker.io", "index.docker.io"):
        domain, rest = "docker.io", rest if "/" in rest else f"library/{rest}"
    match = _REFERENCE.fullmatch(f"{domain}/{rest}")
    if match is None:
        return ""
    name = f"{domain}/{match['name']}"
    return f"{name}@{match['digest']}" if match["digest"] else f"{name}:{match['tag'] or 'latest'}"


MAX_REFERENCE = 1024
"""Characters of the longest reference that is read; registries allow 255 for a name, 128 for a tag."""


def digest(text: str) -> str:
    """Return the digest in an image reference, which always names the same content; empty if it has none."""
    return reference(text).partition("@")[2]


def _key(full: str) -> str:
    """Return the key of an image: its digest, which is the same in every registry, or its name and tag."""
    return full.partition("@")[2] or full


# Looking an image up


def find(facts: Facts, namespaces: Iterable[str], image: str) -> ImageSetting:
    """Find the variables that an image sets, in the lists of some namespaces. `image` is its reference in a pod.

    If a list cannot be read, it might have named the image. So an image that no other list names then counts as
    unknown.
    """
    full, why = reference(image), ""
    if not full:
        return ImageSetting(None)
    found = set[ImageVariables]()
    for namespace in namespaces:
        for text in facts.config_maps.get((namespace, LIST), {}).values():
            known = _known(text or "")
            if known is None:
                why = f"ConfigMap {namespace}/{LIST} cannot be read as a list of images"
            elif (variables := known.get(_key(full))) is not None:
                found.add(variables)
    if not found:
        return ImageSetting(None, why)
    paths, limits = {each.path for each in found}, {each.limits for each in found if each.limits is not None}
    twice = [name for name, values in ((PYTHONPATH, paths), (MEMORY_LIMIT, limits)) if len(values) > 1]
    return ImageSetting(
        paths.pop() if len(paths) == 1 else None,
        f"the lists of images give it more than one {' and '.join(twice)}" if twice else "",
        limits.pop() if len(limits) == 1 else None,
    )


def record_limits(facts: Facts, namespaces: Iterable[str]) -> bool:
    """Return whether any list of images in these namespaces records the driver limits that images set."""
    texts = [text for name in namespaces for text in facts.config_maps.get((name, LIST), {}).values()]
    return any(each.limits is not None for text in texts for each in (_known(text or "") or {}).values())


@lru_cache(maxsize=64)  # a snapshot keeps the texts of the one before, so each is read once
def _known(text: str) -> Mapping[str, ImageVariables] | None:
    """Read one text of a list: the variables of each image by its key. None if any part of it cannot be read."""
    try:
        pairs = json.loads(text, object_pairs_hook=list)
    except (ValueError, RecursionError):
        return None
    known: dict[str, ImageVariables] = {}
    for pair in pairs if isinstance(pairs, list) else [None]:
        if not isinstance(pair, tuple) or not (variables := _listed(pair[1])) or not (full := reference(pair[0])):
            return None
        if known.setdefault(_key(full), variables) != variables:
            return None
    return known


def _listed(value: Any) -> ImageVariables | None:
    """Read the variables of one image in a list: its PYTHONPATH, or pairs of names and values."""
    if is_path(value):
        return ImageVariables(value)
    pairs = value if isinstance(value, list) and all(isinstance(pair, tuple) for pair in value) else []
    own = dict(pairs)
    known = len(own) == len(pairs) and PYTHONPATH in own and own.keys() <= _READ
    if not known or not all(map(is_path, own.values())):
        return None
    return ImageVariables(own[PYTHONPATH], _limits(own))


_READ = frozenset({PYTHONPATH, *DRIVER_LIMITS})


def _limits(own: Mapping[str, str]) -> Limits:
    return tuple((name, own[name]) for name in DRIVER_LIMITS if name in own)


# Reading the output of tools


class Unclear(ValueError):
    """The output of a tool does not say which image sets which variables."""


def printed(value: Any, named: str = "") -> Iterator[tuple[str, ImageVariables]]:
    """Yield the full references that a tool's output gives to an image, each with its variables. Raises Unclear.

    `skopeo inspect` prints the name and the digest; `docker image inspect` and podman's command print tags and digests.
    `skopeo inspect --config` and `crane config` print neither, so they need the reference `named`.
    """
    if isinstance(value, list):
        if named and len(value) > 1:
            raise Unclear("has several images: remove the reference, which can name only one")
        for one in value:
            yield from printed(one, named)
        return
    item = mapping(value)
    if "Env" in item:  # skopeo cmd/skopeo/inspect/output.go
        variables, names = item["Env"], [f"{string(item.get('Name'))}@{string(item.get('Digest'))}"]
        if not named and not reference(names[0]):
            raise Unclear("has no Name and Digest; name the image, as in --images REFERENCE=FILE")
    elif "Config" in item:  # moby api/types/image/image_inspect.go
        variables = mapping(item["Config"]).get("Env")
        names = [string(one) for key in ("RepoTags", "RepoDigests") for one in sequence(item.get(key))]
    elif {"architecture", "os", "rootfs"} <= item.keys():  # opencontainers/image-spec config.md
        variables, names = mapping(item.get("config")).get("Env"), []
    else:
        raise Unclear("is not what `skopeo inspect`, `crane config` or `docker image inspect` prints")
    full = [one for one in map(reference, (named, *names)) if one]
    if not full:
        raise Unclear("does not name its image; name it, as in --images REFERENCE=FILE")
    own = _set(variables)
    for one in dict.fromkeys(full):
        yield one, own


def _set(variables: Any) -> ImageVariables:
    """Read a list of NAME=VALUE, which is null if an image sets no variables. Raises Unclear.

    An entry without `=` sets an empty value.
    """
    if not (variables is None or (isinstance(variables, list) and all(isinstance(one, str) for one in variables))):
        raise Unclear("has an Env that is no list of texts")
    own: dict[str, str] = {}
    for name, _, text in (one.partition("=") for one in variables or ()):
        if name in _READ:
            if own.setdefault(name, text) != text:
                raise Unclear(f"sets {name} twice")
            if not is_path(text):
                raise Unclear(f"sets a {name} that cannot be read")
    return ImageVariables(own.get(PYTHONPATH, ""), _limits(own))


def config_map(known: Iterable[tuple[str, ImageVariables]], namespace: str) -> Object:
    """Write full references and their variables as a ConfigMap. Raises Unclear if two disagree, or there are too many.

    Each text is short enough to be kept as a fact. Each image has a line of its own, so that a diff shows what changed.
    """
    listed: dict[str, ImageVariables] = {}
    said: dict[str, ImageVariables] = {}
    for full, own in known:
        if (before := said.setdefault(_key(full), own)) != own:
            name = PYTHONPATH if before.path != own.path else MEMORY_LIMIT
            raise Unclear(f"{full} has one {name} in one file and another in the next")
        listed[full] = own
    texts: list[list[str]] = [[]]
    size, total = 0, 0
    for full in sorted(listed):
        line = f"{json.dumps(full)}: {json.dumps(listed[full].value)}"
        size, total = size + len(line) + 2, total + len(line) + 2
        if size > MAX_TEXT - len("{\n\n}\n"):
            texts.append([])
            size = len(line) + 2
        texts[-1].append(line)
    if total > MAX_LIST:
        raise Unclear(f"more images than one ConfigMap holds ({total} characters, at most {MAX_LIST}); leave some out")
    data = {f"images-{index}.json": "{\n" + ",\n".join(lines) + "\n}\n" for index, lines in enumerate(texts)}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": LIST, "namespace": namespace},
        "data": data,
    }
