"""A sharing configuration is valid for the device plugin, but breaks the policy.

`failRequestsGreaterThanOne` must not be false: otherwise a pod gets several slices, which takes turns from other pods
and gains nothing. Under time-slicing false is also the default, so a configuration without the key is only warned
about: most published ones lack it, NVIDIA's own examples too (k8s-device-plugin README.md).

The number of replicas is limited, for all cards (to 8, where the policy says nothing), by pool or by product: every
process keeps a context on the card, and with too many nothing is left to work with. No policy may allow more than
65,536: the kubelet takes no message over 4 MiB from a device plugin (its client sets no size, so grpc-go's default
holds: kubernetes pkg/kubelet/cm/devicemanager/plugin/v1beta1/client.go, grpc-go clientconn.go), and each replica takes
60 bytes of it.

A policy may also set the least memory of a slice. Names and MPS must match the policy's pools: on nodes of whole GPUs
nothing may be shared. The rule also refuses what the hardware cannot do: time-slicing before Pascal, which does not
preempt; more clients than MPS takes (cmd/mps-control-daemon/mps/device.go); MPS on MIG devices; a card in MIG mode as a
whole, which would be labelled as if it had no replicas (internal/lm/mig-strategy.go).

A node's choice of a key by its label is judged like the configuration it chooses, and so is a ClusterPolicy that names
another ConfigMap.

Way out: set what the message names in the section itself, or give the nodes it names another key.
"""

from collections.abc import Iterable, Iterator

from webhook.api.objects import ClusterPolicy, Labelled
from webhook.api.selectors import integer
from webhook.deviceplugin.config import Plugin
from webhook.deviceplugin.configmaps import held
from webhook.deviceplugin.review import ConfigMapReview
from webhook.deviceplugin.sections import Section
from webhook.deviceplugin.usage import (
    GPU,
    MIG,
    MPS,
    TIME_SLICING,
    SharedResource,
    alike,
    config_of,
    entries,
    mig_strategies,
    partitioned,
    pool_after,
    reaches,
    renamed,
    shares,
    some,
)
from webhook.facts.installations import PluginInstallation
from webhook.facts.kinds.config_map import MAX_TEXT
from webhook.facts.kinds.node import CONFIG_LABEL, Node
from webhook.facts.snapshot import Facts
from webhook.memory.budget import budget
from webhook.model import Finding, Path, dotted
from webhook.policy.model import FORBIDDEN, REQUIRED, Card, Policy, Pool
from webhook.review import Review
from webhook.text.words import shown

SINCE = "0.1"

MPS_CLIENTS, MPS_CLIENTS_BEFORE_TURING = 48, 16


def check(review: ConfigMapReview | Review[Labelled | ClusterPolicy]) -> Iterator[Finding]:
    """Flag settings that break the policy or do not fit the nodes using them, and objects that choose such settings."""
    if isinstance(review, ConfigMapReview):
        yield from _configured(review)
    elif isinstance(review.subject, Labelled):
        yield from _chosen(review.subject, review.policy, review.facts)
    else:
        yield from _named(review.subject, review.policy, review.facts)


def _configured(review: ConfigMapReview) -> Iterator[Finding]:
    for config in review.configs:
        for inner, message in _unsafe(config.plugin, review.policy):
            yield config.finding(inner, message)
        for inner, message in _left_out(config.plugin):
            yield config.finding(inner, message, advice=True)
        nodes = review.users.get(config.key, [])
        for inner, what, way, whom in _unfit(config.plugin, nodes, review.readers, review.policy):
            yield config.finding(inner, f"{what}, on {some(whom)}; {way}")


def _named(subject: ClusterPolicy, policy: Policy, facts: Facts) -> Iterator[Finding]:
    """Judge a ConfigMap that is newly named, and so was not judged before."""
    if subject.old is not None and subject.old.config_map == subject.config_map:
        return
    for namespace in policy.limits.namespaces:
        for key, text in facts.config_maps.get((namespace, subject.config_map), {}).items():
            where = shown(f"{key} of ConfigMap {namespace}/{subject.config_map}", quotes=False)
            if text is None:
                yield Finding(
                    (*subject.base, "name"),
                    f"{where}: is no UTF-8, or over {MAX_TEXT} characters, and nobody judged it; shorten it",
                )
            for inner, message in _unsafe(held(text), policy) if text else ():
                yield Finding((*subject.base, "name"), f"{where}: {dotted(inner)}: {message}")


# By the text alone


def _unsafe(plugin: Plugin, policy: Policy) -> Iterator[tuple[Path, str]]:
    limits = policy.limits
    for section in (plugin.time_slicing, plugin.mps):
        if section is None:
            continue
        refuses = section.fail_requests
        if refuses is not None and refuses.value is False:
            yield (
                refuses.path,
                "failRequestsGreaterThanOne is false, so a pod may request 2 slices and gain nothing; set it to true",
            )
        yield from _misnames(section, policy)
        for entry in section.entries:
            if entry.replicas and entry.replicas.value > _ceiling(policy):
                yield (
                    entry.replicas.path,
                    f"is {entry.replicas.value}, and policy {policy.name} allows {_ceiling(policy)} at most; lower it",
                )
            elif entry.replicas and section is plugin.mps and entry.replicas.value > MPS_CLIENTS:
                yield entry.replicas.path, f"is {entry.replicas.value}, and MPS takes {MPS_CLIENTS} at most; lower it"
            if section is plugin.mps and entry.name and entry.name.value.startswith(MIG):
                yield entry.name.path, "is a MIG device, which MPS cannot share; remove the entry, or use timeSlicing"
    if plugin.strategy == MPS and plugin.mps and limits.mps == FORBIDDEN:
        yield plugin.mps.path, f"policy {policy.name} forbids MPS; use timeSlicing, or share nothing"


def _left_out(plugin: Plugin) -> Iterator[tuple[Path, str]]:
    """Say what NVIDIA's default allows if a key is missing. Under MPS the default is true."""
    section = plugin.time_slicing
    if section is not None and (section.fail_requests is None or section.fail_requests.value is None):
        yield (
            (*section.path, "failRequestsGreaterThanOne"),
            "failRequestsGreaterThanOne is missing, and NVIDIA's default (false) lets a pod request 2 slices and gain "
            "nothing; add it with the value true",
        )


def _misnames(section: Section, policy: Policy) -> Iterator[tuple[Path, str]]:
    given, wanted = section.rename_by_default, policy.limits.rename_by_default
    path = given.path if given else (*section.path, "renameByDefault")
    said = f"is {shown(given.value)}" if given else "is missing"
    if wanted == REQUIRED and not renamed(section):
        yield path, f"{said}, and policy {policy.name} wants shared resources renamed; set it to true"
    elif wanted == FORBIDDEN and renamed(section):
        yield path, f"{said}, and policy {policy.name} wants shared resources to keep their names; remove it"


def _ceiling(policy: Policy) -> int:
    """The maximum number of replicas of any card."""
    pools = (pool.max_replicas for pool in policy.pools if pool.max_replicas)
    return max((policy.limits.max_replicas, *policy.limits.products.values(), *pools))


# On the nodes that use it

Unfit = tuple[Path, str, str, list[Node]]
"""Where, what is wrong, the way out, and on which nodes."""


def _unfit(
    plugin: Plugin, nodes: Iterable[Node], reading: Iterable[PluginInstallation], policy: Policy
) -> Iterator[Unfit]:
    strategies = mig_strategies(plugin, reading)
    found: dict[tuple[Path, str, str], list[Node]] = {}
    for group in alike(nodes, policy):
        for path, what, way in _unfit_on(plugin, group[0], strategies, policy):
            found.setdefault((path, what, way), []).extend(group)
    for (path, what, way), whom in found.items():
        yield path, what, way, whom


def _unfit_on(plugin: Plugin, node: Node, mig: set[str | None], policy: Policy) -> Iterator[tuple[Path, str, str]]:
    section = plugin.section
    if section is None:
        return
    if plugin.strategy == MPS and "mixed" in mig and plugin.mig_strategy.value != "mixed":
        yield section.path, "cannot be with MIG_STRATEGY=mixed, which is set", "use timeSlicing, or another strategy"
    entry, _ = entries(section).get(GPU, (None, 0))
    if entry is not None and partitioned(node) and plugin.strategy == TIME_SLICING and "none" in mig:
        yield (
            entry.path,
            "shares whole cards in MIG mode, which get labels that say 0 replicas and nothing shared",
            "set the MIG strategy to single or mixed, or switch MIG off",
        )
    if entry is not None and partitioned(node) and plugin.strategy == MPS and "single" in mig:
        yield entry.path, "is of MIG devices, which MPS cannot share", "use timeSlicing"
    pool = pool_after(node, plugin, policy)
    for share in shares(plugin, node):
        yield from _unfit_share(share, plugin.strategy, node, pool, policy)


def _unfit_share(
    share: SharedResource, strategy: str, node: Node, pool: Pool | None, policy: Policy
) -> Iterator[tuple[Path, str, str]]:
    path, replicas = share.entry.replicas.path if share.entry.replicas else share.entry.path, share.replicas
    product = node.labels.get(f"{share.resource}.product", "")
    own = policy.limits.of_product(product)
    limits = [limit for limit in (own, pool.max_replicas if pool else None) if limit is not None]
    limit = min(limits, default=policy.limits.max_replicas)
    if limit < replicas <= _ceiling(policy):
        of = (
            f" for {shown(product, quotes=False)}"
            if own == limit
            else f" in pool {pool.name}"
            if limits and pool
            else ""
        )
        yield path, f"is {replicas}, and policy {policy.name} allows {limit} at most{of}", "lower it"
    if pool is not None and pool.sharing != strategy:
        kind = "whole" if pool.sharing in ("none", "mig") else f"by {pool.sharing}"
        way = (
            "give them a key that shares nothing"
            if kind == "whole"
            else f"use {'mps' if pool.sharing == MPS else 'timeSlicing'}"
        )
        yield share.entry.path, f"shares by {strategy} what pool {pool.name} hands out {kind}", way
    if share.memory and policy.limits.min_slice:
        driver = pool is not None and pool.driver_limits
        reserve = budget(Card(product, share.memory, replicas), policy, driver=driver).reserve
        if (left := (share.memory - reserve) // replicas) < policy.limits.min_slice:
            yield (
                path,
                f"is {replicas}, which leaves {left} MiB a slice of {share.memory}, less {reserve} in reserve, and "
                f"policy {policy.name} wants {policy.limits.min_slice}",
                "lower it",
            )
    capability = tuple(integer(node.labels.get(f"{GPU}.compute.{part}", "")) for part in ("major", "minor"))
    major, minor = capability[0], capability[1] or 0
    if major is None:
        return
    if strategy == TIME_SLICING and major < 6:
        yield (
            share.entry.path,
            f"GPUs before Pascal (compute capability {major}.{minor}) cannot be preempted",
            "remove it",
        )
    if strategy == MPS and (major, minor) < (7, 5) and MPS_CLIENTS_BEFORE_TURING < replicas <= MPS_CLIENTS:
        most = MPS_CLIENTS_BEFORE_TURING
        yield path, f"is {replicas}, and MPS takes {most} at most before compute capability 7.5", "lower it"


# Nodes that choose


def _chosen(subject: Labelled, policy: Policy, facts: Facts) -> Iterator[Finding]:
    if subject.kind != "Node":
        return
    label = subject.labels.get(CONFIG_LABEL)
    known = next((each.resources for each in facts.nodes if each.name == subject.name), {})
    node = Node(subject.name, subject.labels, known)
    for each in facts.installations:
        if not (each.chosen and reaches(each, node)):
            continue
        namespace, key, text = config_of(each, label, policy, facts)
        for inner, what, way, _ in _unfit(held(text), [node], [each], policy) if text else ():
            by = shown(key) if label else f"no value, so {shown(key)} by default"
            yield Finding(
                ("metadata", "labels", CONFIG_LABEL),
                f"{by} of ConfigMap {namespace}/{each.config_map}: {dotted(inner)}: {what}; {way}",
            )
