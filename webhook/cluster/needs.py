"""What the policies of a replica need of a cluster, read by one watch for all of them."""

from collections.abc import Sequence

from webhook.api.resources import Resource
from webhook.cluster import watch
from webhook.policy.model import Policy


class WatchedNeeds:
    """Has a watch read what policies need, and says what it has of it."""

    def __init__(self, watched: watch.Cluster) -> None:
        self._watched = watched

    def follow(self, wanted: Sequence[Policy]) -> None:
        """Read what these policies need, and no longer what only others needed."""
        self._watched.follow(resource for policy in wanted for resource in _needed(policy))

    def lacks(self, policy: Policy) -> str:
        """Return what of a policy's facts is not read yet; empty if all is."""
        lacking = self._watched.lacks(_needed(policy))
        return ", ".join(f"{each.plural} of {each.namespace}" if each.namespace else each.plural for each in lacking)


def _needed(policy: Policy) -> tuple[Resource, ...]:
    return (*watch.resources(policy), *watch.inside(watch.namespaces(policy)))
