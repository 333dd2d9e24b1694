"""The same lives in the record of a node and in a real Prometheus: the commands say the same from both."""

import json
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.monitoring import prometheus
from tests.monitoring.lives import SCRAPE, TICK, NodeLife, samples
from tests.support.go_programs import Missing
from tests.support.listening import listening
from tests.support.strangers import HOSTILE, harmful
from tests.support.waiting import until
from webhook.agent.metrics import AgentMetrics, LastLook
from webhook.agent.recorder import UsageRecorder
from webhook.cli import counters
from webhook.cli import main as cli
from webhook.cli.counters import UsageSource
from webhook.model import Unusable
from webhook.reports import usage_report
from webhook.usage import advice
from webhook.usage.account import CardShare, HolderLook, NodeLook
from webhook.usage.counted import STEP
from webhook.usage.document import NodeUsage
from webhook.usage.held import NodeSlices
from webhook.usage.record import Amounts, Book, CardAmounts, CardKey, HolderKey, SlicedCard

HOURS, LENGTH = 2, 4500
"""The hours that are asked for, and the seconds that a node has lived: the trace begins before them, or in them."""

LOST = 120_000
"""Milliseconds that one of both sources may lose by a fault: a minute of the record, or some scrapes."""


@pytest.fixture(scope="module", autouse=True)
def programs() -> None:
    """Build them, or end the run in one line."""
    try:
        prometheus.find("promtool")
        prometheus.find("prometheus")
    except Missing as missing:
        pytest.exit(str(missing), returncode=2)


NOON = 1_795_953_600
"""A noon. No test depends on the time of day at which it runs."""


@pytest.fixture
def now(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The end of the trace, which is the time of Prometheus, too: another one within its hour for each batch."""
    parameters = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    moment: int = NOON + 2683 + 613 * parameters.get("batch", 0)
    monkeypatch.setattr(counters._AskedPrometheus, "now", lambda _: moment)
    return moment


def asked(url: str, *labels: tuple[str, str]) -> UsageSource:
    return UsageSource((), None, None, url, None, labels)


Rows = dict[tuple[str, ...], Amounts]


def rows(usage: NodeUsage) -> Rows:
    """The amounts by card, namespace and workload."""
    found: Rows = defaultdict(Amounts)
    for key, used in usage.book.holders.items():
        name = key.card, key.namespace, key.workload
        found[name] = found[name].plus(used)
    return found


def differences(one: NodeUsage, other: NodeUsage, slack: int) -> Iterator[str]:
    """Yield where they differ by more than a hundredth, and so many milliseconds besides."""
    found, expected = rows(one), rows(other)
    for name in found.keys() | expected.keys():
        for field in Amounts._fields:
            mine, true = getattr(found[name], field), getattr(expected[name], field)
            unit = {"memory": 5000, "peak": 0, "cap": 0}.get(field, 1)
            if abs(mine - true) > 0.01 * max(mine, true) + slack * unit and (unit or not slack):
                yield f"{one.node} {name} {field}: {mine}, not {true}"
    for card, sums in other.book.cards.items():
        for field in CardAmounts._fields:
            value, known = getattr(one.book.cards[card], field), getattr(sums, field)
            if abs(value - known) > 0.01 * sums.capacity + 4 * slack:
                yield f"{one.node} {card.card} {field}: {value}, not {known}"


@pytest.mark.parametrize("batch", [0, *(pytest.param(each, marks=pytest.mark.thorough) for each in range(1, 11))])
def test_the_record_and_the_counters_agree(batch: int, tmp_path: Path, now: int) -> None:
    """A node without faults agrees to a hundredth. Each fault of another one may cost LOST."""
    lives = [NodeLife(2 * batch + each, now, LENGTH, tmp_path, faults=bool(each)) for each in range(2)]
    lines, agents = list[str](), dict[str, UsageRecorder]()
    for life in lives:
        sampled, agents[life.node] = life.run()
        lines += sampled
    with prometheus.serving(tmp_path, lines) as url:
        found, unseen = counters.read(asked(url), HOURS, "")
        (one_space,) = [each for each in counters.read(asked(url), HOURS, "team-1")[0] if each.node == lives[0].node]
        present, gone = counters.present(asked(url), "")
    assert (unseen, gone) == ([], [])
    by_node = {each.node: each for each in found}
    for life in lives:
        usage, own = by_node[life.node], agents[life.node].usage(HOURS)
        assert usage.since == own.since
        faults = len(life.kills) + len(life.rolls)
        # A container of the first seconds is read at most a scrape late, and a later one of its name is estimated.
        assert [*differences(usage, own, LOST * faults + SCRAPE * 1000)] == []
        for amounts in usage.book.cards.values():
            assert amounts.held + amounts.free + amounts.unseen == amounts.capacity
            assert amounts.capacity == pytest.approx(4 * amounts.counted, rel=0.01)
        (now_here,) = [each.now for each in present if each.node == life.node]
        # No look at a card says what is in use. A series that has ended is not marked as stale here.
        assert {*now_here} >= {each._replace(mib=0, cap=0) for each in own.now}
    whole = rows(by_node[lives[0].node])
    assert rows(one_space) == {name: each for name, each in whole.items() if name[1] == "team-1"}
    reports = [
        {row.names: row.cards for row in usage_report.sums([usage], (), "namespace", {}).rows if not row.rest}
        for usage in (by_node[lives[0].node], agents[lives[0].node].usage(HOURS))
    ]
    assert reports[0] == pytest.approx(reports[1], rel=0.01, abs=2 * SCRAPE * 1000)


A10 = SlicedCard("GPU-0", 4, "shared", "NVIDIA-A10")


def life_of(tmp_path: Path, now: int, seconds: int) -> tuple[NodeLife, UsageRecorder, list[int]]:
    """A node, its agent, and the clock, so long before the end of the trace."""
    life = NodeLife(0, now, seconds, tmp_path, faults=False)
    wall = [life.now - seconds]
    return life, life._recorder(wall), wall


def scraped(
    life: NodeLife, agent: UsageRecorder, wall: list[int], look: NodeLook, target: str, tick: int = 5
) -> list[str]:
    lines = list[str]()
    while wall[0] <= life.now:
        agent._advance(look, float(wall[0] - life.now + 10_000_000))
        if wall[0] % SCRAPE < tick or wall[0] == life.now:
            lines += samples(agent, wall[0], target)
        wall[0] += tick
    return lines


BUSY = NodeLook((A10,), (HolderLook("k", "team", "Job/j", "p", "main", (CardShare("GPU-0", 1, True, 3000, 5000),)),))
TARGET = 'instance="a",job="agents"'


def test_a_prometheus_that_began_to_scrape_now_does_not_count_what_was_before(tmp_path: Path, now: int) -> None:
    """The agent has counted for 20 hours, and Prometheus has read it for half an hour of the last two."""
    life, agent, wall = life_of(tmp_path, now, 1800)
    key = HolderKey(0, "GPU-0", A10.pool, A10.product, "team", "Job/j", "p", "main")
    before = 72_000_000
    agent._began -= before / 1000
    amounts = CardAmounts(before, 4 * before, before, 3 * before, 0)
    book = Book({CardKey(0, *key[1:4]): amounts}, {key: Amounts(held=before, working=before)})
    agent._totals.add(book, BUSY, agent._state.at)
    with prometheus.serving(tmp_path, scraped(life, agent, wall, BUSY, TARGET)) as url:
        ((usage,), _) = counters.read(asked(url), HOURS, "")
    (used,) = usage.book.holders.values()
    assert used.held == pytest.approx(1_800_000, rel=0.05)
    (card,) = usage.book.cards.values()
    assert card.counted == pytest.approx(1_800_000, rel=0.05)
    said = re.match(r"Prometheus has read its agent for ([0-9.]+) of", usage.trouble)
    # The time that was read is counted in STEPs, of which each end may add or lose one.
    assert said
    assert float(said[1]) == pytest.approx(0.5, abs=STEP / 3600 + 0.05)


def test_agents_that_are_scraped_twice_are_refused_unless_one_job_is_chosen(
    tmp_path: Path, now: int, capsys: pytest.CaptureFixture[str]
) -> None:
    life, agent, wall = life_of(tmp_path, now, 1800)
    lines = scraped(life, agent, wall, BUSY, TARGET)
    twice = [line.replace(TARGET, 'instance="a",job="oth\\"er"') for line in lines]
    with prometheus.serving(tmp_path, [*lines, *twice]) as url:
        with pytest.raises(Unusable, match="it has the node node-0 2 times"):
            counters.read(asked(url), HOURS, "")
        with pytest.raises(Unusable, match="it has the node node-0 2 times"):
            counters.present(asked(url), "")
        for job in ("agents", 'oth"er'):
            ((usage,), _) = counters.read(asked(url, ("job", job)), HOURS, "")
            assert len(usage.book.holders) == 1
        assert cli.main(["usage", "--prometheus", url, "--match", 'job="} or vector(1) #']) == 2
        assert "it has no counters of agents" in capsys.readouterr().err
        assert cli.main(["usage", "--prometheus", url, "--match", "job=agents", "-o", "json"]) == 0
        (team, *_) = json.loads(capsys.readouterr().out)["rows"]
        assert (team["namespace"], team["peakMiB"], team["capMiB"]) == ("team", 3000, 5000)


def test_series_that_were_read_twice_or_renamed_are_not_believed(tmp_path: Path, now: int) -> None:
    """A second job has ended a while ago, and a third one has no honor_labels."""
    life, agent, wall = life_of(tmp_path, now, 1800)
    lines = scraped(life, agent, wall, BUSY, TARGET)
    early = [line for line in lines if int(line.rsplit(maxsplit=1)[1]) < life.now - 700]
    twice = [line.replace(TARGET, 'instance="a",job="other"') for line in early]
    own = 'instance="b",job="bad",namespace="slicewarden-node"'
    renamed = [line.replace('namespace="team"', 'exported_namespace="team"').replace(TARGET, own) for line in lines]
    with prometheus.serving(tmp_path, [*lines, *twice, *renamed]) as url:
        for namespace in ("", "team"):
            with pytest.raises(Unusable, match="needs honor_labels"):
                counters.read(asked(url, ("instance", "b")), HOURS, namespace)
        with pytest.raises(Unusable, match="needs honor_labels"):
            counters.present(asked(url, ("instance", "b")), "")
        ((usage,), _) = counters.read(asked(url, ("instance", "a")), HOURS, "team")
        assert "Prometheus has read it twice for 0." in usage.trouble
        ((usage,), _) = counters.read(asked(url, ("job", "agents")), HOURS, "team")
        assert "twice" not in usage.trouble


def test_idle_containers_are_shown_and_a_node_whose_agent_is_gone_is_named(
    tmp_path: Path, now: int, capsys: pytest.CaptureFixture[str]
) -> None:
    share = CardShare("GPU-0", 1, False, 3000, 5000)
    lazy = NodeLook((A10,), (HolderLook("k", "team", "Job/j", "p", "main", (share,)),))
    life, agent, wall = life_of(tmp_path, now, 1800)
    names = 'namespace="team",pod="p",container="main",gpu="GPU-0"'
    lines = [
        *scraped(life, agent, wall, lazy, TARGET, 1),
        f"slicewarden_node_use_bytes{{{TARGET},{names}}} {3000 * 2**20} {life.now}",
    ]
    life, agent, wall = life_of(tmp_path, now, 1800)
    life.now, agent._node = life.now - 600, "node-1"
    lines += scraped(life, agent, wall, lazy, 'instance="b",job="agents"')
    with prometheus.serving(tmp_path, lines) as url:
        assert cli.main(["idle", "--prometheus", url, "--after", "20m"]) == 1
        out, err = capsys.readouterr()
        (row,) = out.splitlines()[1:]
        assert row.split() == ["team", "p", "main", "Job/j", "node-0", "GPU-0", "1", "0h", "30m", "3000"]
        assert err == "not seen: node-1: Prometheus could not read its agent in the last 5 minutes\n"


GAUGES = """# TYPE slicewarden_node_use_bytes gauge
slicewarden_node_use_bytes{namespace="team",pod="p",container="main",gpu="GPU-0"} 3145728000
slicewarden_node_allowance_bytes{namespace="team",pod="p",container="main",gpu="GPU-0"} 2097152000
slicewarden_node_sm_ratio{namespace="team",pod="p",container="main",gpu="GPU-0"} 0.42
slicewarden_node_state{namespace="team",pod="p",container="main",gpu="GPU-0",state="over"} 1
slicewarden_node_reported{namespace="team",pod="p",container="main",gpu="GPU-0"} 1
slicewarden_node_frozen{namespace="team",pod="p",container="main"} 1
slicewarden_node_card_used_bytes{gpu="GPU-0",index="0",model="NVIDIA A10"} 9663676416
slicewarden_node_card_total_bytes{gpu="GPU-0",index="0",model="NVIDIA A10"} 24159191040
slicewarden_node_card_unattributed_bytes{gpu="GPU-0",index="0",model="NVIDIA A10"} -1048576
slicewarden_node_card_busy_ratio{gpu="GPU-0",index="0",model="NVIDIA A10"} 0.97
slicewarden_node_card_dead{gpu="GPU-0",index="0",model="NVIDIA A10"} 0
slicewarden_node_limit_faults{fault="missing"} 2
slicewarden_node_look_age_seconds{} 0.5
slicewarden_node_usage_unsaved{} 0
"""


def test_top_shows_what_an_agents_own_answer_shows(
    tmp_path: Path, now: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Next to an agent without a usage record, and one that is gone."""
    life, agent, wall = life_of(tmp_path, now, 900)
    gauges = [line for line in GAUGES.splitlines() if not line.startswith(("#", "slicewarden_node_usage"))]
    lines = scraped(life, agent, wall, BUSY, TARGET, 1)
    for instance, at in (("a", now), ("b", now), ("c", now - 1200)):
        target = TARGET.replace('"a"', f'"{instance}"')
        own = [line.replace("{", f"{{{target},", 1).replace(",}", "}") for line in gauges]
        lines += [f"{line if instance == 'a' else line.replace('GPU-0', f'GPU-{instance}')} {at}" for line in own]
    (tmp_path / "node-0.txt").write_text(GAUGES.replace("{}", ""))
    (tmp_path / "usage.json").write_bytes(agent.text(1))
    with prometheus.serving(tmp_path, lines) as url:
        assert cli.main(["top", "-o", "json", "--prometheus", url]) == 1
        found = json.loads(capsys.readouterr().out)
        assert cli.main(["top", "-o", "json", "--prometheus", url, "-n", "other", "--match", "job=agents"]) == 1
        assert json.loads(capsys.readouterr().out)["cards"] == []
    files = ["--from", str(tmp_path / "node-0.txt"), "--from", str(tmp_path / "usage.json")]
    assert cli.main(["top", "-o", "json", *files]) == 0
    (card,) = json.loads(capsys.readouterr().out)["cards"]
    assert [each for each in found["cards"] if each["node"] == "node-0"] == [card]
    (other,) = [each for each in found["cards"] if each["node"] == "b"]
    assert (other["usedMiB"], other["noContainerMiB"], len(other["containers"])) == (9216, 0, 1)
    assert other["containers"][0]["seenSeconds"] is None
    assert [each["node"] for each in found["unseenNodes"]] == ["c"]
    (tmp_path / "twice").mkdir()
    early = [f"{line.rpartition(' ')[0]} {now - 400}" for line in lines if '"b"' in line]
    twice = [line.replace('job="agents"', 'job="other"') for line in lines if '"b"' in line]
    again = [line.replace('job="agents"', 'job="other"') for line in early]
    with prometheus.serving(tmp_path / "twice", [*early, *again, *lines, *twice]) as url:
        assert cli.main(["top", "--once", "--prometheus", url]) == 2
        assert "it has the GPU GPU-b 2 times" in capsys.readouterr().err


def test_no_name_in_prometheus_is_a_command(tmp_path: Path, now: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Anyone whose pod Prometheus reads may give series any labels."""
    share = CardShare("GPU-0", 1, False, 3000, 5000)
    evil = NodeLook(
        (A10._replace(pool=HOSTILE, product=HOSTILE),),
        (HolderLook("k", HOSTILE, HOSTILE, HOSTILE, HOSTILE, (share,)),),
    )
    life, agent, wall = life_of(tmp_path, now, 1200)
    agent._node = HOSTILE
    forms = {
        "usage": [[], ["-o", "json"], ["-o", "csv"], ["-o", "html"], ["--by", "card"]],
        "idle": [["--after", "1s"], ["--after", "1s", "-o", "json"]],
        "advise": [[], ["-o", "json"]],
    }
    with prometheus.serving(tmp_path, scraped(life, agent, wall, evil, TARGET, 1)) as url:
        for command, more in ((command, more) for command, each in forms.items() for more in each):
            assert cli.main([command, "--prometheus", url, *more]) == 0
            out, err = capsys.readouterr()
            assert "forged" in out
            assert harmful(out, "") == []
            assert harmful(err, "") == []


LONG = 28 * 3600
"""Seconds of a life that is long enough for an advice."""


class Steady(NamedTuple):
    """A program that works half of the time, with MiB by its age in seconds. It ends before the end of the trace."""

    workload: str
    card: SlicedCard
    mib: Callable[[int], int]
    even: int = 0
    begin: int = 0
    seconds: int = LONG

    def look(self, age: int) -> HolderLook:
        """Return what the agent sees of it."""
        share = CardShare(self.card.uuid, 1, age // 60 % 2 == 0, self.mib(age), 10_000, even=self.even)
        pod = f"{self.workload}-{self.begin}"
        return HolderLook(pod, "team", f"Deployment/{self.workload}", pod, "main", (share,))


A100, OTHER, SMALL = (
    SlicedCard(f"GPU-{number}", slices, pool, "NVIDIA-A100-SXM4-40GB")
    for number, (slices, pool) in enumerate(((4, "shared"), (4, "shared"), (8, "small")))
)

PROGRAMS = (
    Steady("early", A100, lambda age: 4000 if 7200 < age < 7300 else 3600),
    Steady("early", OTHER, lambda _: 1000, begin=36_000, seconds=60),
    Steady("reserving", A100, lambda _: 9000),
    Steady("unequal", A100, lambda _: 4000, even=7000),
    Steady("growing", OTHER, lambda age: 1000 + age // 60),
    Steady("young", OTHER, lambda _: 1000, begin=20 * 3600, seconds=8 * 3600),
    Steady("little", SMALL, lambda age: min(500 + age, 1000)),
)


class LongLife(NamedTuple):
    """A trace: its end, what Prometheus gets, and the record of the node."""

    now: int
    lines: Sequence[str]
    record: NodeUsage


@pytest.fixture(scope="module")
def long_life(tmp_path_factory: pytest.TempPathFactory) -> LongLife:
    """A life of more than a day, in which the agent dies once. It begins and ends in the middle of an hour."""
    now = NOON + 1800
    life, agent, wall = life_of(tmp_path_factory.mktemp("long"), now, LONG)
    lines = list[str]()
    for second in range(0, LONG + 1, TICK):
        wall[0] = now - LONG + second
        if second == LONG // 3:
            agent = life._recorder(wall)
        here = (each.look(second - each.begin) for each in PROGRAMS if 0 <= second - each.begin < each.seconds)
        agent._advance(NodeLook((A100, OTHER, SMALL), tuple(here)), float(second - LONG + 10_000_000))
        if second % (4 * SCRAPE) == 0:
            lines += samples(agent, wall[0], TARGET)
    return LongLife(now, lines, agent.usage(LONG // 3600 + 2))


def advised(nodes: Sequence[NodeUsage]) -> dict[str, Any]:
    """An advice, without its amounts."""
    found = advice.advise(nodes)
    names = [
        (each.workload, each.container, each.pools, each.slices, each.cap, each.need, each.unknown)
        for each in sorted(found.workloads, key=lambda each: each.workload)
    ]
    pools = [(each.pool, each.product, each.slices, each.mib, each.need, each.unknown) for each in found.pools]
    changes = {
        (name, change.kind, change.value): change.saved
        for name, own in [
            *((each.workload, each.changes) for each in found.workloads),
            *((each.pool, each.changes) for each in found.pools),
        ]
        for change in own
    }
    return {"workloads": names, "pools": pools, "changes": changes}


def test_the_record_and_the_counters_give_the_same_advice(
    long_life: LongLife, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(counters._AskedPrometheus, "now", lambda _: long_life.now)
    with prometheus.serving(tmp_path, long_life.lines) as url:
        ((usage,), unseen) = counters.with_peaks(asked(url), LONG // 3600 + 2)
        assert cli.main(["advise", "--since", "30h", "--prometheus", url, "-o", "json"]) == 0
    assert (usage.trouble, unseen) == ("", [])
    record, hours = long_life.record, usage.book.hours
    assert hours.keys() == record.book.hours.keys() == usage.book.holders.keys()
    for key, true in record.book.hours.items():
        # The counters say at the next scrape what a container did, and that may be in the next hour.
        assert true.first <= hours[key].first <= true.first + 1
        assert true.last - 1 <= hours[key].last <= true.last + 1
        assert (true.reached <= hours[key].reached <= true.reached + 1, hours[key].peak) == (True, true.peak)
    found, expected = advised([usage]), advised([record])
    assert {each[0]: each[-1] for each in expected["workloads"] if not each[-1]} == {
        f"Deployment/{name}": "" for name in ("early", "little")
    }
    assert found["changes"] == pytest.approx(expected["changes"], rel=0.01)
    assert {kind for _, kind, _ in expected["changes"]} == {"memory", "pool", "profile"}
    del found["changes"], expected["changes"]
    assert found == expected
    (early,) = [each for each in json.loads(capsys.readouterr().out)["workloads"] if "early" in each["workload"]]
    assert (early["needMiB"], early["peakMiB"]) == (4416, 4000)


def test_the_record_and_the_counters_have_the_same_hours(
    long_life: LongLife, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And an hour in which Prometheus has read nothing is a gap, although the counters go on behind it."""
    monkeypatch.setattr(counters._AskedPrometheus, "now", lambda _: long_life.now)
    first = long_life.now // 3600 - 4
    dark = range(first * 3600 - 1000, (first + 1) * 3600 + 1000)
    for name, lines in (
        ("whole", long_life.lines),
        ("dark", [line for line in long_life.lines if int(line.rsplit(maxsplit=1)[1]) not in dark]),
    ):
        (tmp_path / name).mkdir()
        with prometheus.serving(tmp_path / name, lines) as url:
            ((usage,), _) = counters.read(asked(url), LONG // 3600 + 2, "", hourly=True)
            assert cli.main(["usage", "--since", "30h", "--prometheus", url, "-o", "json"]) == 0
        hours = [each for each in json.loads(capsys.readouterr().out)["hours"] if each["pool"] is None]
        lost = {each["hour"] // 3_600_000: each["notRecorded"] for each in hours}
        found, expected = usage.book.hourly, long_life.record.book.hourly
        if name == "dark":
            assert {key.hour for key in expected} - {key.hour for key in found} == {first}
            assert lost[first] == 1
            assert lost[first - 1] == pytest.approx(1000 / 3600, abs=5 * SCRAPE / 3600)
            assert lost[first + 1] == pytest.approx(1000 / 3600, abs=5 * SCRAPE / 3600)
            continue
        assert found.keys() == expected.keys()
        for key, true in expected.items():
            # What was counted between two scrapes belongs to the hour of the later one.
            for mine, other in zip(found[key], true, strict=True):
                assert mine == pytest.approx(other, rel=0.01, abs=8 * 5 * SCRAPE * 1000)
        for number in range(6):
            mine, other = (sum(each[number] for each in rows.values()) for rows in (found, expected))
            assert mine == pytest.approx(other, rel=0.01, abs=LOST)
        assert sum(each["workingSliceHours"] for each in hours) == pytest.approx(
            sum(used.working for used in long_life.record.book.holders.values()) / 3_600_000, rel=0.01
        )


@pytest.mark.parametrize("why", ["even_bytes", "read its agent"])
def test_no_advice_comes_from_counters_that_may_hide_a_need(
    why: str, long_life: LongLife, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prometheus has read nothing for an hour, or the agent does not say whether processes are equal."""
    monkeypatch.setattr(counters._AskedPrometheus, "now", lambda _: long_life.now)
    dark = range(long_life.now - 7200, long_life.now - 3600)
    kept = [
        line
        for line in long_life.lines
        if why not in line and (why == "even_bytes" or int(line.rsplit(maxsplit=1)[1]) not in dark)
    ]
    with prometheus.serving(tmp_path, kept) as url:
        ((usage,), _) = counters.with_peaks(asked(url), LONG // 3600 + 2)
    assert why in usage.trouble
    assert [each for each in advice.advise([usage]).workloads if not each.unknown] == []


JOB = {"job_name": "agents", "scrape_interval": "2s", "scrape_timeout": "2s", "honor_labels": True}


@pytest.mark.thorough
def test_containers_of_seconds_are_counted_in_full(tmp_path: Path) -> None:
    """A real scrape reads the agent. Most containers begin and end between two of them."""
    agent = UsageRecorder("node-1", NodeSlices, None, lambda _: None)
    metrics = AgentMetrics(usage=lambda: agent.totals)

    def look(*names: str) -> None:
        holders = (
            HolderLook(each, f"team-{each[-1]}", f"Job/{each}", each, "main", (CardShare("GPU-0", 1, True, 1000),))
            for each in names
        )
        agent._advance(NodeLook((A10,), tuple(holders)), time.monotonic())
        metrics.saw(LastLook())

    def in_full() -> bool:
        ((usage,), _) = counters.read(asked(url, ("job", "agents")), 2, "")
        own = agent.usage(2)  # an hour may have begun meanwhile
        cards = zip(usage.book.cards.values(), own.book.cards.values(), strict=True)
        # Its slices are counted each on its own, and rounded to milliseconds.
        return rows(usage) == rows(own) and all(one == pytest.approx(other, abs=A10.slices) for one, other in cards)

    look()
    with listening(lambda each: each.give(200, metrics.text(), Content_Type="text/plain; version=0.0.4")) as target:
        job = {**JOB, "static_configs": [{"targets": [target.removeprefix("http://")]}]}
        with prometheus.running(tmp_path, yaml.safe_dump({"scrape_configs": [job]})) as url:
            for number in range(40):
                look(f"long-{number // 20}", f"short-{number // 2}")
                time.sleep(0.4)
            look()
            assert len(rows(agent.usage(2))) == 22
            until(in_full, "Prometheus has all that the record has", pause=1)
