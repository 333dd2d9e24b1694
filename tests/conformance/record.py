"""Write down what the device plugin says of each case: `python -m tests.conformance.record`, and read the diff.

`verdicts.json` holds an error for each configuration of each group, empty where the plugin would start. `make test`
goes by it without Go; `make e2e` asks again.
"""

import json
import sys
from pathlib import Path

from tests.conformance.cases import cases
from tests.conformance.device_plugin import DevicePlugin, running
from tests.support.go_programs import Missing, say

VERDICTS = Path(__file__).resolve().parent / "verdicts.json"

Verdicts = dict[str, dict[str, str]]
"""The plugin's error by configuration, by group."""


def recorded() -> Verdicts:
    """What was written down."""
    verdicts: Verdicts = json.loads(VERDICTS.read_text("utf-8"))
    return verdicts


def asked(plugin: DevicePlugin) -> Verdicts:
    """What the plugin says now. Of an error the beginning says how far it got, and is the same for all."""
    verdicts: Verdicts = {}
    for group, text in cases():
        refusal = plugin.refusal(text.encode())
        for prefix in ("unable to finalize config: ", "unable to parse config file: ", "error parsing config file: "):
            refusal = refusal.removeprefix(prefix)
        verdicts.setdefault(group, {})[text] = refusal
    return verdicts


def main() -> int:
    """Write them; 2 after one line on what is missing."""
    try:
        with running() as plugin:
            verdicts = asked(plugin)
    except Missing as missing:
        say(str(missing))
        return 2
    VERDICTS.write_text(json.dumps(verdicts, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
