"""`--prometheus`: who is asked and with what, and answers that nobody would believe."""

import json
import ssl
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

import certs
from tests.support.callers import write
from tests.support.listening import Asked, listening
from tests.support.strangers import HOSTILE, harmful
from tests.support.webhooks import CA
from webhook.cli import main as cli
from webhook.usage import counted
from webhook.usage.counted import ChosenSeries, CountedTime, Sample
from webhook.usage.store import LONGEST_TEXT, DamagedRecord

NOW = 1_780_000_000
CARD = {"node": "node-1", "gpu": "GPU-0", "pool": "shared", "product": "A10"}
HOLDER = {**CARD, "namespace": "team", "workload": "Job/j"}

ANSWERS: Mapping[str, list[tuple[dict[str, str], float]]] = {
    "vector(time())": [({}, NOW)],
    "slice_seconds_total": [(HOLDER, 1800)],
    "work_seconds_total": [({**HOLDER, "work": "working"}, 600), ({**HOLDER, "work": "idle"}, 1200)],
    "peak_bytes": [(HOLDER, 3000 * 2**20)],
    "card_slice_seconds_total": [({**CARD, "state": "held"}, 3600), ({**CARD, "state": "free"}, 3600)],
    "card_counted_seconds_total": [(CARD, 1800)],
    "count_over_time": [({"node": "node-1"}, 1000)],
}


def vector(rows: list[tuple[dict[str, str], float]]) -> bytes:
    result = [{"metric": labels, "value": [NOW, str(value)]} for labels, value in rows]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


def answer_to(query: str) -> bytes:
    """The answer that fits; `count_over_time` first, since the others name its metric too. Nothing is twice."""
    if "exported_namespace" in query or query.startswith("count_over_time((count"):
        return vector([])
    for name, rows in ANSWERS.items():
        if query.startswith(("vector", "count_over_time")) and not query.startswith(name.partition("(")[0]):
            continue
        if f"slicewarden_node_{name}" in query or query.startswith(name):
            return vector(rows)
    return vector([])


def matrix(rows: list[tuple[dict[str, str], float]], start: int, end: int, step: int) -> bytes:
    """These values at each of these times."""
    result = [
        {"metric": labels, "values": [[at, str(value)] for at in range(start, end + 1, step)]} for labels, value in rows
    ]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()


def answer_by_hour(query: str, start: int, end: int, step: int) -> bytes:
    """The answer that fits to a query for hours: the same for each. It begins with the labels to add up by."""
    head = query.partition("(")[2].partition(")")[0].replace(",", "").split()
    name = {
        "work": "work_seconds_total",
        "state": "card_slice_seconds_total",
        "container": "peak_bytes",
        "pool": "card_counted_seconds_total" if query.startswith("max") else "slice_seconds_total",
    }[head[-1]]
    return matrix(PEAKS if name == "peak_bytes" else ANSWERS[name], start, end, step)


PEAKS: list[tuple[dict[str, str], float]] = [({**HOLDER, "pod": "p", "container": "main"}, 3000 * 2**20)]


class AskedFor(NamedTuple):
    """A request. `time` is when a query is asked for: one time, or the first and last one, and the step."""

    path: str
    query: str
    time: str
    authorization: str | None

    def answer(self, answer: Callable[[str], tuple[int, bytes]]) -> tuple[int, bytes]:
        """Return the answer, which is the same at all times if there are several."""
        status, body = answer(self.query)
        if self.path.endswith("/query_range") and (status, body) == (200, answer_to(self.query)):
            return 200, answer_by_hour(self.query, *map(int, self.time.split()))
        return status, body


@contextmanager
def prometheus(
    answer: Callable[[str], tuple[int, bytes]] = lambda query: (200, answer_to(query)),
    tls: ssl.SSLContext | None = None,
    asked: list[AskedFor] | None = None,
    **headers: str,
) -> Iterator[str]:
    def reply(request: Asked) -> None:
        url = urlsplit(request.path)
        query = parse_qs(url.query)
        time = " ".join(query[name][0] for name in ("time", "start", "end", "step") if name in query)
        found = AskedFor(url.path, query["query"][0], time, request.headers["Authorization"])
        if asked is not None:
            asked.append(found)
        status, body = found.answer(answer)
        request.give(status, body, **headers)

    with listening(reply, tls) as url:
        yield url


def test_what_no_container_explains_is_not_seen(capsys: pytest.CaptureFixture[str]) -> None:
    asked = list[AskedFor]()
    with prometheus(asked=asked) as url:
        assert cli.main(["usage", "--prometheus", f"{url}/under/", "--match", "job=a", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = found["rows"]
    assert [(row["namespace"], row["sliceHours"], row["workingHours"] + row["idleHours"]) for row in rows] == [
        ("team", 0.5, 0.5),
        ("(free)", 1.0, 0.0),
        ("(not seen)", 0.5, 0.0),
    ]
    last = (NOW // 3600 + 1) * 3600
    hours = f"{last - 23 * 3600} {last} 3600"
    assert {(each.path, each.time) for each in asked} == {
        ("/under/api/v1/query", ""),
        ("/under/api/v1/query", str(NOW)),
        ("/under/api/v1/query_range", hours),
    }
    assert sum(each.time == hours for each in asked) == 4
    names = ("working", "idle", "unmeasured", "free", "unseen")
    assert [(each["pool"], *(each[f"{name}SliceHours"] for name in names)) for each in found["hours"]] == [
        (pool, 600 / 3600, 1200 / 3600, 0, 1, 0.5) for pool in (None, "shared") for _ in range(24)
    ]
    assert all('{job="a"' in each.query for each in asked if "slicewarden" in each.query)
    assert {each.authorization for each in asked} == {None}


def test_a_namespace_is_asked_for_alone(capsys: pytest.CaptureFixture[str]) -> None:
    asked = list[AskedFor]()
    with prometheus(asked=asked) as url:
        assert cli.main(["usage", "--prometheus", url, "-n", "team"]) == 0
    queries = [each.query for each in asked if "exported_namespace" not in each.query]
    assert all('{namespace="team"}' in query for query in queries if "slice_seconds" in query and "card" not in query)
    assert "(free)" not in capsys.readouterr().out


@pytest.mark.parametrize(("form", "asks"), [("table", False), ("csv", False), ("json", True), ("html", True)])
def test_hours_are_asked_for_only_where_they_are_shown(
    form: str, asks: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    for more, hours in (([], asks), (["-n", "team"], False)):
        asked = list[AskedFor]()
        with prometheus(asked=asked) as url:
            assert cli.main(["usage", "--prometheus", url, "-o", form, *more]) == 0
        assert any(each.path.endswith("/query_range") for each in asked) is hours
        capsys.readouterr()


def test_hours_of_too_many_nodes_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Each node has 840 hours, and the table is still there."""
    cards = [({**CARD, "node": f"n{number}", "state": "free"}, 3600.0) for number in range(1200)]

    def answer(query: str) -> tuple[int, bytes]:
        return 200, vector(cards) if query.startswith("sum by (node, gpu, pool, product, state)") else answer_to(query)

    asked = list[AskedFor]()
    with prometheus(answer, asked=asked) as url:
        assert cli.main(["usage", "--prometheus", url, "--since", "35d", "-o", "json"]) == 2
        why = "it has 1,008,000 hours of nodes and pools, and at most 1,000,000 are read; ask for less time, for one "
        assert why in capsys.readouterr().err
        assert not any(each.path.endswith("/query_range") for each in asked)
        assert cli.main(["usage", "--prometheus", url, "--since", "35d"]) == 0


@pytest.mark.parametrize("more", [[], ["-n", "team"]])
def test_advice_asks_for_full_hours_and_for_all_namespaces(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A container of another namespace may show how large a slice is."""
    asked = list[AskedFor]()
    with prometheus(asked=asked) as url:
        words = ["--prometheus", f"{url}/under", "--match", "job=a", "--since", "200h", *more]
        assert cli.main(["advise", *words, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(each["workload"], each["peakMiB"], each["needMiB"]) for each in found["workloads"]] == [
        ("Job/j", 3000, None)
    ]
    ranges = [tuple(map(int, each.time.split())) for each in asked if each.path == "/under/api/v1/query_range"]
    hours = [end for first, last, step in sorted(ranges) for end in range(first, last + 1, step)]
    last = (NOW // 3600 + 1) * 3600
    assert hours == [*range(last - 199 * 3600, last + 1, 3600)]
    assert len(ranges) == 2
    assert all('{job="a"' in each.query and "namespace=" not in each.query for each in asked if "peak" in each.query)


@pytest.mark.parametrize("command", [["advise"], ["usage", "-o", "json"]])
@pytest.mark.parametrize(
    ("body", "why"),
    [
        (vector([]), "it is no answer of Prometheus to a query"),
        (matrix(PEAKS, 3600, 3600, 3600), "it has a time that was not asked for"),
        (matrix([], 0, 0, 1)[:-1] + b',"warnings":["a store is down"]}', "it is incomplete: ['a store is down']"),
        (b" " * (counted.MOST_BYTES + 1), "it has more than 16 MiB; ask for less time"),
    ],
)
def test_hours_that_cannot_be_read_are_an_error(
    command: list[str], body: bytes, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(query: str) -> tuple[int, bytes]:
        of_hours = query.startswith("sum by (node, pool, state)") or (" and " in query and "(max_over_time" in query)
        return 200, body if of_hours else answer_to(query)

    with prometheus(answer) as url:
        assert cli.main([*command, "--prometheus", url]) == 2
    out, err = capsys.readouterr()
    assert (out, why in err) == ("", True)


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (302, b"", "HTTP 302, a redirect, which is not followed: does it ask for a login?"),
        (401, b"", "HTTP 401: it asks for a password or a token; --prometheus-config FILE has it"),
        (404, b"", "HTTP 404: it has no API of Prometheus; does the URL need a path, such as /prometheus?"),
        (
            422,
            b'{"status":"error","error":"query processing would load too many samples"}',
            "HTTP 422: query processing",
        ),
        (500, b"<html>", "HTTP 500"),
        (200, b"<html>", "its answer cannot be used: it is no JSON"),
        (200, b"[" * 100_000, "its answer cannot be used: it is no JSON"),
        (200, b"{}", "its answer cannot be used: it is no answer of Prometheus to a query"),
        (200, b'{"status":"success","data":{"resultType":"matrix","result":[]}}', "it is no answer of Prometheus"),
        (200, vector([])[:-1] + b',"warnings":["a store is down"]}', "it is incomplete: ['a store is down']"),
        (200, vector([({}, 0)] * 50_001), "it has more than 50,000 series"),
        (200, b" " * (counted.MOST_BYTES + 1), "it has more than 16 MiB"),
        (200, vector([({}, 5)]), "it does not say what time it is"),
        (200, vector([({}, 2**39)]), "it does not say what time it is"),
        (200, vector([({}, NOW), ({"a": "b"}, NOW)]), "it does not say what time it is"),
        (200, vector([({}, -1)]), "it has a value that is no amount"),
        (200, vector([({}, float("nan"))]), "it has a value that is no amount"),
        (200, vector([({}, float("inf"))]), "it has a value that is no amount"),
    ],
)
@pytest.mark.parametrize("command", ["usage", "idle", "advise", "top"])
def test_an_answer_of_another_kind_is_an_error(
    command: str, status: int, body: bytes, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A redirect is not followed: it would be asked again, and may get the password."""
    asked = list[AskedFor]()
    with prometheus(lambda _: (status, body), asked=asked, Location="/elsewhere") as url:
        assert cli.main([command, "--prometheus", url]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert why in err
    assert len(asked) == 1


@pytest.mark.parametrize("place", ["error", "node", "renamed"])
def test_no_text_of_the_server_is_a_command(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    def answer(query: str) -> tuple[int, bytes]:
        if place == "error" and query.startswith("sum"):
            return 422, json.dumps({"error": HOSTILE}).encode()
        if query.startswith("count by") and (place != "renamed" or "exported_namespace" in query):
            return 200, vector([({"node": HOSTILE, "instance": HOSTILE, "gpu": HOSTILE}, 2)])
        return 200, answer_to(query)

    with prometheus(answer) as url:
        for command in ("usage", "idle", "advise", "top"):
            if cli.main([command, "--prometheus", url]) == 2:
                assert "forged" in capsys.readouterr().err
            out, err = capsys.readouterr()
            assert harmful(out + err, "") == []


def test_nobody_answers(capsys: pytest.CaptureFixture[str]) -> None:
    with prometheus() as url:
        pass
    assert cli.main(["usage", "--prometheus", url]) == 2
    assert "does not answer: Connection refused" in capsys.readouterr().err


SETTINGS = {
    "basic_auth: {username: me, password: secret}": f"Basic {b64encode(b'me:secret').decode()}",
    "basic_auth: {username: me, password_file: secret}": f"Basic {b64encode(b'me:from-file').decode()}",
    "authorization: {credentials: abc}": "Bearer abc",
    "authorization: {type: Token, credentials_file: secret}": "Token from-file",
}


@pytest.mark.parametrize(("settings", "header"), SETTINGS.items())
def test_a_password_comes_from_a_file_and_passes_no_proxy(
    settings: str, header: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    (tmp_path / "secret").write_text("from-file\n")
    (tmp_path / "client.yaml").write_text(settings)
    asked = list[AskedFor]()
    with prometheus(asked=asked) as url:
        words = ["--prometheus", url, "--prometheus-config", str(tmp_path / "client.yaml")]
        assert cli.main(["usage", *words]) == 0
    assert {each.authorization for each in asked} == {header}


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ("", "it has no settings of a client"),
        ("[]", "it has no settings of a client"),
        ("proxy_url: http://a", "'proxy_url' is not supported; the settings are basic_auth, authorization, tls_config"),
        ("tls_config: {insecure_skip_verify: true}", "tls_config.insecure_skip_verify is not supported"),
        ("basic_auth: {username: 5}", "basic_auth.username must be a text"),
        ("basic_auth: me", "basic_auth. is not supported"),
        ("basic_auth: {username: me}", "password must be one line of printable ASCII"),
        ('basic_auth: {username: "me:you", password: a}', "basic_auth.username must not have a colon"),
        ("basic_auth: {username: me, password: a, password_file: b}", "password and password_file exclude each other"),
        ("basic_auth: {username: me, password: a}\nauthorization: {credentials: b}", "exclude each other"),
        ('authorization: {credentials: "a\\r\\nX: b"}', "credentials must be one line of printable ASCII"),
        ("authorization: {credentials_file: none}", "none: No such file or directory"),
        ('authorization: {type: "a b", credentials: c}', "authorization.type must be a word such as Bearer"),
        ("authorization: {type: Basic, credentials: c}", "authorization.type must be a word such as Bearer"),
        ("tls_config: {ca_file: none}", "none: No such file or directory"),
        ("tls_config: {cert_file: client.yaml}", "tls_config needs both cert_file and key_file"),
    ],
)
def test_settings_that_are_not_understood_send_nothing(
    settings: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "client.yaml").write_text(settings)
    asked = list[AskedFor]()
    with prometheus(asked=asked) as url:
        words = ["--prometheus", url, "--prometheus-config", str(tmp_path / "client.yaml")]
        assert cli.main(["usage", *words]) == 2
    assert why in capsys.readouterr().err
    assert asked == []


def test_a_password_goes_only_to_this_machine_or_by_https(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "client.yaml").write_text("authorization: {credentials: abc}")
    for url in ("http://prometheus.monitoring:9090", "http://127.0.0.1.example.com", "HTTP://LOCALHOST.example.com"):
        words = ["--prometheus", url, "--prometheus-config", str(tmp_path / "client.yaml")]
        assert cli.main(["usage", *words]) == 2
        assert "a password or a token is sent only by https, or to this machine" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--prometheus", "prometheus:9090"], "it is no URL that begins with http:// or https://"),
        (["--prometheus", "file:///etc/passwd"], "it is no URL that begins with http:// or https://"),
        (["--prometheus", "http://"], "it is no URL that begins with http:// or https://"),
        (["--prometheus", "http://a:b"], "it is no URL"),
        (["--prometheus", "http://a b"], "it is no URL that begins with http:// or https://"),
        (["--prometheus", "https://me:secret@a"], "a password in it would be visible to others"),
        (["--prometheus", "https://a/?x=1"], "it must end before ? and #"),
        (["--prometheus", "http://a", "--from", "b"], "--prometheus needs no cluster"),
        (["--prometheus", "http://a", "--context", "b"], "--prometheus needs no cluster"),
        (["--prometheus", "http://a", "--match", "b"], "'b' is no label and value"),
        (["--prometheus", "http://a", "--match", 'b"}=c'], "is no label and value"),
        (["--prometheus", "http://a", "--match", f"b={'c' * 101}"], "is no label and value"),
        (["--prometheus", "http://a", *(["--match", "a=b"] * 5)], "--match: give at most 4"),
        (["--match", "a=b"], "--prometheus-config and --match need --prometheus"),
        (["--prometheus-config", "b"], "--prometheus-config and --match need --prometheus"),
    ],
)
def test_options_that_make_no_sense_are_refused(words: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["usage", *words]) == 2
    assert why in capsys.readouterr().err


def test_a_certificate_is_verified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "tls", certs.issue_serving(CA, ["localhost"], ["127.0.0.1"], datetime.now(UTC), days=20))
    (tmp_path / "ca.crt").write_bytes(CA.certificate_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    for settings, status, why in (
        ("authorization: {credentials: abc}", 2, "CERTIFICATE_VERIFY_FAILED"),
        ("tls_config: {ca_file: ca.crt, server_name: other}", 2, "Hostname mismatch"),
        ("tls_config: {ca_file: ca.crt}\nauthorization: {credentials: abc}", 0, ""),
        ("tls_config: {ca_file: ca.crt, server_name: localhost}", 0, ""),
    ):
        (tmp_path / "client.yaml").write_text(settings)
        asked = list[AskedFor]()
        with prometheus(tls=context, asked=asked) as url:
            words = ["--prometheus", url, "--prometheus-config", str(tmp_path / "client.yaml")]
            assert cli.main(["usage", *words]) == status
        assert why in capsys.readouterr().err
        assert bool(asked) is not bool(status)


# What is read


TIME = CountedTime(NOW - 3600, NOW)
NAMES = tuple(counted.queries(ChosenSeries(), TIME))
WITH_PODS = tuple(counted.queries(ChosenSeries(pods=True), TIME))
labels = st.dictionaries(
    st.sampled_from((*HOLDER, "pod", "state", "work", "other")),
    st.sampled_from(("", "a", "b", "held", "free", "unseen", "idle", "counted", "x" * (LONGEST_TEXT + 1))),
)
answers = st.fixed_dictionaries(
    {name: st.lists(st.builds(Sample, labels, st.floats(0, 2**61)), max_size=4) for name in WITH_PODS}
)


@given(answers, st.booleans())
def test_any_answer_is_refused_or_adds_up(found: dict[str, list[Sample]], pods: bool) -> None:
    with suppress(DamagedRecord):
        for usage in counted.usages(found, ChosenSeries(pods=pods), TIME):
            for amounts in usage.book.cards.values():
                assert min(amounts) >= 0
                assert amounts.held + amounts.free + amounts.unseen == amounts.capacity
            assert all(min(each) >= 0 for each in usage.book.holders.values())


def test_a_node_that_was_off_was_not_seen_in_this_time_only() -> None:
    """It was off for three days: its agent adds all of them as unseen when it starts again."""
    off, here = 3 * 86_400.0, 1800.0
    found: dict[str, list[Sample]] = {name: [] for name in NAMES}
    found["cards"] = [
        Sample({**CARD, "state": "unseen"}, 4 * off),
        Sample({**CARD, "state": "free"}, 4 * here),
    ]
    found["counted"] = [Sample(CARD, off + here)]
    (usage,) = counted.usages(found, ChosenSeries(), TIME)
    (amounts,) = usage.book.cards.values()
    assert amounts == (3_600_000, 14_400_000, 0, 7_200_000, 7_200_000)


def test_a_card_that_was_counted_twice_is_refused() -> None:
    found: dict[str, list[Sample]] = {name: [] for name in NAMES}
    found["cards"], found["counted"] = [Sample({**CARD, "state": "free"}, 8 * 3600.0)], [Sample(CARD, 7200.0)]
    with pytest.raises(DamagedRecord, match=r"for 2\.0 of 1\.0 h; did two jobs scrape the agents"):
        counted.usages(found, ChosenSeries(), TIME)


@pytest.mark.parametrize(("off", "whole"), [(30.0, True), (300.0, False)])
def test_a_card_has_whole_slices_unless_their_number_has_changed(off: float, whole: bool) -> None:
    """Prometheus estimates the counters of a card each on its own if the agent began again."""
    found: dict[str, list[Sample]] = {name: [] for name in NAMES}
    states = {"held": 1000.5004, "free": 13_399.4996 - 4 * off}
    found["cards"] = [Sample({**CARD, "state": state}, value) for state, value in states.items()]
    found["counted"] = [Sample(CARD, 3600.0)]
    ((amounts,),) = [each.book.cards.values() for each in counted.usages(found, ChosenSeries(), TIME)]
    assert (amounts.capacity == 4 * amounts.counted) is whole
    assert amounts.capacity == amounts.held + amounts.free + amounts.unseen == pytest.approx(14_400_000 - 4000 * off)


def test_a_card_that_was_counted_for_next_to_no_time_is_no_crash() -> None:
    found: dict[str, list[Sample]] = {name: [] for name in NAMES}
    found["cards"] = [Sample({**CARD, "state": "held"}, 2.0**61)]
    found["counted"] = [Sample(CARD, 1e-300)]
    (usage,) = counted.usages(found, ChosenSeries(), TIME)
    (amounts,) = usage.book.cards.values()
    assert amounts.counted == 0


def test_only_labels_that_are_read_are_kept() -> None:
    """An answer may have a million others."""
    answer = vector([({"node": "node-1", "state": "free", **{f"l{each}": "" for each in range(100)}}, 1)])
    assert counted.read(answer, "") == [Sample({"node": "node-1", "state": "free"}, 1.0)]


def test_containers_under_the_name_of_the_agent_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Without honor_labels all containers would be of the agent's namespace."""

    def answer(query: str) -> tuple[int, bytes]:
        return 200, vector([(CARD, 3)]) if "exported_namespace" in query else answer_to(query)

    for command in (["usage"], ["idle"], ["advise"], ["usage", "-n", "team"]):
        asked = list[AskedFor]()
        with prometheus(answer, asked=asked) as url:
            assert cli.main([*command, "--prometheus", url, "--match", "job=a"]) == 2
        assert "the job that scrapes the agents needs honor_labels" in capsys.readouterr().err
        (query,) = [each.query for each in asked if "exported_namespace" in each.query]
        assert '{job="a",exported_namespace!=""}' in query


def test_a_node_that_was_read_twice_has_a_note() -> None:
    found: dict[str, list[Sample]] = {name: [] for name in NAMES}
    found["read"] = [Sample({"node": "node-1"}, 12.0)]
    for steps, noted in ((2.0, False), (6.0, True)):
        found["doubled"] = [Sample({"node": "node-1"}, steps)]
        (usage,) = counted.usages(found, ChosenSeries(), TIME)
        assert ("Prometheus has read it twice for 0.5 of 1.0 h" in usage.trouble) is noted


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, ""),
        ({"even": []}, "its agent has no slicewarden_node_even_bytes: it is of an older release"),
        ({"max read": [Sample({"node": "node-1"}, NOW)]}, "Prometheus has read its agent for 0.2 of 1.0 h"),
        ({"read": [], "min read": [Sample({"node": "node-1"}, NOW - 900)]}, ""),
    ],
)
def test_counters_that_may_hide_a_need_are_noted(change: dict[str, list[Sample]], why: str) -> None:
    """A node that was there for a part of the time only has no gap."""
    own = {**HOLDER, "pod": "p", "container": "main"}
    found: dict[str, list[Sample]] = {name: [] for name in WITH_PODS}
    found |= {name: [Sample(own, 2.0**20)] for name in ("held", "peak", "even")}
    found |= {
        "read": [Sample({"node": "node-1"}, 2.0)],
        "min read": [Sample({"node": "node-1"}, NOW - 3600)],
        "max read": [Sample({"node": "node-1"}, NOW - 3000)],
    }
    (usage,) = counted.usages({**found, **change}, ChosenSeries(pods=True), TIME)
    assert (why in usage.trouble, bool(usage.trouble)) == (True, bool(why))
    ((key, amounts),) = usage.book.holders.items()
    assert (key.pod, key.container, amounts.peak) == ("p", "main", 1)


@pytest.mark.parametrize("work", ["held", "peak", "", None])
def test_work_of_another_kind_is_refused(work: str | None) -> None:
    found: dict[str, list[Sample]] = {name: [] for name in NAMES}
    found["work"] = [Sample(HOLDER if work is None else {**HOLDER, "work": work}, 1.0)]
    with pytest.raises(DamagedRecord, match="it has work of an unknown kind"):
        counted.usages(found, ChosenSeries(), TIME)


json_like: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(("status", "data", "result", "resultType", "metric", "value", "warnings")),
            inner,
            max_size=4,
        )
    ),
)


@given(json_like)
def test_garbage_is_refused(value: Any) -> None:
    for given_value in (value, {"status": "success", "data": {"resultType": "vector", "result": value}}):
        with suppress(DamagedRecord):
            assert all(isinstance(each, Sample) for each in counted.read(json.dumps(given_value).encode(), ""))


@given(st.text(max_size=40))
def test_any_text_is_one_string_of_promql(value: str) -> None:
    """JSON's strings are Go's, but for DEL and surrogates, and those are escaped or cannot be given."""
    with suppress(UnicodeEncodeError):
        written = counted.quoted(value)
        assert json.loads(written) == value
        assert written.isascii() or written.encode()
        assert not any(ord(character) < 32 or character == "\x7f" for character in written)
