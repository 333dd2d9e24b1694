"""How `python -m tests.node` ends where there is nothing to run."""

import pytest

from tests.e2e import binaries
from tests.node import __main__ as start
from tests.node import bed
from tests.support.go_programs import Missing, Unbuilt


@pytest.mark.parametrize(("reason", "status"), [(Missing, 0), (Unbuilt, 1)])
def test_what_is_not_installed_is_a_skip_and_what_does_not_build_is_a_failure(
    reason: type[Missing], status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def find() -> None:
        raise reason("the reason")

    monkeypatch.setattr(bed, "lacking", lambda: "")
    monkeypatch.setattr(binaries, "find", find)
    assert start.main() == status
    assert capsys.readouterr().err.splitlines()[-1].endswith("the reason")
