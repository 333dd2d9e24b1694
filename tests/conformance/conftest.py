"""The tests here run when they are asked for by path: `pytest tests/conformance`. They need Go."""

from collections.abc import Iterator

import pytest

from tests.conformance.device_plugin import DevicePlugin, running
from tests.support.go_programs import Missing


@pytest.fixture(scope="session")
def device_plugin() -> Iterator[DevicePlugin]:
    """NVIDIA's code, to be asked; the run ends in one line when it cannot be had."""
    try:
        with running() as plugin:
            yield plugin
    except Missing as missing:
        pytest.exit(str(missing), returncode=2)
