"""Reads usage for `usage`, `idle`, `advise` and `top`: from the nodes' agents by the API server, or from files."""

import math
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from webhook.api.lenient import mapping, mappings, string
from webhook.api.resources import Resource
from webhook.cli import options
from webhook.model import Object, Problem, Unusable
from webhook.reports.usage_report import UNLISTED, UnseenNode
from webhook.usage import document, scraped, store
from webhook.usage.account import KEPT_HOURS
from webhook.usage.document import MOST_BYTES, NodeUsage
from webhook.usage.scraped import NodeScrape

if TYPE_CHECKING:
    from webhook.cluster.client import Api

Found = TypeVar("Found")
Item = TypeVar("Item")

NAMESPACE = "slicewarden-node"
"""The namespace of the agents, in the manifests and the chart."""

LABELS = "app.kubernetes.io/name=slicewarden-node"

NODES = Resource("", "v1", "nodes", "Node", labels="nvidia.com/gpu.sharing-strategy in (time-slicing,mps)")
"""The nodes on which agents run (manifests/components/agent/daemonset.yaml)."""

AT_ONCE = 4
"""Agents that are asked at the same time."""

ANSWER_SECONDS = 20.0
"""Seconds that an agent may be silent."""

LONGEST_SECONDS = 60.0
"""Seconds that an agent's whole answer may take."""

_SQLITE = b"SQLite format 3\0"

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class TimeSpan(click.ParamType[int]):
    """An option whose value is a time such as `30m`, `24h` or `7d`, converted to seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the seconds. Refuses a text of any other form, and a time above 35 days."""
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


STATUS = {
    "0": "success",
    "1": "a node could not be read",
    "2": "invalid arguments or files, or no cluster",
}
"""The exit statuses of commands that read agents."""

COPIES = "a copy of a node's usage.sqlite, or an answer of an agent's /usage"


def sources(copies: str = COPIES) -> Callable[[options.Function], options.Function]:
    """Add the options that say where the usage is read, and for which namespace.

    `copies` are the files for `--from`.
    """
    files = click.option(
        "--from",
        "files",
        multiple=True,
        type=options.PATH,
        metavar="FILE",
        help=f"{copies}; repeatable; default: ask all agents",
    )
    return options.all_of(options.namespace("only this namespace"), files, options.cluster)


def connected(files: Sequence[str], kubeconfig: str | None, context: str | None) -> "Api | None":
    """Return a connection to the API server to ask; None if `files` are given.

    Raises Unusable, and UsageError for options that conflict.
    """
    if files:
        if kubeconfig or context:
            raise click.UsageError("--from needs no cluster: leave out --kubeconfig and --context")
        return None
    from webhook.cluster import listing  # brings the client, which only a live cluster needs

    return listing.connect(kubeconfig, context)


def read(
    files: Sequence[str], kubeconfig: str | None, context: str | None, hours: int | None
) -> tuple[list[NodeUsage], list[UnseenNode]]:
    """Read the usage of the last hours, and the names of nodes that could not be read. Raises Unusable.

    With None for the hours, everything in a file is read.
    """
    api = connected(files, kubeconfig, context)
    if api is None:
        return [_usage(each, hours) for each in files], []
    return ask_all(api, lambda agent: agent.usage(hours or KEPT_HOURS))


def beginning(file: str) -> bytes:
    """Read at most one byte more of a file than an answer may have. Raises Unusable."""
    try:
        with Path(file).open("rb") as opened:
            return opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise Unusable((Problem(file, 0, error.strerror or str(error)),)) from error


def _usage(file: str, hours: int | None) -> NodeUsage:
    data = beginning(file)
    try:
        if data.startswith(_SQLITE):
            return document.of_file(*store.read_file(Path(file), hours, document.MOST_ROWS), hours)
        return document.read(data)
    except OSError as error:
        raise Unusable((Problem(file, 0, error.strerror or str(error)),)) from error
    except (store.DamagedRecord, sqlite3.Error) as error:
        raise Unusable((Problem(file, 0, str(error)),)) from error


def sorted_copies(files: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the files that say what is done now, and those with a record of the past. Raises Unusable."""
    beginnings = {file: beginning(file) for file in files}
    now = [file for file, data in beginnings.items() if not data.startswith(_SQLITE)]
    past = [file for file, data in beginnings.items() if data.startswith(_SQLITE) or data.lstrip()[:1] == b"{"]
    return now, past


class Silent(Exception):
    """An agent gave no answer, or no usable one. The text is the reason."""


class AskedAgent(NamedTuple):
    """The agent of a node, asked through the API server, which checks the caller's right to `pods/proxy`."""

    api: "Api"
    node: str
    pod: Object
    end: float = math.inf
    """When it is too late to answer, by time.monotonic()."""

    def usage(self, hours: int) -> NodeUsage:
        """Ask the agent for the usage of the last hours. Raises Silent."""
        found = self._read("usage", {"hours": hours}, document.read)
        if found.node != self.node:
            raise Silent("its agent answers for another node")
        return found

    def scrape(self) -> NodeScrape:
        """Ask the agent for its metrics. Raises Silent."""
        return self._read("metrics", {}, scraped.read)

    def _read(self, path: str, query: Mapping[str, int], reader: Callable[[bytes], Found]) -> Found:
        from webhook.cluster import client

        name = string(mapping(self.pod.get("metadata")).get("name"))
        url = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}:{_port(self.pod)}/proxy/{path}"
        longest = min(LONGEST_SECONDS, self.end - time.monotonic())
        if longest < 0:
            raise Silent("there was no time left to ask its agent")
        try:
            status, data = client.beginning(
                self.api, url, query, MOST_BYTES + 1, silence=ANSWER_SECONDS, longest=longest
            )
        except client.Unreachable as error:
            raise Silent(str(error)) from error
        if status != 200:
            hint = "" if status == 404 and path != "usage" else HINTS.get(status, "")
            raise Silent(f"HTTP {status}{hint}")
        try:
            return reader(data)
        except store.DamagedRecord as error:
            raise Silent(f"its agent's answer cannot be used: {error}") from error


def ask_all(
    api: "Api",
    ask: Callable[[AskedAgent], Found],
    longest: float = math.inf,
    took: dict[str, float] | None = None,
    only: Collection[str] | None = None,
) -> tuple[list[Found], list[UnseenNode]]:
    """Ask the agents of all nodes by `ask`. Return their answers, and the nodes without an answer with the reasons.

    Raises Unusable if the agents cannot be listed.

    `longest` is in seconds, for all agents together. `took` keeps the seconds that each node took: slow nodes are asked
    last, so that they do not use up the time of the others. `only` has the names of the nodes to ask; None for all.
    """
    from webhook.cluster import client, listing

    took = {} if took is None else took
    pods = Resource("", "v1", "pods", "Pod", namespace=NAMESPACE)
    try:
        agents = [pod for page in listing.pages(api, pods, labels=LABELS) for pod in page]
    except (client.StatusError, client.Unreachable) as error:
        raise Unusable((listing.unread(pods, error),)) from error
    by_node = {string(mapping(pod.get("spec")).get("nodeName")): pod for pod in agents}
    by_node = {node: pod for node, pod in by_node.items() if only is None or node in only}
    unseen = list[UnseenNode]()
    try:
        pages = listing.pages(api, NODES, labels=NODES.labels) if only is None else ()
        nodes = [string(node["metadata"]["name"]) for page in pages for node in page]
        unseen += [UnseenNode(node, "no agent runs there") for node in only or nodes if node not in by_node]
    except (client.StatusError, client.Unreachable) as error:
        unseen.append(UnseenNode(UNLISTED, f"nodes without an agent are not known: {error}"))
    by_node.pop("", None)
    end = time.monotonic() + longest

    def answer(node: str) -> Found | UnseenNode:
        begun = time.monotonic()
        try:
            return ask(AskedAgent(api, node, by_node[node], end))
        except Silent as error:
            return UnseenNode(node, str(error))
        finally:
            if begun < end:
                took[node] = time.monotonic() - begun

    order = sorted(by_node, key=lambda node: (took.get(node, 0.0), node))
    answers = dict(zip(order, at_once(answer, order), strict=True))
    in_order = [answers[node] for node in sorted(answers)]
    unseen += [each for each in in_order if isinstance(each, UnseenNode)]
    return [each for each in in_order if not isinstance(each, UnseenNode)], unseen


def at_once(call: Callable[[Item], Found], items: Iterable[Item]) -> list[Found]:
    """Call `call` for each item, AT_ONCE items at a time, and return the results.

    The threads are daemons. With those of an executor, Ctrl-C would wait for the slowest answer.
    """
    left = deque((item, Future[Found]()) for item in items)
    futures = [future for _, future in left]

    def work() -> None:
        while True:
            try:
                item, future = left.popleft()
            except IndexError:
                return
            try:
                future.set_result(call(item))
            except BaseException as error:  # raised again by result()
                future.set_exception(error)

    for number in range(min(AT_ONCE, len(futures))):
        threading.Thread(target=work, daemon=True, name=f"ask {number}").start()
    try:
        return [future.result() for future in futures]
    finally:
        left.clear()


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
