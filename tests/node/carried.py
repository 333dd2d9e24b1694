"""The files that each node carries."""

from collections.abc import Mapping
from pathlib import Path

from tests.node import images, product
from tests.node.images import Image
from tests.node.nodes import GPU_NODE, WORKER


def carried(places: Mapping[str, Path]) -> dict[str, list[Image]]:
    """The images of the nodes, from these programs; those are made that the cache lacks. Raises Missing and Unbuilt."""
    common = [images.pause(), *images.tools(), images.nfd(places), product.image()]
    return {GPU_NODE: [*common, images.nvidia(places)], WORKER: [*common, images.cert_manager(places)]}
