"""Writes a kubeconfig for a simulated API server."""

import json
from pathlib import Path


def kubeconfig(folder: Path, url: str) -> Path:
    """Write a kubeconfig with this address, and with a token."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file = folder / "kubeconfig"
    file.write_text(json.dumps(content), "utf-8")
    return file
