"""The port for metrics and health sleeps until somebody asks."""

import http.client
import threading
import time
from contextlib import closing
from email.utils import parsedate_to_datetime

import pytest

from tests.support.waiting import LONG, until
from webhook.controller.health import ControllerMetrics
from webhook.http import listening, scrape
from webhook.http.port import Port


def test_nothing_wakes_a_port_without_connections_and_an_answer_has_the_date(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks, tick = list[float](), Port.tick

    def counted(one: Port) -> None:
        ticks.append(time.time())
        tick(one)

    monkeypatch.setattr(Port, "tick", counted)
    with listening.listener("127.0.0.1", 0) as free:
        host, port = free.getsockname()[:2]
    with scrape.serving(ControllerMetrics(), host, port, lambda _: None):
        threading.Event().wait(6 * listening.TICK)
        assert len(ticks) == 1  # when the port was made
        with closing(http.client.HTTPConnection(host, port, timeout=LONG)) as connection:
            connection.request("GET", "/healthz")
            answer = connection.getresponse()
            answer.read()
            assert parsedate_to_datetime(answer.headers["Date"]).timestamp() >= int(ticks[1])
            seen = len(ticks)
            until(lambda: len(ticks) > seen)
        before = 0

        def rests() -> bool:
            nonlocal before
            before, same = len(ticks), before == len(ticks)
            return same

        until(rests, pause=3 * listening.TICK)
