"""Finds common webhooks to measure next to ours. They are built from the pins in this folder, or given by path."""

import os
from collections.abc import Mapping
from pathlib import Path

from bench.generator import HERE, CannotRun
from tests.support.go_programs import Missing, built

EKS, HAMI = "EKS pod-identity", "HAMi"
PEERS = {"eks": EKS, "hami": HAMI}
"""Peers by the folder of their main package, which serves their own handler without a cluster."""


def find(given: Mapping[str, Path]) -> tuple[dict[str, Path], list[str]]:
    """Return the programs of peers by name, and a line for each missing one. Raises CannotRun for a wrong path."""
    found, missing = {}, []
    for folder, name in PEERS.items():
        if folder in given:
            path = given[folder].resolve()
            if not os.access(path, os.X_OK):
                raise CannotRun(f"--peer {folder}={given[folder]}: no program")
            found[name] = path
            continue
        try:
            found[name] = _built(folder)
        except Missing as error:
            missing.append(f"{name} was not measured: {error}")
    return found, missing


def _built(folder: str) -> Path:
    return (
        built(
            HERE / folder,
            {folder: "."},
            without_go="it takes Go to build it: https://go.dev/dl/",
            patience="; the first time, some minutes",
            cgo=folder == "hami",  # for NVIDIA's library, which its device packages load
        )
        / folder
    )
