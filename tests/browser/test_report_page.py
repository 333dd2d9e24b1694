"""The HTML reports in a browser: no error, no request, hostile names as text, and a search that finds.

`make browser` keeps what it saw under `.screenshots/`: the page in light and dark colours, and as it is printed.
"""

from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from tests import ROOT
from tests.support import chromium
from tests.support.chromium import Tab
from webhook import rules
from webhook.documents import files
from webhook.documents.documents import read
from webhook.engine.engine import Engine
from webhook.facts.kinds.pod import Holder
from webhook.facts.snapshot import Facts
from webhook.model import Action, Finding, Problem, Result, Verdict
from webhook.policy.model import Policy
from webhook.reports import usage_page, usage_report
from webhook.reports.formats import html
from webhook.reports.usage_report import UnseenNode
from webhook.scan import diff
from webhook.scan.audit import Audited, RootOwner
from webhook.scan.diff import Change
from webhook.scan.judge import judge
from webhook.scan.results import Judged, Report
from webhook.scan.sharing import overview
from webhook.text.terminal import PLAIN
from webhook.usage.document import NodeUsage
from webhook.usage.record import HOUR, Amounts, Book, CardAmounts, CardKey, HolderKey, HourAmounts, PoolHour

SHOTS = ROOT / ".screenshots"

HOSTILE = (
    "<script>document.title='taken'</script>",
    "<img src=https://example.com/x onerror=alert(1)>",
    "\"'><svg/onload=alert(1)>",
    "{{ 7 * 7 }}</style></script><!--",
    "\u202egnp.exe\u2066",
    "שלום עולם",
    "long" * 200,
    "a\x00b\x1b[31m\ud800",
    "&lt;already&gt; &amp;",
)


def hostile(name: str) -> Judged:
    finding = Finding(("metadata", "annotations", name), f"{name} is wrong; remove {name}")
    results = Result("unknown-annotation", Action.DENY, finding, ""), Result("device-path", Action.AUDIT, finding, name)
    return Judged(
        f"{name}.yaml", 3, 0, "v1", "Pod", name, name, Verdict(results), (4, 5), (), f"- {name}\n+ {name}", "CREATE"
    )


def tour(policy: Policy, facts: Facts) -> list[Judged]:
    engine = Engine(policy, rules.walk())
    found = list[Judged]()
    for file in sorted((ROOT / "webhook/sample/tour").glob("*.yaml")):
        documents, _ = read(file.read_text("utf-8"), file.name)
        items, _ = files.items(documents)
        judged = (judge(item, engine, facts, diffs=True) for item in items)
        found += [each for each in judged if isinstance(each, Judged)]
    return found


@pytest.fixture(scope="module")
def used(sample_facts: Facts) -> Facts:
    """The sample cluster, with pods that share its T4, one of a hostile name."""
    pods = [("vision", "notebook"), ("vision", "training"), ("visitors", HOSTILE[0])]
    return replace(sample_facts, holders=tuple(Holder(*pod, "t4-shared", {"nvidia.com/gpu": 1}) for pod in pods))


@pytest.fixture(scope="module")
def report(sample_policy: Policy, used: Facts) -> Report:
    return Report(
        (*tour(sample_policy, used), *map(hostile, HOSTILE)),
        tuple(Problem(name, 1, f"not YAML: {name}") for name in HOSTILE),
        policy=sample_policy,
        at=datetime(2026, 11, 22, 12, tzinfo=UTC),
        pools=overview(sample_policy, used),
    )


@pytest.fixture(scope="module")
def used_cards() -> str:
    """The page of `slicewarden usage`, with hostile names."""
    card, holders = CardKey(0, "GPU-0", "shared", "A10"), dict[HolderKey, Amounts]()
    for number, name in enumerate(HOSTILE):
        key = HolderKey(0, "GPU-0", "shared", "A10", name, name, name, name)
        holders[key] = Amounts(number * HOUR, number * HOUR // 2, number * HOUR // 3, number, peak=number, cap=number)
    capacity = 200 * HOUR
    held = sum(each.held for each in holders.values())
    amounts = CardAmounts(50 * HOUR, capacity, held, capacity - held - HOUR, HOUR)
    hourly = {
        PoolHour(hour, pool): HourAmounts(HOUR, *(HOUR * (hour * place % 7) // 2 for place in range(1, 6)))
        for hour in range(1, 51)
        for pool in HOSTILE
        if not 20 <= hour <= 44
    }
    book = Book({card: amounts}, holders, hourly=hourly)
    node = NodeUsage("node-1", HOUR, 51 * HOUR, book, trouble=HOSTILE[0])
    unseen = [UnseenNode(name, name) for name in HOSTILE]
    return usage_page.write(usage_report.sums([node], unseen, "workload", {"": 1.5}))


@pytest.fixture(params=["check", "usage"])
def page(request: pytest.FixtureRequest, report: Report, used_cards: str) -> str:
    return html.render(report) if request.param == "check" else used_cards


def opened(tab: Tab, folder: Path, text: str) -> Tab:
    file = folder / "report.html"
    file.write_text(text, "utf-8")
    tab.look()
    tab.open(file)
    return tab


def still(tab: Tab) -> None:
    """Nothing went wrong, and nothing but the page itself was asked for."""
    assert tab.said() == []
    assert [address.partition(":")[0] for address in tab.requested()] == ["file"]


SHOWN = "[...document.querySelectorAll('.entry')].filter((entry) => entry.checkVisibility()).length"


def search(tab: Tab, **fields: str) -> int:
    """Fill in the form as a reader does, and count the objects that are left."""
    for name, value in {"words": "", "action": "", "rule": "", **fields}.items():
        tab.evaluate(f"document.forms.search.elements[{name!r}].value = {value!r}")
    tab.evaluate("document.forms.search.dispatchEvent(new Event('input', {bubbles: true}))")
    tab.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    return int(tab.evaluate(SHOWN))


def test_a_check_shows_hostile_names_as_text(tab: Tab, report: Report, tmp_path: Path) -> None:
    opened(tab, tmp_path, html.render(report))
    still(tab)
    assert tab.evaluate("document.title") == "Slicewarden check"
    assert tab.evaluate("document.querySelectorAll('script').length") == 1
    assert tab.evaluate("document.querySelectorAll('img, iframe, object, [onload], [onerror], [style]').length") == 0
    text = tab.evaluate("document.body.textContent")
    for name in (*HOSTILE[:4], HOSTILE[5], HOSTILE[8]):
        assert f"{name} is wrong" in text
    assert "\u202e" not in text
    assert "\\u202egnp.exe\\u2066 is wrong" in text
    assert "visitors: <script>" in " ".join(text.split())


def test_a_page_is_no_wider_than_the_window(tab: Tab, page: str, tmp_path: Path) -> None:
    opened(tab, tmp_path, page)
    for width in (1200, 400):
        tab.look(width=width)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_a_page_can_be_searched(tab: Tab, report: Report, tmp_path: Path) -> None:
    opened(tab, tmp_path, html.render(report))
    everything = tab.evaluate(SHOWN)
    assert everything > len(HOSTILE)
    assert search(tab, words="sneaky") == 1
    assert search(tab, words="SNEAKY unearned") == 1
    assert search(tab, words="no such pod") == 0
    assert "0 of" in tab.evaluate("document.querySelector('#found').textContent")
    assert search(tab, rule="unknown-annotation") == len(HOSTILE)
    assert search(tab, rule="unknown-annotation", action="audit") == 0
    assert search(tab, rule="device-path", action="audit") == len(HOSTILE)
    assert search(tab, words="<script>") == 1
    assert 0 < search(tab, action="allow") < everything
    assert search(tab) == everything
    still(tab)


def test_the_policy_of_the_page_refuses_what_is_put_into_it(tab: Tab, report: Report, tmp_path: Path) -> None:
    opened(tab, tmp_path, html.render(report))
    tab.evaluate(
        "new Promise((done) => { const other = document.createElement('script');"
        " other.textContent = 'window.taken = 1'; document.body.append(other);"
        " const image = new Image(); image.onerror = done;"
        " image.src = 'https://example.com/x.png'; document.body.append(image); setTimeout(done, 2000); })"
    )
    assert tab.evaluate("typeof window.taken") == "undefined"
    assert "violates the following Content Security Policy" in "".join(tab.said())


@pytest.mark.parametrize("dark", [False, True])
def test_every_text_can_be_read_against_its_ground(tab: Tab, page: str, tmp_path: Path, dark: bool) -> None:
    opened(tab, tmp_path, page)
    tab.look(dark=dark)
    least, where = tab.evaluate(chromium.CONTRAST)
    assert least >= 4.5, where  # WCAG 2.2, 1.4.3


def test_a_page_is_made_of_landmarks_headings_and_headed_tables(tab: Tab, page: str, tmp_path: Path) -> None:
    opened(tab, tmp_path, page)
    for one in ("header", "main", "nav", "footer", "h1"):
        assert tab.evaluate(f"document.querySelectorAll('{one}').length") == 1, one
    levels = tab.evaluate("[...document.querySelectorAll('h1, h2, h3, h4')].map((each) => Number(each.tagName[1]))")
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert tab.evaluate(
        "[...document.querySelectorAll('table')].every((table) => table.tHead && table.rows.length > 1)"
    )
    assert tab.evaluate("[...document.querySelectorAll('th')].every((cell) => cell.scope)")
    assert tab.evaluate("[...document.querySelectorAll('input, select, meter')].every((each) => each.labels.length)")
    ids = tab.evaluate("[...document.querySelectorAll('[id]')].map((each) => each.id)")
    assert len(ids) == len(set(ids))
    assert tab.evaluate(
        "[...document.querySelectorAll('a')].every((link) => document.getElementById(link.hash.slice(1)))"
    )


def test_a_page_is_seen_in_light_dark_and_print(tab: Tab, report: Report, tmp_path: Path) -> None:
    opened(tab, tmp_path, html.render(report))
    height = tab.evaluate("document.documentElement.scrollHeight")
    SHOTS.mkdir(exist_ok=True)
    pictures = []
    for name, dark in (("light", False), ("dark", True)):
        tab.look(dark=dark, height=min(height, 8000))
        pictures.append(tab.screenshot())
        (SHOTS / f"report-{name}.png").write_bytes(pictures[-1])
    assert all(picture.startswith(b"\x89PNG") and len(picture) > 50_000 for picture in pictures)
    assert pictures[0] != pictures[1]
    printed = tab.printed()
    (SHOTS / "report.pdf").write_bytes(printed)
    assert printed.startswith(b"%PDF")
    still(tab)


def test_a_closed_part_is_printed(tab: Tab, report: Report, tmp_path: Path) -> None:
    opened(tab, tmp_path, html.render(report))
    patch = "document.querySelector('.patch pre').checkVisibility()"
    assert not tab.evaluate(patch)
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert tab.evaluate(patch)
    tab.evaluate("dispatchEvent(new Event('afterprint'))")
    assert not tab.evaluate(patch)


def test_an_audit_and_a_diff_are_pages_too(tab: Tab, sample_policy: Policy, used: Facts, tmp_path: Path) -> None:
    pools = overview(sample_policy, used)
    judged = [hostile(name) for name in HOSTILE]
    audited = tuple(
        Audited("", 0, 0, "v1", "Pod", each.namespace, f"{each.name}-{n}", each.verdict, (0, 0), uid=str(n),
                source=RootOwner("apps/v1", "Deployment", each.namespace, each.name))
        for each in judged
        for n in range(3)
    )  # fmt: skip
    opened(tab, tmp_path, html.audit(Report(audited, pools=pools), PLAIN, 40))
    still(tab)
    assert search(tab, rule="unknown-annotation") == len(HOSTILE)
    assert "and 1 more" not in tab.evaluate("document.body.textContent")
    old, new = Engine(sample_policy, rules.walk()), Engine(replace(sample_policy, actions={}, grants=()), rules.walk())
    documents, _ = read((ROOT / "webhook/sample/tour/01-trusted.yaml").read_text("utf-8"), "01-trusted.yaml")
    items, _ = files.items(documents)
    change = Change.of(old, new, (diff.compare(item, old, new, used) for item in items))
    assert change.changed
    opened(tab, tmp_path, html.diff(replace(change, pools=pools)))
    still(tab)
    assert search(tab, words="notebook") == 1


def test_usage_is_a_page_too(tab: Tab, used_cards: str, tmp_path: Path) -> None:
    opened(tab, tmp_path, used_cards)
    still(tab)
    assert tab.evaluate("document.title") == "Slicewarden usage"
    assert tab.evaluate("document.querySelectorAll('script').length") == 1
    assert tab.evaluate("document.querySelectorAll('img, iframe, object, [onload], [onerror], [style]').length") == 0
    shown = tab.evaluate("[...document.querySelectorAll('main tbody bdi')].map((each) => each.textContent)")
    assert {*HOSTILE[:4], HOSTILE[5], HOSTILE[8], "(free)", "(not seen)"} <= {*shown}
    assert "\u202e" not in tab.evaluate("document.body.textContent")
    widths = tab.evaluate(
        "[...document.querySelectorAll('main tbody svg')].map((each) => [...each.querySelectorAll('rect')]"
        ".reduce((sum, part) => sum + part.getBoundingClientRect().width, 0) / each.getBoundingClientRect().width)"
    )
    hours = tab.evaluate(
        "[...document.querySelectorAll('main tbody tr')].map((each) => Number(each.cells[4].textContent))"
    )
    longest = max(hours)
    assert widths == pytest.approx([each / longest for each in hours], abs=0.01)
    tab.look(dark=True)
    SHOTS.mkdir(exist_ok=True)
    (SHOTS / "usage-dark.png").write_bytes(tab.screenshot())
    tab.look()
    (SHOTS / "usage-light.png").write_bytes(tab.screenshot())


BOXES = """[...document.querySelectorAll('figure.plot')].map((figure) => {
  const most = Number(figure.querySelectorAll('text.up')[2].textContent);
  const bars = [...figure.querySelectorAll('g')].map((bar) => [...bar.querySelectorAll('rect')].map((box) =>
    [box.getAttribute('class'), box.getBBox().height * most / 240]));
  const rows = [...figure.querySelectorAll('tbody tr')]
    .map((row) => [...row.cells].slice(1).map((cell) => cell.textContent));
  const ids = figure.querySelector('svg').getAttribute('aria-labelledby').split(' ');
  const named = ids.map((id) => document.getElementById(id).textContent);
  const svg = figure.querySelector('svg').getBoundingClientRect();
  const inside = [...figure.querySelectorAll('text')].map((text) => text.getBoundingClientRect())
    .every((box) => box.left >= svg.left - 1 && box.right <= svg.right + 1 && box.bottom <= svg.bottom + 1);
  return {bars, rows, named, inside};
})"""


def test_a_plot_shows_its_tables_numbers_and_gaps(tab: Tab, used_cards: str, tmp_path: Path) -> None:
    opened(tab, tmp_path, used_cards)
    still(tab)
    found = tab.evaluate(BOXES)
    assert len(found) == 2 * (1 + len(HOSTILE)), "hours and days, of all pools and of each"
    styles = "cap", "context", "reserve", "card", "gap"
    for plot in found:
        assert plot["inside"], "no label is cut off"
        assert all(plot["named"])
        for boxes, row in zip(plot["bars"], plot["rows"], strict=True):
            amounts = [float(cell) for cell in row[:5]]
            shown = [box for box in boxes if box[0] != "gap"]
            assert [box[0] for box in shown] == [
                style for style, each in zip(styles[:4], amounts, strict=False) if each
            ]
            assert [box[1] for box in shown] == pytest.approx([each for each in amounts[:4] if each], abs=0.06)
            gaps = (amounts[4] > 0) + (row[5] != "0 %")
            assert [box[0] for box in boxes].count("gap") == gaps
            if row[5] == "100 %":
                assert shown == []
    assert tab.evaluate("[...document.querySelectorAll('.plot details')].every((each) => !each.open)")
    tab.look(dark=True, height=6000)
    SHOTS.mkdir(exist_ok=True)
    pictures = [tab.screenshot()]
    (SHOTS / "plots-dark.png").write_bytes(pictures[0])
    tab.look(height=6000)
    pictures.append(tab.screenshot())
    (SHOTS / "plots-light.png").write_bytes(pictures[1])
    assert pictures[0] != pictures[1]
    (SHOTS / "plots.pdf").write_bytes(tab.printed())


COUNTED = """(() => {
  const property = Object.getOwnPropertyDescriptor(HTMLElement.prototype, "hidden");
  const includes = String.prototype.includes;
  let written = 0, compared = 0;
  const set = function (value) { written++; property.set.call(this, value); };
  Object.defineProperty(HTMLElement.prototype, "hidden", {...property, set});
  String.prototype.includes = function (...words) { compared++; return includes.apply(this, words); };
  show();
  Object.defineProperty(HTMLElement.prototype, "hidden", property);
  String.prototype.includes = includes;
  return [written, compared];
})()"""
"""Searches again, and counts the elements that it writes to and the texts that it reads."""


def test_a_search_reads_each_of_ten_thousand_objects_once_and_writes_only_what_changes(
    tab: Tab, tmp_path: Path
) -> None:
    finding = Finding(("spec",), "is wrong; mend it")
    many = tuple(
        Judged(f"{n}.yaml", 1, 0, "v1", "Pod", f"team-{n % 40}", f"pod-{n}",
               Verdict((Result("device-path", Action.DENY, finding),)), (1,))
        for n in range(10_000)
    )  # fmt: skip
    opened(tab, tmp_path, html.render(Report(many)))
    still(tab)
    assert search(tab, words="pod-9999") == 1
    written, compared = tab.evaluate(COUNTED)
    assert compared == len(many)
    assert written <= 40, "the groups, and no object that stays as it was"
