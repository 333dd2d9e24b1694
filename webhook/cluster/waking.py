"""Wakes a thread when objects change. It watches the objects, and reads nothing but the fact that they changed."""

import json
import threading
from collections.abc import Iterable

from webhook.cluster import client
from webhook.cluster.watch import FIRST_PAUSE, LAST_PAUSE, WATCH_SECONDS


class Waking:
    """Watches paths of the API, each in a thread, and sets an event for each change."""

    def __init__(self, api: client.Api, paths: Iterable[tuple[str, str]], changed: threading.Event) -> None:
        """Watch these paths, each with a field selector, which may be empty."""
        self._api, self._changed = api, changed
        self._threads = [
            threading.Thread(target=self._follow, args=each, daemon=True, name=f"watch {each[0]}") for each in paths
        ]

    def start(self) -> None:
        """Start the threads, which live as long as the process."""
        for thread in self._threads:
            thread.start()

    def _follow(self, path: str, fields: str) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                self._watch(path, fields)
                pause = FIRST_PAUSE
            except Exception:  # the waiting thread looks again after a while in any case
                pause = min(pause * 2, LAST_PAUSE)
            threading.Event().wait(pause)

    def _watch(self, path: str, fields: str) -> None:
        """Watch from now on, until the API server ends the watch. Objects that exist already count as changes."""
        query = {"watch": "true", "timeoutSeconds": WATCH_SECONDS, "fieldSelector": fields}
        response = client.send(self._api, "GET", path, query, silence=WATCH_SECONDS + 30, preload_content=False)
        try:
            if response.status != 200:
                raise client.StatusError(response.status, "no watch")
            for line in response:
                if line.strip() and json.loads(line)["type"] != "BOOKMARK":
                    self._changed.set()
        finally:
            response.close()
            response.release_conn()
