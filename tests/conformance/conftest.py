"""The tests here run when they are asked for by path: `pytest tests/conformance`. They need Go."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.device_plugin import DevicePlugin, running
from tests.support.go_programs import Missing

HERE = Path(__file__).resolve().parent


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Leave this folder out of a run of all tests."""
    asked = ((config.invocation_params.dir / argument.partition("::")[0]).resolve() for argument in config.args)
    return None if any(path.is_relative_to(HERE) for path in asked) else True


@pytest.fixture(scope="session")
def device_plugin() -> Iterator[DevicePlugin]:
    """NVIDIA's code, to be asked; the run ends in one line when it cannot be had."""
    try:
        with running() as plugin:
            yield plugin
    except Missing as missing:
        pytest.exit(str(missing), returncode=2)
