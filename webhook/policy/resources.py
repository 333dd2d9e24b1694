"""The names of extended resources, and those among them that are GPUs."""

from collections.abc import Iterable
from functools import lru_cache

from webhook.catalog import gpu_requests
from webhook.catalog.names import Names


class ResourceNames:
    """Names of extended resources. A name that ends in `*` matches every resource with that prefix.

    It matches renamed shares only with `shares`: `nvidia.com/mig-1g.10gb.shared` is a slice of a MIG device, and a pool
    of whole MIG devices does not offer it. It matches resources that give all cards of a node only with `all_cards`.
    """

    def __init__(self, patterns: Iterable[str], *, shares: bool, all_cards: bool = False) -> None:
        self.patterns = tuple(patterns)
        self.shares = shares
        self.exact = frozenset(p for p in self.patterns if not p.endswith("*"))
        prefixes = tuple(p[:-1] for p in self.patterns if p.endswith("*"))
        cards = () if all_cards else gpu_requests.ALL_CARDS
        self.left_out = tuple(name for name in cards if name.startswith(prefixes) and name not in self.exact)
        """Names that have a prefix of the set, but do not belong to it."""
        self.wide = _prefixes(prefixes, shares, self.left_out)
        """The names that are not `exact`. Most pools of a policy share one such set."""

    def __contains__(self, resource: str) -> bool:
        return resource in self.exact or resource in self.wide


class ResourcePrefixes:
    """A set of names: all with one of some prefixes, without those `left_out`; renamed shares only if it `shares`.

    Sets are compared by identity, which costs nothing: `ResourceNames` makes equal ones only once.
    """

    def __init__(self, prefixes: tuple[str, ...], shares: bool, left_out: tuple[str, ...]) -> None:
        self.prefixes, self._shares, self._left_out = prefixes, shares, left_out

    def __contains__(self, resource: str) -> bool:
        if not resource.startswith(self.prefixes) or resource in self._left_out:
            return False
        return self._shares or not resource.endswith(".shared")


_prefixes = lru_cache(maxsize=4096)(ResourcePrefixes)


class GPUResources:
    """The extended resources that are GPUs or parts of GPUs.

    Every name in NVIDIA's domain is one of them, except the `others`. A name in another domain is one of them if a pool
    offers it or the policy lists it.
    """

    def __init__(self, named: Iterable[str], others: Names) -> None:
        self.named, self.others = ResourceNames(named, shares=True, all_cards=True), others
        self.patterns = (gpu_requests.NVIDIA_RESOURCES, *self.named.patterns)

    def __contains__(self, resource: str) -> bool:
        if resource in self.named:
            return not resource.startswith(gpu_requests.IMPLICIT) or resource not in self.others
        return resource.startswith(_NVIDIAS) and resource not in self.others


_NVIDIAS = gpu_requests.NVIDIA_RESOURCES.removesuffix("*")
