"""`slicewarden ui`: a page on loopback, of a cluster or of files."""

import http.client
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import pytest

from tests import ROOT
from tests.support.node_agents import cluster
from tests.support.usage_books import STEADY, book, usage
from webhook.cli import inputs, live
from webhook.cli import main as cli
from webhook.cli.commands import ui
from webhook.cli.counters import UsageSource
from webhook.cluster.client import Api
from webhook.facts.snapshot import Facts
from webhook.reports import top_report
from webhook.reports.top_report import NodeNow
from webhook.ui.server import PageServer
from webhook.usage import document
from webhook.usage.document import ContainerNow, NodeUsage
from webhook.usage.scraped import CardNow, NodeScrape

SAMPLE = ROOT / "webhook" / "sample"
POLICY = ["--policy", str(SAMPLE / "policy.yaml")]
NO_SOURCE = UsageSource([], None, None)


def record() -> NodeUsage:
    """A node with a container now, and the two days before."""
    now = ContainerNow("team", "Job/a", "train-0", "main", "GPU-0", "shared", 1, 7_260_000, 600_000, 3000, 5000, True)
    return replace(usage(book(STEADY), len(STEADY)), now=(now,))


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, str]]:
    """Run the command, and return the parts of its page once all are there. The address that it printed is `url`."""
    serve = PageServer.serve_forever

    def run(*arguments: str, names: set[str]) -> dict[str, str]:
        found = dict[str, str]()

        def serving(server: PageServer) -> None:
            thread = threading.Thread(target=serve, args=(server, 0.02))
            thread.start()
            found["url"] = capsys.readouterr().out.strip()
            url = urlsplit(found["url"])
            connection = http.client.HTTPConnection(url.netloc, timeout=300)
            connection.request("GET", url.path)
            found["page"] = connection.getresponse().read().decode()
            connection.close()
            connection.request("GET", f"{url.path}live")
            for each in parts(connection.getresponse()):
                found[each["part"]] = each["html"]
                if names <= found.keys():
                    break
            connection.close()
            server.shutdown()
            thread.join()

        monkeypatch.setattr(PageServer, "serve_forever", serving)
        assert cli.main(["ui", "--no-browser", *POLICY, *arguments]) == 0
        return found

    return run


def parts(answer: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    for line in answer:
        if line.startswith(b"data: "):
            yield json.loads(line.removeprefix(b"data: "))


def test_files_are_a_page_without_a_cluster(tmp_path: Path, page: Callable[..., dict[str, str]]) -> None:
    (tmp_path / "usage.json").write_text(document.write(record()))
    facts = ["--facts", str(SAMPLE / "facts.yaml"), "--from", str(tmp_path / "usage.json")]
    found = page(*facts, names={"cards", "pools", "usage"})
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{43}/", found["url"])
    assert "train-0" in found["cards"]
    assert "Tesla-T4" in found["pools"]
    assert "120.0" in found["usage"]
    assert found["usage"].count('<figure class="plot"') == 4, "a day and a month, of all pools and of one"
    assert re.findall(r'<section id="(\w+)"', found["page"]) == ["cards", "pools", "usage"], "others need a cluster"


def test_a_cluster_is_asked_and_what_may_not_be_read_is_named(
    tmp_path: Path, page: Callable[..., dict[str, str]]
) -> None:
    """The API server of this test has agents and no lists of anything else."""
    answers = {"node-1": (200, document.write(record()).encode())}
    metrics = b"# TYPE slicewarden_node_use_bytes gauge\nslicewarden_node_usage_unsaved 0\n"
    with cluster(tmp_path, answers, None, {"node-1": (200, metrics)}) as options:
        found = page(*options, "--namespace", "team", names={"cards", "pools", "usage", "events", "enforcing"})
    assert "train-0" in found["cards"]
    assert "nodes without an agent are not known" in found["cards"]
    for name in ("pools", "events", "enforcing"):
        assert 'class="unread"' in found[name], name
    assert "team" in found["page"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--facts", "f", "--kubeconfig", "k"], "--facts needs no cluster"),
        (["--from", "f", "--context", "c"], "--from needs no cluster"),
        (["--port", "65536"], "not a number from 0 to 65535"),
    ],
)
def test_options_that_conflict_are_errors(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ui", *POLICY, *arguments]) == 2
    assert said in capsys.readouterr().err


def test_the_browser_gets_an_address_that_works_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other users of the machine can read the command line of a browser. It may end only with its window."""
    opened, answers, done = list[str](), list[tuple[int, str | None]](), threading.Event()
    serve = PageServer.serve_forever

    def browse(address: str) -> None:
        url = urlsplit(address)
        for _ in range(2):
            connection = http.client.HTTPConnection(url.netloc, timeout=300)
            connection.request("GET", url.path)
            answer = connection.getresponse()
            answers.append((answer.status, answer.headers["Location"]))
            connection.close()
        opened.append(address)
        done.set()

    def serving(server: PageServer) -> None:
        thread = threading.Thread(target=serve, args=(server, 0.02))
        thread.start()
        assert done.wait(300)
        server.shutdown()
        thread.join()

    monkeypatch.setattr("webbrowser.open", browse)
    monkeypatch.setattr(PageServer, "serve_forever", serving)
    monkeypatch.setenv("DISPLAY", ":0")
    assert cli.main(["ui", *POLICY, "--facts", str(SAMPLE / "facts.yaml")]) == 0
    printed = urlsplit(capsys.readouterr().out.strip())
    assert printed.path not in opened[0]
    assert answers == [(303, printed.path), (410, None)]


def test_a_card_leaves_a_pool_with_the_labels_of_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page may be open for days, in which nodes come and go, and move to other pools."""
    engine = inputs.engine(str(SAMPLE / "policy.yaml"))
    labels: list[dict[str, str]] = [{"nvidia.com/gpu.sharing-strategy": "time-slicing"}, {}]

    def facts(*_: object) -> tuple[Facts, tuple[()]]:
        return Facts.of([{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": labels.pop(0)}}]), ()

    monkeypatch.setattr(ui, "_facts", facts)
    scrape = NodeScrape((CardNow("GPU-1", "0", total=15360),))
    found = live.TopRound([NodeNow("n", scrape)], top_report.cards([NodeNow("n", scrape)]), [], [])
    monkeypatch.setattr(ui, "Rounds", lambda *_: lambda: found)
    parts = {part.name: part.read for part in ui._parts(cast("Api", object()), engine, NO_SOURCE, None, None)}
    parts["pools"]()
    assert "Pool <bdi>shared</bdi>" in parts["cards"]()
    parts["pools"]()
    assert "Cards whose pool is not known" in parts["cards"]()


def test_nodes_that_have_left_the_cluster_are_forgotten() -> None:
    """A record has up to 0.5 MiB, and a cluster may have a thousand new nodes a day."""
    records = live.Records()
    for node in ("here", "gone"):
        records._kept[node] = 0.0, record()
    rounds = live.Rounds(None, NO_SOURCE)
    rounds._records, rounds._took = records, {"here": 1.0, "gone": 1.0}
    rounds._forget({"here", "new"})
    assert ([*records._kept], rounds._took) == (["here"], {"here": 1.0})


def test_ctrl_c_ends_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "webhook", "ui", "--no-browser", *POLICY, "--facts", str(SAMPLE / "facts.yaml")]
    # A shell has its background jobs ignore SIGINT, and so would what they start.
    run = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    assert run.stdout
    url = urlsplit(run.stdout.readline().strip())
    connection = http.client.HTTPConnection(url.netloc, timeout=300)
    connection.request("GET", f"{url.path}live")
    answer = connection.getresponse()
    assert next(parts(answer))["part"] == "pools"
    run.send_signal(signal.SIGINT)
    said = run.communicate(timeout=300)[1]
    assert (run.returncode, said) == (0, "note: the page is on this machine only; Ctrl-C ends it\n")
