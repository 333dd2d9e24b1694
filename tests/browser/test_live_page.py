"""The page of `slicewarden ui` in a browser: it renews itself, shows strangers' names as text, and can be read by all.

`make browser` keeps what it saw under `.screenshots/`.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import pairwise

import pytest

from tests import ROOT
from tests.support import chromium
from tests.support.chromium import Tab
from tests.support.listening import Asked, listening
from tests.support.usage_books import STEADY, book, usage
from webhook import rules
from webhook.cluster.event_list import ListedEvent
from webhook.facts.kinds.pod import Holder
from webhook.facts.snapshot import Facts
from webhook.model import Action, Finding, Problem, Result, Verdict
from webhook.policy.model import Policy
from webhook.reports import top_report, usage_page, usage_report
from webhook.reports.formats import html
from webhook.reports.top_report import NOT_REQUESTED, NodeNow
from webhook.scan.audit import Audited, RootOwner
from webhook.scan.results import Report
from webhook.ui import parts, server
from webhook.ui.board import Board, LivePart
from webhook.ui.server import Keys, PageServer
from webhook.usage.document import ContainerNow, NodeUsage
from webhook.usage.scraped import CardNow, NodeScrape, UseNow

SHOTS = ROOT / ".screenshots"

HOSTILE = (
    "<script>document.title='taken'</script>",
    "<img src=https://example.com/x onerror=document.title='taken'>",
    "\"'><svg/onload=document.title='taken'>",
    "</li></ul></div></section></main><h1>Slicewarden</h1><form action=https://example.com>",
    "data: x\n\nevent: part\ndata: {}",
    "{{ 7 * 7 }}</style><!--",
    "\u202egnp.exe\u2066",
    "long" * 60,
)


def node(number: int, mib: int, *strangers: str) -> NodeNow:
    """A node with two cards, of which tenants share the first one."""
    cards = (
        CardNow(f"GPU-{number}a", "0", "NVIDIA A10", mib + 4000, 23_028, 210, 97),
        CardNow(f"GPU-{number}b", "1", "NVIDIA A10", 0, 23_028, 0, 0),
    )
    uses = (
        UseNow("team-a", "notebook", "main", cards[0].uuid, mib, 5641, 3, "within"),
        UseNow("team-b", "train-0", "main", cards[0].uuid, 3000, 5641, 88, "within"),
        *(UseNow(name, name, name, cards[0].uuid, 700, None, 9, NOT_REQUESTED, True) for name in strangers),
    )
    idle = ContainerNow("team-a", "Job/n", "waits", "main", cards[1].uuid, "shared", 1, 10**8, 10**7, 0, 5641, True)
    return NodeNow(f"node-{number}", NodeScrape(cards, uses, 0.4, counts=True), NodeUsage("", 0, 1, now=(idle,)))


def cards(*nodes: NodeNow) -> str:
    return parts.cards(nodes, top_report.cards(nodes), ["node-9: no agent runs there"], {"node-1": "shared"}, "")


def pools(policy: Policy, facts: Facts) -> str:
    return parts.pools(policy, facts, [Problem("cluster", 0, "pods may not be listed: pods is forbidden")])


def used() -> str:
    """What the agent of a node has counted in two days, of which its name is a stranger's."""
    sums = usage_report.sums([usage(book(STEADY, namespace=HOSTILE[0]), len(STEADY))], [], "namespace", {})
    return usage_page.fragment(sums)


def events() -> str:
    at = datetime(2026, 11, 27, 12, tzinfo=UTC)
    names = ("team-a", *HOSTILE)
    found = {
        name: [ListedEvent(at, name, "ReplicaSet", name, "GPUPolicyDenied", f"multiple-slices: {name}", 3, True, "w")]
        for name in names
    }
    idle = ListedEvent(at, "team-a", "Pod", "waits", "GPUIdle", "no work for 3 h", 1, False, "slicewarden.dev/agent")
    found["team-a"].append(idle)
    return parts.events(found, [])


def enforcing(policy: Policy) -> str:
    def audited(name: str, action: Action) -> Audited:
        verdict = Verdict((Result("multiple-slices", action, Finding(("spec",), f"2 slices in {name}"), ""),))
        owner = RootOwner("apps/v1", "Deployment", name, name)
        return Audited("", 0, 0, "v1", "Pod", name, name, verdict, (0,), source=owner)

    judged = (
        audited("team-a", Action.DENY),
        audited("team-b", Action.WARN),
        *(audited(n, Action.DENY) for n in HOSTILE),
    )
    return html.audit_fragment(Report(judged, policy=policy, at=datetime(2026, 11, 27, tzinfo=UTC)), 40)


class Live:
    """A page whose cards are `nodes`. `renew` shows others."""

    def __init__(self, policy: Policy, facts: Facts) -> None:
        assert rules.walk()
        self.nodes = [node(1, 4980, *HOSTILE)]
        self._more = threading.Semaphore(0)
        self._first = True
        self.keys = Keys()
        self.board = Board(
            [
                LivePart("cards", "Cards now", 0.0, self._cards),
                LivePart("pools", "Pools", 300.0, lambda: pools(policy, facts)),
                LivePart("usage", "A day and a month of use", 300.0, used),
                LivePart("events", "Denials and warnings", 300.0, events),
                LivePart("enforcing", "If the policy is enforced", 300.0, lambda: enforcing(policy)),
            ],
            print,
        )
        self.url = ""

    def _cards(self) -> str:
        if not self._first:
            self._more.acquire()
        self._first = False
        return cards(*self.nodes)

    def renew(self, *nodes: NodeNow) -> None:
        self.nodes = [*nodes]
        self._more.release()

    @contextmanager
    def serving(self) -> Iterator[None]:
        with server.opened(0) as listening_at:
            port = listening_at.getsockname()[1]
            about = (("cluster", "https://c.example"), ("namespace", "all"), ("policy", "sample"))
            app = server.application(self.board, self.keys, port, about)
            running = PageServer(listening_at, app, {os.getuid()}, print)
        self.url = f"http://127.0.0.1:{port}/{self.keys.token}/"
        thread = threading.Thread(target=running.serve_forever, args=(0.02,))
        thread.start()
        self.board.start()
        try:
            yield
        finally:
            self.board.stop()
            self._more.release(100)
            running.shutdown()
            thread.join()


@pytest.fixture
def live(sample_policy: Policy, sample_facts: Facts) -> Iterator[Live]:
    holders = tuple(Holder(name, "pod", "t4-shared", {"nvidia.com/gpu": 1}) for name in ("vision", HOSTILE[0]))
    facts = Facts(namespaces=sample_facts.namespaces, nodes=sample_facts.nodes, holders=holders)
    made = Live(sample_policy, facts)
    with made.serving():
        yield made


def opened(tab: Tab, live: Live) -> Tab:
    """Open the page, and wait until each part is there."""
    tab.look()
    tab.visit(live.url)
    wait(tab, "[...document.querySelectorAll('section')].every((each) => each.dataset.version > 0)")
    return tab


def wait(tab: Tab, holds: str) -> None:
    """Wait until an expression is true in the page, and a frame longer."""
    tab.evaluate(
        f"new Promise((done) => {{ const look = () => ({holds}) ? setTimeout(done) : setTimeout(look, 20); look(); }})"
    )


def text(tab: Tab) -> str:
    return str(tab.evaluate("document.body.textContent"))


def test_the_page_shows_strangers_names_as_text(tab: Tab, live: Live) -> None:
    opened(tab, live)
    assert tab.said() == []
    assert {address.partition(live.url)[2] for address in tab.requested()} == {"", "live"}
    assert tab.evaluate("document.title") == "Slicewarden"
    assert tab.evaluate("document.querySelectorAll('script').length") == 1
    assert tab.evaluate("document.querySelectorAll('h1').length") == 1
    assert tab.evaluate("document.querySelectorAll('form').length") == 1
    assert tab.evaluate("document.querySelectorAll('img, iframe, object, [onload], [onerror], [style]').length") == 0
    for name in (*HOSTILE[:4], HOSTILE[5]):
        assert f"multiple-slices: {name}" in text(tab)
        assert name in tab.evaluate("document.querySelector('#cards').textContent")
    assert "\u202e" not in text(tab)


def test_a_change_is_shown_and_what_is_open_stays_so(tab: Tab, live: Live) -> None:
    opened(tab, live)
    fold = "document.querySelector('#cards details')"
    summary = f"{fold}.querySelector('summary')"
    assert tab.evaluate(f"{fold}.open")
    tab.evaluate(f"{summary}.focus(), {summary}.click()")
    assert "5,555" not in text(tab)
    live.renew(node(1, 5555))
    wait(tab, "document.querySelector('#cards').textContent.includes('8,555 used')")
    assert not tab.evaluate(f"{fold}.open")
    assert tab.evaluate(f"document.activeElement === {summary}"), "a reader with a keyboard stays where they were"
    assert "team-c" not in text(tab)
    assert tab.evaluate("document.querySelector('#state').textContent") == "Live"
    assert tab.said() == []


def test_a_reader_can_pause_it(tab: Tab, live: Live) -> None:
    opened(tab, live)
    tab.evaluate("document.querySelector('#live button').click()")
    assert tab.evaluate("document.querySelector('#live button').ariaPressed") == "true"
    before = tab.evaluate("document.querySelector('#cards').dataset.version")
    live.renew(node(1, 5555))
    live.board.changes({"cards": int(before)}, 300.0)
    tab.evaluate("fetch('live').then((answer) => answer.body.cancel())")
    assert tab.evaluate("document.querySelector('#cards').dataset.version") == before
    tab.evaluate("document.querySelector('#live button').click()")
    wait(tab, "document.querySelector('#cards').textContent.includes('8,555 used')")


def test_a_change_of_a_program_that_got_the_port_is_not_shown(tab: Tab, live: Live) -> None:
    """It cannot know the proof, which the page has from the real server."""
    opened(tab, live)
    tab.evaluate(
        "{ document.querySelector('#live').dataset.proof = 'another'; const parse = JSON.parse;"
        " JSON.parse = (text) => { if (text.includes('8,555 used')) document.title = 'came'; return parse(text); }; }"
    )
    live.renew(node(1, 5555))
    wait(tab, "document.title === 'came'")
    assert "8,555 used" not in text(tab)


def test_the_end_of_the_command_is_said(tab: Tab, live: Live) -> None:
    opened(tab, live)
    live.board.stop()
    live.renew()
    wait(tab, "document.querySelector('#state').textContent.startsWith('Not connected')")
    assert "team-a" in text(tab), "what was read stays"


@pytest.mark.parametrize("dark", [False, True])
def test_the_live_page_is_seen(tab: Tab, live: Live, dark: bool) -> None:
    opened(tab, live)
    tab.look(dark=dark)
    least, where = tab.evaluate(chromium.CONTRAST)
    assert least >= 4.5, where  # WCAG 2.2, 1.4.3
    for width in (1200, 400):
        tab.look(dark=dark, width=width)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
    levels = tab.evaluate("[...document.querySelectorAll('h1, h2, h3, h4')].map((each) => Number(each.tagName[1]))")
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert tab.evaluate("[...document.querySelectorAll('th')].every((cell) => cell.scope)")
    ids = tab.evaluate("[...document.querySelectorAll('[id]')].map((each) => each.id)")
    assert len(ids) == len(set(ids))
    height = tab.evaluate("document.documentElement.scrollHeight")
    tab.look(dark=dark, height=min(height, 8000))
    SHOTS.mkdir(exist_ok=True)
    (SHOTS / f"ui-{'dark' if dark else 'light'}.png").write_bytes(tab.screenshot())
    tab.look()
    printed = tab.printed()
    assert printed.startswith(b"%PDF")
    (SHOTS / "ui.pdf").write_bytes(printed)


# Strangers in the same browser

ATTACKS: dict[str, Callable[[str], str]] = {
    "reads it": lambda url: f"fetch('{url}', {{credentials: 'include'}}).then((a) => a.text())",
    "reads what changes": lambda url: f"fetch('{url}live').then((a) => a.text())",
    "listens": lambda url: (
        f"new Promise((done, fail) => {{ const source = new EventSource('{url}live');"
        " source.addEventListener('part', (event) => done(event.data)); source.onerror = fail; })"
    ),
    "frames it": lambda url: (
        f"new Promise((done, fail) => {{ const frame = document.createElement('iframe'); frame.src = '{url}';"
        " frame.onload = () => { try { done(frame.contentDocument.body.textContent); } catch { fail(); } };"
        " document.body.append(frame); })"
    ),
    "runs it as a script": lambda url: (
        f"new Promise((done, fail) => {{ const script = document.createElement('script'); script.src = '{url}';"
        " script.onload = () => done('Slicewarden'); script.onerror = fail; document.body.append(script); })"
    ),
    "opens it": lambda url: (
        f"new Promise((done, fail) => {{ const other = open('{url}'); setTimeout(() => {{"
        " try { done(other.document.body.textContent); } catch { fail(); } other?.close(); }, 500); })"
    ),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_page_of_a_stranger_learns_nothing_even_with_the_address(tab: Tab, live: Live, attack: str) -> None:
    """A program on another port of the same machine is of the same site, so a cookie would be sent along."""
    opened(tab, live)  # in the same browser, and open before

    def answer(asked: Asked) -> None:
        asked.give(200, b"<!doctype html><title>stranger</title><p>x</p>", Content_Type="text/html")

    with listening(answer) as stranger:
        tab.visit(stranger)
        learned = tab.evaluate(f"({ATTACKS[attack](live.url)}).then(String, () => 'nothing')")
    assert "team-a" not in learned
    assert "Slicewarden" not in learned
