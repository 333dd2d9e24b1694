"""Write down what the device plugin says of each case: `python -m tests.conformance.record`, and read the diff.

`verdicts.json` holds an error for each configuration of each group, empty where the plugin would start. `make test`
goes by it without Go; `make e2e` asks again.
"""

import json
import sys
from pathlib import Path

from tests.conformance.cases import cases
from tests.conformance.device_plugin import DevicePlugin, running
from tests.support.records import record

VERDICTS = Path(__file__).resolve().parent / "verdicts.json"

Verdicts = dict[str, dict[str, str]]
"""The plugin's error by configuration, by group."""


def recorded() -> Verdicts:
    """Return what was written down."""
    verdicts: Verdicts = json.loads(VERDICTS.read_text("utf-8"))
    return verdicts


def asked(plugin: DevicePlugin) -> Verdicts:
    """Return what the plugin says now. An error begins alike for all, and says how far it got."""
    verdicts: Verdicts = {}
    for group, text in cases():
        refusal = plugin.refusal(text.encode())
        for prefix in ("unable to finalize config: ", "unable to parse config file: ", "error parsing config file: "):
            refusal = refusal.removeprefix(prefix)
        verdicts.setdefault(group, {})[text] = refusal
    return verdicts


def ask() -> Verdicts:
    """Start the plugin and ask it. Raises Missing."""
    with running() as plugin:
        return asked(plugin)


if __name__ == "__main__":
    sys.exit(record(VERDICTS, ask, indent=1))
