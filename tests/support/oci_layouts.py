"""Makes folders in the layout of the OCI image specification (image-layout.md), each with one image."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TYPE = "application/vnd.oci.image"


def blob(layout: Path, data: bytes, kind: str) -> dict[str, Any]:
    """Write a blob into a layout and return its descriptor."""
    digest = hashlib.sha256(data).hexdigest()
    place = layout / "blobs" / "sha256" / digest
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data)
    return {"mediaType": f"{TYPE}.{kind}", "digest": f"sha256:{digest}", "size": len(data)}


def of_image(layout: Path, labels: Mapping[str, str]) -> dict[str, Any]:
    """Write an image without layers that has labels, and return the descriptor of its manifest."""
    config = {"architecture": "amd64", "os": "linux", "config": {"Labels": {**labels}}}
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{TYPE}.manifest.v1+json",
        "config": blob(layout, json.dumps(config).encode(), "config.v1+json"),
        "layers": [],
    }
    return blob(layout, json.dumps(manifest).encode(), "manifest.v1+json")


def of_platforms(layout: Path, images: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Write an index with an image for each operating system, which has labels, and return its descriptor."""
    entries = [
        {**of_image(layout, labels), "platform": {"os": system, "architecture": "amd64"}}
        for system, labels in images.items()
    ]
    index = {"schemaVersion": 2, "mediaType": f"{TYPE}.index.v1+json", "manifests": entries}
    return blob(layout, json.dumps(index).encode(), "index.v1+json")


def name(layout: Path, *entries: Mapping[str, Any]) -> None:
    """Have the layout name these manifests."""
    layout.mkdir(parents=True, exist_ok=True)
    (layout / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}', "utf-8")
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [*entries]}), "utf-8")


def relabel(layout: Path, labels: Mapping[str, str]) -> None:
    """Give the one image of a layout more labels."""
    (entry,) = json.loads((layout / "index.json").read_text("utf-8"))["manifests"]
    manifest = _read(layout, entry)
    config = _read(layout, manifest["config"])
    config["config"]["Labels"] = {**config["config"].get("Labels", {}), **labels}
    manifest["config"] = blob(layout, json.dumps(config).encode(), "config.v1+json")
    name(layout, blob(layout, json.dumps(manifest).encode(), "manifest.v1+json"))


def _read(layout: Path, entry: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((layout / "blobs" / entry["digest"].replace(":", "/")).read_bytes())
    return found
