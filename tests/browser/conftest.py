"""A browser for the pages: Debian's Chromium, or nothing, which skips the tests in one line."""

from collections.abc import Iterator

import pytest

from tests.support import chromium


@pytest.fixture(scope="session")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Tab]:
    if chromium.PROGRAM is None:
        pytest.skip("no Chromium is installed: apt-get install chromium")
    with chromium.browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened
