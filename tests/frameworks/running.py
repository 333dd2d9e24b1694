"""Programs that run on a pretended card by the interpreter of an environment."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.frameworks import environments
from tests.frameworks.card import Card, compiled

T4 = 15360
"""MiB."""


@dataclass(frozen=True, slots=True)
class Ran:
    """The end of a program on a card."""

    status: int
    out: str
    error: str
    card: Card

    @property
    def stopped(self) -> str | None:
        """The framework's own error that ended a greedy program; AssertionError if it ended otherwise."""
        assert self.status == 0, self.error[-2000:]
        report = json.loads(self.out.splitlines()[-1])
        stopped: str | None = report["stopped"]
        return stopped


def run(name: str, home: Path, env: Mapping[str, str], *command: str, given: str = "") -> Ran:
    """Run a program by the interpreter of an environment, on a T4 of its own, whose use is counted in the home.

    Raises Missing if the environment or the card cannot be made.
    """
    card = Card(T4, home / f"card-{len(list(home.iterdir()))}")
    stubs = environments.stubs(name, compiled())
    preload = {} if stubs is None else {"LD_PRELOAD": str(stubs)}
    ran = subprocess.run(
        [str(environments.python(name)), *command],
        env={"PATH": os.environ["PATH"], "HOME": str(home), **preload, **card.environment(), **env},
        input=given,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return Ran(ran.returncode, ran.stdout, ran.stderr, card)


def mounted(pod: Mapping[str, Any], root: Path) -> dict[str, str]:
    """Write what the pod's first container mounts by the downward API below a root, and return its environment.

    The files are those that the kubelet writes: for the path of a mount, the annotation that its volume names. The
    environment names the root where it names the folder of the mounts.
    """
    container = pod["spec"]["containers"][0]
    env = {entry["name"]: entry.get("value", "") for entry in container["env"]}
    volumes = {volume["name"]: volume["downwardAPI"] for volume in pod["spec"]["volumes"] if "downwardAPI" in volume}
    for mount in container["volumeMounts"]:
        if mount["name"] not in volumes:
            continue
        (item,) = [one for one in volumes[mount["name"]]["items"] if one["path"] == mount["subPath"]]
        key = item["fieldRef"]["fieldPath"].removeprefix("metadata.annotations['").removesuffix("']")
        place = root / mount["mountPath"].lstrip("/")
        place.parent.mkdir(exist_ok=True)
        place.write_text(pod["metadata"]["annotations"][key], "ascii")
        place.chmod(volumes[mount["name"]]["defaultMode"])
        folder = str(Path(mount["mountPath"]).parent)
        path = env["PYTHONPATH"].split(":")
        env["PYTHONPATH"] = ":".join(f"{root}{folder}" if one == folder else one for one in path)
    return env
