"""A sharing configuration leaves fewer slices than running pods hold.

A running pod keeps its slice. With fewer replicas, or with another key on a node, GPUs stay as crowded as they were,
the node offers less than is in use, and no new pod starts there. The message says how many pods and nodes are
concerned. The rule only warns, because lowering replicas is often right.

Way out: lower the replicas after the pods have ended, or delete some pods first.
"""

from collections.abc import Iterable, Iterator

from webhook.api.objects import Labelled
from webhook.api.selectors import integer
from webhook.deviceplugin.config import Plugin
from webhook.deviceplugin.configmaps import changed, held
from webhook.deviceplugin.review import ConfigMapReview
from webhook.deviceplugin.usage import SHARED, config_of, entries, holders, reaches, some
from webhook.facts.kinds.node import CONFIG_LABEL, Node
from webhook.facts.snapshot import Facts
from webhook.model import Finding
from webhook.review import Review
from webhook.text.words import several

SINCE = "0.1"


def check(review: ConfigMapReview | Review[Labelled]) -> Iterator[Finding]:
    """Flag nodes where running pods use more slices than the changed configuration would leave."""
    policy, facts = review.policy, review.facts
    if isinstance(review, ConfigMapReview):
        for path, now in changed(review.subject):
            nodes = review.users.get(str(path[-1]))
            for message in _exceeded(held(now), nodes, facts) if nodes else ():
                yield Finding(path, message, advice=True)
        return
    subject = review.subject
    if subject.kind == "Node" and subject.old is not None:
        label, before = (labels.get(CONFIG_LABEL) for labels in (subject.labels, subject.old.labels))
        node = Node(subject.name, subject.labels)
        for each in facts.installations if label != before else ():
            if each.chosen and reaches(each, node):
                _, key, config = config_of(each, label, policy, facts)
                for message in _exceeded(held(config or ""), [node], facts) if config is not None or not key else ():
                    yield Finding(("metadata", "labels", CONFIG_LABEL), message, advice=True)


def _exceeded(plugin: Plugin, nodes: Iterable[Node], facts: Facts) -> Iterator[str]:
    shared = {resource: replicas for resource, (_, replicas) in entries(plugin.section).items()}
    crowded: list[Node] = []
    pods = slices = room = 0
    for node in nodes:
        here = holders(facts).get(node.name, ())
        taken: dict[str, int] = {}
        for each in here:
            for resource, amount in each.asks.items():
                bare = resource.removesuffix(SHARED)
                taken[bare] = taken.get(bare, 0) + amount
        for resource, amount in taken.items():
            cards = integer(node.labels.get(f"{resource}.count", ""))
            if cards is not None and amount > (left := cards * shared.get(resource, 1)):
                crowded.append(node)
                pods += sum(bool({resource, resource + SHARED} & each.asks.keys()) for each in here)
                slices, room = slices + amount, room + left
    if crowded:
        yield (
            f"{several(pods, 'pod')} on {some(crowded)} hold {slices} slices, and only {room} would be left; wait "
            f"until "
            "pods end, or delete some first"
        )
