"""Compares the addresses of Git repositories, which are written in many ways."""

import os
import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from webhook.documents import files
from webhook.text.words import shown


def name_of(url: str) -> str:
    """Return the name of a Git repository without its owner, because the owner differs in a fork."""
    return re.split("[/:]", url.rstrip("/").removesuffix(".git"))[-1].lower()


class RepositoryPlace(NamedTuple):
    """The host of a Git repository, and its path there with the owner. Both are empty if they are not known."""

    host: str = ""
    path: str = ""


UNKNOWN = RepositoryPlace()
"""The place of a repository that no address shows."""


def place_of(url: str) -> RepositoryPlace:
    """Return the place of a Git repository, which is the same for each way to write the address.

    Hosts of Azure write the path by `_git`, or after `v3`, and Bitbucket's server after `scm`. Some hosts have another
    name for SSH.
    """
    scheme, is_url, rest = url.lower().partition("://")
    authority, _, path = rest.partition("/") if is_url else scheme.partition(":" if _SCP.match(scheme) else "/")
    host = authority.rpartition("@")[2].partition(":")[0]  # without a user and a port
    host, path = re.sub(r"^(?:www|ssh|altssh)\.", "", host), path.strip("/").removesuffix(".git")
    if found := _AZURE.fullmatch(host):
        parts = [found[1], *path.split("/")] if found[1] else path.split("/")
        parts = [part for part in parts if part and part not in ("v3", "defaultcollection")]
        if len(parts) == 3 and parts[1] == "_git":  # the project has the name of the repository
            parts[1] = parts[2]
        return RepositoryPlace("dev.azure.com", "/".join(part for part in parts if part != "_git"))
    if host not in _WITHOUT_SCM and (found := re.fullmatch(r"scm/([^/]+/[^/]+)", path)):
        return RepositoryPlace(host, found[1])
    return RepositoryPlace(host, path)


_SCP = re.compile("[^/]*:")
"""The start of an address such as `git@host:path`."""

_AZURE = re.compile(r"dev\.azure\.com|vs-ssh\.visualstudio\.com|([^.]+)\.visualstudio\.com")
"""The hosts of Azure DevOps; an older one has the name of the organization."""

_WITHOUT_SCM = ("github.com", "gitlab.com", "bitbucket.org")
"""Hosts where `scm` at the start of a path is an owner."""


def home(root: str, urls: Iterable[str], own: str) -> RepositoryPlace:
    """Return the place of the repository at a path, of the addresses that have its own name.

    It is that of its origin. If no address has that, because the repository is a fork, it is the most common one. It is
    empty if no address has the name.
    """
    counted = Counter(place_of(url) for url in urls if url and name_of(url) == own)
    place = place_of(origin(root))
    return place if place in counted else next((place for place, _ in counted.most_common(1)), UNKNOWN)


def is_namesake(url: str, own: str, place: RepositoryPlace) -> bool:
    """Whether an address belongs to another repository of the same name: with another owner or host than `place`."""
    unlike = (one != other and not _OPEN.search(one) for one, other in zip(place_of(url), place, strict=True))
    return bool(url and place.path) and name_of(url) == own and any(unlike)


_OPEN = re.compile(r"\{\{|\$\{")
"""The start of a parameter of Argo CD, and of a variable of Flux."""


def instead_of(url: str) -> str:
    """Return the words for an object that is judged by the files here, in place of those at an address."""
    return f"judged by the files here, though its source is {shown(url, quotes=False)}"


def known(root: str, urls: Iterable[str]) -> str:
    """Return the name of the repository at a path, whose objects deploy from some addresses.

    It is the name of its origin. If no object names the origin, it is the name in the address that objects name most
    often. An address is empty if no file shows it.
    """
    counted = Counter(map(name_of, urls))
    name = name_of(origin(root))
    if not counted or (name and name in counted):
        return name
    return counted.most_common(1)[0][0]


def origin(root: str) -> str:
    """Return the address of the origin of the repository at a path; empty if it has none."""
    try:
        config = files.contents(os.path.join(root, ".git", "config")).decode("utf-8", "replace")
    except (OSError, files.Unfit):
        return ""
    found = re.search(r'^\[remote "origin"\]\n(?:[ \t].*\n)*?[ \t]*url[ \t]*=[ \t]*(\S+)', config, re.MULTILINE)
    return found[1] if found else ""


def is_same(url: str, other: str) -> bool:
    """Whether two addresses are those of one repository, and known."""
    return bool(url and other) and place_of(url) == place_of(other)


def is_elsewhere(url: str, own: str) -> bool:
    """Whether an address belongs to a repository with another name. False if the address contains a parameter."""
    return bool(url) and "{{" not in url and name_of(url) != own
