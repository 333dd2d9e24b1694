"""Reads the facts that the policies of a replica need, with one watch for all of them."""

from collections.abc import Iterable, Sequence

from webhook.api.resources import Resource
from webhook.cluster import watch
from webhook.policy.model import Policy


class WatchedNeeds:
    """Has a watch read the facts that policies need, and reports those that have not been read."""

    def __init__(self, watched: watch.Cluster) -> None:
        self._watched = watched

    def follow(self, wanted: Sequence[Policy]) -> None:
        """Read the facts that these policies need, and stop reading all others."""
        self._watched.follow(resource for policy in wanted for resource in _needed(policy))

    def lacks(self, policy: Policy) -> str:
        """Name the facts of a policy that have not been read yet; empty if none is missing."""
        return _named(self._watched.lacks(_needed(policy)))

    def forbidden(self, policy: Policy) -> str:
        """Name the missing facts of a policy that the API server refuses to give; empty if none is refused."""
        return _named(self._watched.forbidden(_needed(policy)))


def _named(resources: Iterable[Resource]) -> str:
    return ", ".join(f"{each.plural} of {each.namespace}" if each.namespace else each.plural for each in resources)


def _needed(policy: Policy) -> tuple[Resource, ...]:
    return (*watch.resources(policy), *watch.inside(watch.namespaces(policy)))
