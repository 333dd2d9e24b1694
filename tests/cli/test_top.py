"""`slicewarden top`: what each container does now, from agents' metrics and their usage records."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.node_agents import cluster
from tests.support.strangers import HOSTILE, harmful
from webhook.cli import main as cli
from webhook.cli import usages
from webhook.cli.commands import top
from webhook.model import Problem, Unusable
from webhook.reports import top_report
from webhook.reports.top_report import NodeNow
from webhook.text.words import one_line
from webhook.usage import document
from webhook.usage.document import ContainerNow, NodeUsage
from webhook.usage.scraped import CardNow, NodeScrape, UseNow

MIB = 2**20


def quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def sample(name: str, value: float, **labels: str) -> str:
    inside = ",".join(f'{key}="{quoted(text)}"' for key, text in labels.items())
    return f"slicewarden_node_{name}{{{inside}}} {value}\n"


def container(
    pod: str, mib: int, sm: float, state: str = "within", namespace: str = "team", card: str = "GPU-0"
) -> str:
    names = {"namespace": namespace, "pod": pod, "container": "main", "gpu": card}
    return (
        sample("use_bytes", mib * MIB, **names)
        + sample("allowance_bytes", 5000 * MIB, **names)
        + sample("sm_ratio", sm, **names)
        + sample("state", 1, **names, state=state)
        + (sample("reported", 1, **names) if state == "over" else "")
    )


def metrics(*containers: str, counts: bool = False, model: str = "NVIDIA A10", age: float = 0.5) -> bytes:
    card = {"gpu": "GPU-0", "index": "0", "model": model}
    text = "# TYPE slicewarden_node_use_bytes gauge\n" + "".join(containers)
    text += sample("card_used_bytes", 9000 * MIB, **card) + sample("card_total_bytes", 24_000 * MIB, **card)
    text += sample("card_unattributed_bytes", 100 * MIB, **card) + sample("card_busy_ratio", 0.97, **card)
    text += f"slicewarden_node_look_age_seconds {age}\n"
    return (text + ("slicewarden_node_usage_unsaved 0.0\n" if counts else "")).encode()


def record(node: str = "node-1") -> NodeUsage:
    held = ContainerNow("team", "Job/a", "a", "main", "GPU-0", "shared", 1, 7_260_000, 600_000, 3000, 5000, True)
    waits = held._replace(pod="waits", workload="Job/waits", slices=2, card="")
    return NodeUsage(node, 0, 1, now=(held, waits))


NOTE = (
    "note: node-1: without a usage record (slicewarden agent --usage), containers that have no process on a GPU are "
    "not shown"
)


AS_OF = "note: node-1: its usage record is as of 1970-01-01 00:00 UTC"


def test_containers_are_below_their_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "node-1.txt").write_bytes(metrics(container("a", 3000, 0), container("b", 6000, 0.9, "over")))
    assert cli.main(["top", "--from", str(tmp_path / "node-1.txt")]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "  namespace  pod  container  slices   MiB  cap MiB  SM %  held  idle  state",
        "node-1 GPU 0 NVIDIA A10 GPU-0: 9000 of 24000 MiB in use, 100 outside any container, busy 97 %, 2 containers",
        "  team       a    main            -  3000     5000     0     -     -  within",
        "  team       b    main            -  6000     5000    90     -     0  over, reported",
    ]
    assert err.splitlines() == [NOTE]


def test_with_a_record_there_are_also_the_containers_without_a_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "node-1.txt").write_bytes(metrics(container("a", 3000, 0), counts=True))
    (tmp_path / "usage.json").write_text(document.write(record()))
    files = ["--from", str(tmp_path / "usage.json"), "--from", str(tmp_path / "node-1.txt")]
    assert cli.main(["top", *files]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[2:] == [
        "  team       a      main            1  3000     5000     0  2h 01m  0h 10m  within",
        "node-1: GPU not known yet",
        "  team       waits  main            2     -     5000     -  2h 01m  0h 10m  no process",
    ]
    assert err == f"{AS_OF}\n"
    assert cli.main(["top", "-o", "json", *files]) == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["kind"], value["unseenNodes"]) == ("TopReport", [])
    assert value["notes"] == [AS_OF.removeprefix("note: ")]
    known, unknown = value["cards"]
    assert (known["uuid"], known["usedMiB"], known["noContainerMiB"], known["busyPercent"]) == ("GPU-0", 9000, 100, 97)
    assert known["containers"] == [
        {
            "namespace": "team",
            "pod": "a",
            "container": "main",
            "workload": "Job/a",
            "slices": 1,
            "usedMiB": 3000,
            "allowanceMiB": 5000,
            "smPercent": 0,
            "state": "within",
            "reported": False,
            "frozen": False,
            "seenSeconds": 7260,
            "idleSeconds": 600,
        }
    ]
    assert [each["pod"] for each in unknown["containers"]] == ["waits"]


def test_a_record_without_metrics_says_what_it_knows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "usage.json").write_text(document.write(record()))
    assert cli.main(["top", "--namespace", "team", "--from", str(tmp_path / "usage.json")]) == 0
    out, err = capsys.readouterr()
    assert "node-1 GPU GPU-0: memory unknown, 1 container\n" in out
    assert err.splitlines() == [
        "note: node-1: without its agent's metrics, the use of its cards is not known",
        AS_OF,
    ]


def node(name: str, *uses: UseNow, cards: int = 1) -> NodeNow:
    return NodeNow(name, NodeScrape(tuple(CardNow(f"{name}-{n}", str(n)) for n in range(cards)), uses, 0.0))


def use(pod: str, card: str, mib: int | None, sm: int | None = 0, cap: int | None = 5000) -> UseNow:
    return UseNow("team", pod, "main", card, mib, cap, sm)


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("name", ["n1-0:", "n1-1:b,c", "n2-0:a,d"]),
        ("used", ["n2-0:a,d", "n1-1:b,c", "n1-0:"]),
        ("work", ["n1-1:b,c", "n2-0:d,a", "n1-0:"]),
        ("over", ["n1-1:b,c", "n2-0:d,a", "n1-0:"]),
    ],
)
def test_rows_are_sorted_within_their_card_and_cards_by_their_first_row(sort: str, order: list[str]) -> None:
    found = top_report.cards(
        [
            node("n2", use("a", "n2-0", 9000, 10, 20_000), use("d", "n2-0", 100, 20)),
            node("n1", use("b", "n1-1", 6000, 90), use("c", "n1-1", None, None), cards=2),
        ],
        sort,
    )
    assert [f"{each.card.uuid}:{','.join(row.use.pod for row in each.rows)}" for each in found] == order


def test_the_longest_idle_container_is_first() -> None:
    held = record().now[0]
    usage = NodeUsage("n", 0, 1, now=tuple(held._replace(pod=pod, idle=time) for pod, time in (("a", 1), ("b", 9))))
    known = node("n", use("a", "n-0", 1), use("b", "n-0", 1), use("c", "n-0", 1, 50))._replace(usage=usage)
    (card,) = top_report.cards([known], "idle")
    assert [(row.use.pod, row.idle) for row in card.rows] == [("b", 9), ("a", 1), ("c", 0)]


def test_slices_are_shown_on_the_card_of_the_record_only() -> None:
    """The record says how many of its first card a container holds. On two rows, they would be counted twice."""
    held = record().now[0]._replace(card="n-0", slices=2)
    known = node("n", use("a", "n-0", 1), use("a", "n-1", 1), cards=2)._replace(usage=NodeUsage("n", 0, 1, now=(held,)))
    found = top_report.cards([known])
    assert [row.slices for each in found for row in each.rows] == [2, None]
    assert [line.split()[3] for line in top_report.table(found).splitlines() if line.startswith("  team")] == ["2", "-"]
    assert '"slices": null' in top_report.write(found, [], [])


def test_a_namespace_has_only_its_containers_and_their_cards() -> None:
    other = use("x", "n1-0", 1)._replace(namespace="other")
    found = top_report.cards([node("n1", other, use("a", "n1-1", 1), cards=3)], "name", "team")
    assert [(each.card.uuid, len(each.rows)) for each in found] == [("n1-1", 1)]


def test_cards_have_the_order_of_their_numbers() -> None:
    found = top_report.cards([node("n", cards=11)])
    assert [each.card.number for each in found] == [str(number) for number in range(11)]


def test_a_thousand_cards_are_all_shown() -> None:
    nodes = [
        node(f"n{n}", *(use(f"p{c}-{k}", f"n{n}-{c}", 1) for c in range(8) for k in range(4)), cards=8)
        for n in range(125)
    ]
    found = top_report.cards(nodes, "used")
    assert len(found) == 1000
    assert top_report.table(found).count("\n") == 1 + 1000 + 4000


def test_what_is_wrong_or_old_is_noted() -> None:
    wrong = NodeNow("n", NodeScrape((), (), 61.0, (("no hook", 1), ("wider", 2))), silent="HTTP 429")
    assert [*top_report.notes([wrong, NodeNow("m", NodeScrape(), record("m"))])] == [
        "note: n: its agent looked at the cards 61 s before",
        "note: n: the driver's limit of containers is wrong: no hook (1), wider (2); see slicewarden agent --once",
        "note: n: its usage record is not known: HTTP 429",
        "note: m: its agent sees no GPU: it has not looked yet, or NVML fails",
    ]


def test_a_long_name_moves_no_number_off_the_screen() -> None:
    """A tenant may give its pods names of 253 characters, and an impostor of an agent any."""
    names = use(f"{'x' * 230}-7d9f8c5b4-abcde", "n-0", 1)._replace(namespace="\x1b" * 500, container="c" * 500)
    lines = top_report.table(top_report.cards([node("n", names, use("a", "n-0", 1))])).splitlines()
    assert max(map(len, lines)) < 200
    assert "-7d9f8c5b4-abcde" in lines[-1] + lines[-2]


@pytest.mark.parametrize("options", [["-o", "table"], ["-o", "json"], ["--sort", "used"]])
def test_no_text_of_an_agent_is_a_command(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = container(HOSTILE, 1, 0, HOSTILE, HOSTILE, HOSTILE) + sample("limit_faults", 1, fault=HOSTILE)
    (tmp_path / "node.txt").write_bytes(metrics(evil, model=HOSTILE))
    usage = NodeUsage(
        HOSTILE,
        0,
        1,
        now=(ContainerNow(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, 1, 1, 1, 1, 1, True),),
        trouble=HOSTILE,
    )
    (tmp_path / "usage.json").write_text(document.write(usage))
    files = ["--from", str(tmp_path / "node.txt"), "--from", str(tmp_path / "usage.json")]
    assert cli.main(["top", *options, *files]) == 0
    out, err = capsys.readouterr()
    assert "forged" in out
    assert harmful(out, "") == []
    assert harmful(err, "") == []


@pytest.mark.parametrize("text", ["", "{}", "[]", "slicewarden_node_use_bytes 1\n", "{" * 100_000, "\xff"])
def test_an_unusable_file_is_one_error(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "f").write_bytes(text.encode("latin-1"))
    assert cli.main(["top", "--from", str(tmp_path / "f")]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)


# A cluster


def answers(*nodes: str) -> dict[str, tuple[int, bytes]]:
    return {name: (200, document.write(record(name)).encode()) for name in nodes}


def test_every_agent_is_asked_and_those_that_do_not_answer_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scraped = {
        "node-1": (200, metrics(container("a", 3000, 0), counts=True)),
        "node-2": (200, metrics(container("b", 6000, 0.9, "over"))),
        "node-3": (200, metrics(counts=True)),
        "node-4": (403, b"{}"),
        "node-5": (404, b"{}"),
        "node-6": (200, b"x"),
        "node-7": (200, metrics(counts=True)),
    }
    known = {**answers("node-1"), "node-3": (429, b""), "node-7": (200, document.write(record()).encode())}
    asked: list[str] = []
    with cluster(tmp_path, known, [*scraped, "node-8"], scraped, asked) as options:
        assert cli.main(["top", *options]) == 1
    out, err = capsys.readouterr()
    assert "  team       a      main            1  3000     5000     0  2h 01m  0h 10m  within" in out
    assert "over, reported" in out
    assert err.splitlines() == [
        "note: node-3: its usage record is not known: HTTP 429: it was asked too often; try again in a few seconds",
        "note: node-7: its usage record is not known: its agent answers for another node",
        NOTE.replace("node-1", "node-2"),
        "not seen: node-8: no agent runs there",
        "not seen: node-4: HTTP 403: you may not `get` pods/proxy in the namespace of the agents",
        "not seen: node-5: HTTP 404",
        "not seen: node-6: its agent's answer cannot be used: it has no metrics of an agent",
    ]
    assert not [path for path in asked if "agent-node-2" in path and path.endswith("usage")], "it keeps no record"


def test_the_live_view_ends_with_ctrl_c_and_survives_a_lost_api_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    scraped = {"node-1": (200, metrics(container("a", 3000, 0), counts=True))}
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((100, 30)))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    def lost(*_: object) -> None:
        raise Unusable([Problem("pods", 0, "the API server does not answer")])

    def rounds(_: float) -> Iterator[None]:
        yield
        scraped["node-1"] = (200, metrics(container("new", 1000, 0), counts=True))
        yield
        monkeypatch.setattr("webhook.cli.usages.ask_all", lost)
        yield
        raise KeyboardInterrupt

    left = rounds(0)
    next(left)
    monkeypatch.setattr("time.sleep", lambda _: next(left))
    with cluster(tmp_path, answers("node-1"), ["node-1"], scraped, asked) as options:
        assert cli.main(["top", *options]) == 0
    screens = capsys.readouterr().out.split("\033[2J\033[3J\033[H")[1:]
    assert ["new" in screen for screen in screens] == [False, True, False]
    assert "error: pods: the API server does not answer" in screens[2]
    assert all(re.match(r"\d\d:\d\d:\d\d, asked in \d+\.\d s; Ctrl-C ends\n", screen) for screen in screens)
    assert all(len(line) <= 100 for screen in screens for line in screen.splitlines())
    assert len([path for path in asked if path.endswith("usage")]) == 1, "a record is kept for a while"


INTERRUPTED = """
import os, signal, sys, threading
from webhook.cli import main, usages
def scrape(agent):
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait()
usages.AskedAgent.scrape = scrape
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main.main(["top", *sys.argv[1:]]))
"""


def test_ctrl_c_does_not_wait_for_an_agent(tmp_path: Path) -> None:
    nodes = [f"node-{number}" for number in range(9)]
    with cluster(tmp_path, {}, nodes, dict.fromkeys(nodes, (200, metrics()))) as options:
        run = subprocess.run([sys.executable, "-c", INTERRUPTED, *options], capture_output=True, timeout=300)
    assert run.returncode == 130, run.stderr


def test_a_slow_agent_is_asked_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else four of them would use up the time of a round, and nobody else would be seen."""
    monkeypatch.setattr("webhook.cli.usages.AT_ONCE", 1)
    scraped = dict.fromkeys(("node-1", "node-2", "node-3"), (200, metrics()))
    asked: list[str] = []
    took = {"node-1": 9.0}

    def ask(agent: usages.AskedAgent) -> str:
        asked.append(agent.node)
        agent.scrape()
        return agent.node

    with cluster(tmp_path, {}, [*scraped], scraped) as options:
        api = usages.connected((), options[-1], None)
        assert api
        assert usages.ask_all(api, ask, 300.0, took) == ([*scraped], [])
        assert asked == ["node-2", "node-3", "node-1"]
        assert took["node-1"] < 9
        why = "there was no time left to ask its agent"
        assert usages.ask_all(api, ask, -1.0) == ([], [(node, why) for node in scraped])


def test_a_screen_shows_as_much_as_fits() -> None:
    lines = [f"{number} \x1b[2J{'x' * 200}" for number in range(50)]
    shown = top.fitted(lines, 80, 24)
    assert len(shown) == 23
    assert all(len(line) <= 80 and line.isprintable() for line in shown)
    assert shown[-1].startswith("28 more lines; ")
    assert top.fitted(lines[:3], 80, 24) == [one_line(line)[:80] for line in lines[:3]]
