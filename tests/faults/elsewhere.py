"""`python elsewhere.py FILE serve ...`: the webhook in a world that is as FILE says (faults.world)."""

import datetime
import json
import socket
import sys
import time
from pathlib import Path
from typing import Any

FILE = Path(sys.argv.pop(1))
right, looked_up = time.time, socket.getaddrinfo


def said(key: str) -> Any:
    return json.loads(FILE.read_text("ascii"))[key]


def clock() -> float:
    return right() + float(said("seconds"))


class Wrong(datetime.datetime):
    """The day and hour by the wrong clock."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> "Wrong":
        return cls.fromtimestamp(clock(), tz)


def look_up(*arguments: Any, **options: Any) -> Any:
    if not said("names"):
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    return looked_up(*arguments, **options)


time.time = clock
datetime.datetime = Wrong  # type: ignore[misc]
socket.getaddrinfo = look_up

from webhook.cli import main as cli  # noqa: E402 - into that world
from webhook.cli import parser  # noqa: E402
from webhook.cli.commands import serve  # noqa: E402

(oldest,) = (option for option in serve.command.params if option.name == "max_facts_age")
oldest.type = parser.Number(said("age"), 86400)
sys.exit(cli.main())
