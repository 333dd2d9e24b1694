"""Reads the usage of nodes for the command line: from Prometheus if an option names one, else as `usages` does."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from webhook.cli import options, usages
from webhook.model import Problem, Unusable
from webhook.reports.usage_report import UnseenNode
from webhook.usage import counted, counted_hours, gauges
from webhook.usage.account import KEPT_HOURS
from webhook.usage.counted import ChosenSeries, CountedTime, HourlySeries, Sample
from webhook.usage.document import NodeUsage, first_hour
from webhook.usage.gauges import NodeGauges
from webhook.usage.record import HOUR
from webhook.usage.store import DamagedRecord

if TYPE_CHECKING:
    from webhook.cluster.client import Api

MOST_LABELS, LONGEST_LABEL = 4, 100
"""Maximum number of `--match`, and the maximum length of a value: each query names all of them several times."""

LAST = 253_402_300_800
"""The first second after the year 9999: a server's clock that says more is wrong."""

SHORTEST = 60
"""Seconds that are read at least: the present hour may have begun just now."""


class UsageSource(NamedTuple):
    """Where the usage is read: from files with copies of it, from Prometheus, or from the agents of a cluster."""

    files: Sequence[str]
    kubeconfig: str | None
    context: str | None
    prometheus: str | None = None
    settings: str | None = None
    labels: Sequence[tuple[str, str]] = ()


def _url(text: str) -> str:
    from webhook.cluster import prometheus  # brings the client, which only a live server needs

    if why := prometheus.fault(text):
        raise click.BadParameter(why)
    return text


def _label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not counted.LABEL.fullmatch(name) or len(value) > LONGEST_LABEL or not value.isprintable():
        raise click.BadParameter(f"{text!r} is no label and value; write one such as job=slicewarden-node")
    return name, value


_OPTIONS = options.all_of(
    options.once(
        "--prometheus",
        type=_url,
        metavar="URL",
        help="ask the Prometheus that scrapes the agents, and not the agents",
    ),
    options.once(
        "--prometheus-config",
        type=options.PATH,
        metavar="FILE",
        help="how to log in there: basic_auth, authorization and tls_config, as in promtool's --http.config.file",
    ),
    click.option(
        "--match",
        "labels",
        type=_label,
        multiple=True,
        metavar="LABEL=VALUE",
        help="only series with this label there, such as the job of the agents; repeatable",
    ),
)


def source(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options that name a Prometheus.

    The command receives one UsageSource for these options and those of `usages`.
    """
    return _with_source(function, alone=True)


def source_and_cluster(function: Callable[..., int]) -> Callable[..., int]:
    """Add what `source` adds, for a command that may ask a Prometheus and the cluster."""
    return _with_source(function, alone=False)


def _with_source(function: Callable[..., int], *, alone: bool) -> Callable[..., int]:
    @wraps(function)
    def call(
        files: Sequence[str],
        kubeconfig: str | None,
        context: str | None,
        prometheus: str | None,
        prometheus_config: str | None,
        labels: Sequence[tuple[str, str]],
        **more: Any,
    ) -> int:
        if alone and prometheus and (files or kubeconfig or context):
            raise click.UsageError("--prometheus needs no cluster: leave out --from, --kubeconfig and --context")
        if not prometheus and (prometheus_config or labels):
            raise click.UsageError("--prometheus-config and --match need --prometheus")
        if len(labels) > MOST_LABELS:
            raise click.UsageError(f"--match: give at most {MOST_LABELS}")
        given = UsageSource(files, kubeconfig, context, prometheus, prometheus_config, labels)
        return function(source=given, **more)

    return _OPTIONS(call)


def read(
    given: UsageSource, hours: int, namespace: str, *, hourly: bool = False
) -> tuple[list[NodeUsage], list[UnseenNode]]:
    """Read the usage of the last hours, and name the nodes that could not be read. Raises Unusable.

    From Prometheus only the usage of the namespace is read, unless that is empty, and only if `hourly` is true, what
    became of all slices in each hour.
    """
    if not given.prometheus:
        return usages.read(given.files, given.kubeconfig, given.context, hours)
    asked = _AskedPrometheus(given)
    chosen, time = ChosenSeries(given.labels, namespace), asked.time(hours)
    nodes, answers = asked.usages(chosen, time)
    if namespace or not hourly:
        return nodes, []
    queries, whole = counted_hours.queries(chosen), counted_hours.hours_of(time)

    def rows(part: range) -> counted_hours.HourlyRows:
        found = {name: asked.hourly(query, part) for name, query in queries.items()}
        of_part: counted_hours.HourlyRows = asked.understood(lambda: counted_hours.rows(found))
        return of_part

    series: int = asked.understood(lambda: counted_hours.series_of(answers, whole))
    return counted_hours.with_rows(nodes, usages.at_once(rows, counted_hours.parts(whole, series))), []


def with_peaks(given: UsageSource, hours: int) -> tuple[list[NodeUsage], list[UnseenNode]]:
    """Read the usage of the last hours as `read` does, with a row and the hour of the peak for each container."""
    if not given.prometheus:
        return usages.read(given.files, given.kubeconfig, given.context, hours)
    asked = _AskedPrometheus(given, "ask for less time")
    chosen, time = ChosenSeries(given.labels, pods=True), asked.time(hours)
    nodes, answers = asked.usages(chosen, time)
    query = counted_hours.seen_query(chosen)

    def seen(part: range) -> counted_hours.SeenRows:
        answer = asked.hourly(query, part)
        found: counted_hours.SeenRows = asked.understood(lambda: counted_hours.seen(answer, chosen))
        return found

    parts = counted_hours.parts(counted_hours.hours_of(time), len(answers["held"]))
    return counted_hours.with_hours(nodes, usages.at_once(seen, parts)), []


def present(given: UsageSource, namespace: str) -> tuple[list[NodeUsage], list[UnseenNode]]:
    """Read what containers do now, and name the nodes that could not be read. Raises Unusable."""
    if not given.prometheus:
        return usages.read(given.files, given.kubeconfig, given.context, 1)
    asked = _AskedPrometheus(given)
    answers = asked.answers(counted.present_queries(ChosenSeries(given.labels, namespace)), asked.now())
    found, gone = asked.understood(lambda: counted.present(answers))
    if not found and not gone:
        raise asked.wrong(_NOTHING)
    return found, _gone(gone)


def now(given: UsageSource, namespace: str) -> tuple[list[NodeGauges], list[UnseenNode]]:
    """Read the agents' gauges from Prometheus, and name the nodes that it could not read. Raises Unusable."""
    asked = _AskedPrometheus(given)
    answers = asked.answers(gauges.queries(ChosenSeries(given.labels, namespace)), asked.now())
    found, gone = asked.understood(lambda: gauges.nodes(answers))
    if not found and not gone:
        raise asked.wrong("it has no metrics of agents: does it scrape them?")
    return found, _gone(gone)


def _gone(nodes: Iterable[str]) -> list[UnseenNode]:
    return [UnseenNode(node, "Prometheus could not read its agent in the last 5 minutes") for node in nodes]


_NOTHING = "it has no counters of agents in this time: do they run with --usage, and does it scrape them?"


class _AskedPrometheus:
    """A Prometheus that is asked. Raises Unusable whenever it gives no answer that can be used."""

    def __init__(self, given: UsageSource, less: str = "ask for less time, or for one namespace") -> None:
        from webhook.cluster import client, prometheus  # the client is slow to load, and only a live server needs it

        self._url = str(given.prometheus)
        try:
            self._api: Api = prometheus.connect(self._url, given.settings)
        except client.Unreachable as error:
            raise self.wrong(str(error)) from error
        self._less = less
        self._one = threading.Lock()

    def wrong(self, why: str) -> Unusable:
        return Unusable((Problem(self._url, 0, why),))

    def understood(self, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except DamagedRecord as error:
            raise self.wrong(f"its answer cannot be used: {error}") from error

    def now(self) -> int:
        """Return the server's current time, in seconds from 1970 in UTC."""
        found = self._asked("vector(time())", None)
        if len(found) != 1 or not 3600 * KEPT_HOURS < found[0].value < LAST:
            raise self.wrong("it does not say what time it is")
        return int(found[0].value)

    def time(self, hours: int) -> CountedTime:
        """Return the last hours until the server's current time."""
        at = self.now()
        return CountedTime(min(first_hour(at * 1000, min(hours, KEPT_HOURS)) * HOUR // 1000, at - SHORTEST), at)

    def usages(self, chosen: ChosenSeries, time: CountedTime) -> tuple[list[NodeUsage], dict[str, list[Sample]]]:
        """Return the usage of all nodes, and the answers that it was computed from."""
        answers = self.answers(counted.queries(chosen, time), time.at)
        found: list[NodeUsage] = self.understood(lambda: counted.usages(answers, chosen, time))
        if not found:
            raise self.wrong(_NOTHING)
        return found, answers

    def hourly(self, query: str, hours: range) -> list[HourlySeries]:
        """Return the values of a query at the end of each of these hours, of which the last one may not have ended."""
        from webhook.cluster import prometheus

        seconds = counted_hours.SECONDS
        ends = range((hours.start + 1) * seconds, (hours.stop + 1) * seconds, seconds)
        found: list[HourlySeries] = self._read(
            lambda: prometheus.ask_each(self._api, query, ends, counted.MOST_BYTES + 1),
            lambda data: counted.read_hours(data, hours, self._less),
        )
        return found

    def answers(self, queries: Mapping[str, str], at: int) -> dict[str, list[Sample]]:
        found = usages.at_once(lambda query: self._asked(query, at), queries.values())
        return dict(zip(queries, found, strict=True))

    def _asked(self, query: str, at: int | None) -> list[Sample]:
        from webhook.cluster import prometheus

        found: list[Sample] = self._read(
            lambda: prometheus.ask(self._api, query, at, counted.MOST_BYTES + 1),
            lambda data: counted.read(data, self._less),
        )
        return found

    def _read(self, ask: Callable[[], tuple[int, bytes]], reader: Callable[[bytes], Any]) -> Any:
        from webhook.cluster import client

        try:
            status, data = ask()
        except client.Unreachable as error:
            raise self.wrong(str(error).removeprefix(f"{client.server(self._api)} ")) from error
        if status != 200:
            hint = HINTS.get(status, "")
            raise self.wrong(f"HTTP {status}{hint or (': ' * bool(why := counted.refusal(data)) + why)}")
        with self._one:  # a hostile answer may take 0.4 GiB while it is read
            return self.understood(lambda: reader(data))


HINTS = {
    301: ", a redirect, which is not followed; name the last URL",
    302: ", a redirect, which is not followed: does it ask for a login?",
    307: ", a redirect, which is not followed; name the last URL",
    308: ", a redirect, which is not followed; name the last URL",
    401: ": it asks for a password or a token; --prometheus-config FILE has it",
    403: ": it forbids this user to ask",
    404: ": it has no API of Prometheus; does the URL need a path, such as /prometheus?",
}
