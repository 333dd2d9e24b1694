"""Snapshots that are joined of parts, as those of a live cluster are."""

from webhook.api.fields import group_kind
from webhook.cli.inputs import load_facts
from webhook.facts.kinds.pod import MAX_NAMES
from webhook.facts.snapshot import Facts, joined

SAMPLE = "webhook/sample/facts.yaml"


def test_facts_of_each_kind_joined_are_the_facts_of_all() -> None:
    objects = [each.value for each in load_facts([SAMPLE])]
    objects += [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{n}"}, "spec": POD_SPEC} for n in range(2)]
    kinds = list(dict.fromkeys(map(group_kind, objects)))
    assert len(kinds) > 2
    whole = Facts.of(objects)
    parts = [Facts.of(each for each in objects if group_kind(each) == kind) for kind in kinds]
    for name in (
        "namespaces",
        "nodes",
        "config_maps",
        "installations",
        "holders",
        "device_classes",
        "claimed",
        "devices",
    ):
        assert getattr(joined(parts), name) == getattr(whole, name), name
    assert whole.holders


POD_SPEC = {"nodeName": "n", "containers": [{"resources": {"limits": {"nvidia.com/gpu": 1}}}]}


def test_pods_of_one_node_that_ask_for_the_same_share_what_is_kept() -> None:
    from webhook.facts.kinds import kept

    pods = [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": POD_SPEC} for name in "ab"]
    one, other = map(kept, pods)
    assert one is not None
    assert other is not None
    assert one["spec"] is other["spec"]
    assert Facts.of([one]).holders == Facts.of(pods[:1]).holders


def test_a_pod_keeps_few_names_of_resources_however_many_it_requests() -> None:
    """A kubelet forgets names that its node lacks. Each such pod took 1.2 MiB in each worker, also after its end."""
    for prefix in ("nvidia.com/hostdev", "nvidia.com/gpu-"):
        limits = {f"{prefix}{number}": "1" for number in range(5_000)} | {"nvidia.com/gpu": "1"}
        spec = {"nodeName": "n", "containers": [{"name": "a", "resources": {"limits": limits}}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "b"}, "spec": spec}
        (holder,) = Facts.of([pod]).holders
        assert len(holder.asks) == MAX_NAMES
        assert ("nvidia.com/gpu" in holder.asks) is (prefix == "nvidia.com/hostdev")
