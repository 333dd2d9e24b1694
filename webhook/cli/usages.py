"""Reads the usage of nodes for `usage` and `idle`: from their agents through the API server, or from files."""

import sqlite3
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from webhook.api.lenient import mapping, mappings, string
from webhook.api.resources import Resource
from webhook.cli import options
from webhook.model import Problem, Unusable
from webhook.reports.usage_report import UnseenNode
from webhook.usage import document, store
from webhook.usage.account import KEPT_HOURS
from webhook.usage.document import MOST_BYTES, NodeUsage

if TYPE_CHECKING:
    from webhook.cluster.client import Api

NAMESPACE = "slicewarden-node"
"""The namespace of the agents, in the manifests and the chart."""

LABELS = "app.kubernetes.io/name=slicewarden-node"

NODES = Resource("", "v1", "nodes", "Node", labels="nvidia.com/gpu.sharing-strategy in (time-slicing,mps)")
"""The nodes on which agents run (manifests/components/agent/daemonset.yaml)."""

AT_ONCE = 4
"""Agents that are asked at the same time."""

ANSWER_SECONDS = 20.0
"""Seconds that an agent may be silent."""

_SQLITE = b"SQLite format 3\0"

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class TimeSpan(click.ParamType[int]):
    """A time such as `30m`, `24h` or `7d`; the value is in seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Refuse another text, and a time above 35 days."""
        if isinstance(value, int):
            return value
        number, unit = str(value)[:-1], str(value)[-1:]
        seconds = int(number) * UNITS[unit] if _natural(number) and unit in UNITS else 0
        if not 0 < seconds <= KEPT_HOURS * 3600:
            self.fail(
                f"{value!r} is no time from 1s to {KEPT_HOURS // 24}d; write one such as 30m, 24h or 7d", param, ctx
            )
        return seconds


def _natural(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 7


def sources(function: options.Function) -> options.Function:
    """Add the options that say where the usage is read."""
    files = click.option(
        "--from",
        "files",
        multiple=True,
        type=options.PATH,
        metavar="FILE",
        help="a copy of a node's usage.sqlite, or an answer of an agent's /usage; repeatable; default: ask all agents",
    )
    return options.all_of(files, options.cluster)(function)


def read(
    files: Sequence[str], kubeconfig: str | None, context: str | None, hours: int | None
) -> tuple[list[NodeUsage], list[UnseenNode]]:
    """Read the usage of the last hours, None for all of a file, and name the nodes that could not be read.

    Raises Unusable.
    """
    if files:
        if kubeconfig or context:
            raise click.UsageError("--from needs no cluster: leave out --kubeconfig and --context")
        return [_file(Path(each), hours) for each in files], []
    from webhook.cluster import listing  # brings the client, which only a live cluster needs

    api = listing.connect(kubeconfig, context)
    return _cluster(api, hours or KEPT_HOURS)


def _file(path: Path, hours: int | None) -> NodeUsage:
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if data.startswith(_SQLITE):
            return document.of_file(*store.read_file(path, hours, document.MOST_ROWS), hours)
        return document.read(data)
    except OSError as error:
        raise Unusable((Problem(str(path), 0, error.strerror or str(error)),)) from error
    except (store.DamagedRecord, sqlite3.Error) as error:
        raise Unusable((Problem(str(path), 0, str(error)),)) from error


def _cluster(api: "Api", hours: int) -> tuple[list[NodeUsage], list[UnseenNode]]:
    from webhook.cluster import client, listing

    pods = Resource("", "v1", "pods", "Pod", namespace=NAMESPACE)
    try:
        agents = [pod for page in listing.pages(api, pods, labels=LABELS) for pod in page]
    except (client.StatusError, client.Unreachable) as error:
        raise Unusable((listing.unread(pods, error),)) from error
    by_node = {string(mapping(pod.get("spec")).get("nodeName")): pod for pod in agents}
    unseen = list[UnseenNode]()
    try:
        nodes = [
            string(node["metadata"]["name"]) for page in listing.pages(api, NODES, labels=NODES.labels) for node in page
        ]
        unseen += [UnseenNode(node, "no agent runs there") for node in nodes if node not in by_node]
    except (client.StatusError, client.Unreachable) as error:
        unseen.append(UnseenNode("(nodes)", f"nodes without an agent are not known: {error}"))
    by_node.pop("", None)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = [*pool.map(lambda item: _agent(api, item[0], item[1], hours), sorted(by_node.items()))]
    unseen += [each for each in answers if isinstance(each, UnseenNode)]
    return [each for each in answers if isinstance(each, NodeUsage)], unseen


def _agent(api: "Api", node: str, pod: Any, hours: int) -> NodeUsage | UnseenNode:
    """Ask the agent of a node through the API server, which checks the caller's right to `pods/proxy`."""
    from webhook.cluster import client

    name = string(mapping(pod.get("metadata")).get("name"))
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}:{_port(pod)}/proxy/usage"
    try:
        status, data = client.beginning(api, path, {"hours": hours}, MOST_BYTES + 1, silence=ANSWER_SECONDS)
    except client.Unreachable as error:
        return UnseenNode(node, str(error))
    if status != 200:
        return UnseenNode(node, f"HTTP {status}{HINTS.get(status, '')}")
    try:
        usage = document.read(data)
    except store.DamagedRecord as error:
        return UnseenNode(node, f"its agent's answer cannot be used: {error}")
    return usage if usage.node == node else UnseenNode(node, "its agent answers for another node")


HINTS = {
    403: ": you may not `get` pods/proxy in the namespace of the agents",
    404: ": does the agent run with --usage?",
    429: ": it was asked too often; try again in a few seconds",
    500: ": does a NetworkPolicy keep the API server from the agent?",
    502: ": does a NetworkPolicy keep the API server from the agent?",
    503: ": does a NetworkPolicy keep the API server from the agent?",
    504: ": does a NetworkPolicy keep the API server from the agent?",
}


def _port(pod: Any) -> int:
    for container in _containers(pod):
        for port in mappings(container.get("ports")):
            if port.get("name") == "health" and isinstance(port.get("containerPort"), int):
                return int(port["containerPort"])
    return 8080


def _containers(pod: Any) -> Iterator[Any]:
    yield from mappings(mapping(pod.get("spec")).get("containers"))


def unseen_lines(unseen: Sequence[UnseenNode]) -> list[str]:
    """Return a line for each node that could not be read."""
    return [f"not seen: {each.node}: {each.why}" for each in unseen]
