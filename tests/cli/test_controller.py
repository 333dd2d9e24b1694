"""`slicewarden controller` from the command line; tests/controller has what it does."""

from pathlib import Path

import pytest

from webhook.cli import main as cli


def test_without_a_cluster_it_ends_and_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "kubeconfig"
    assert cli.main(["controller", "--kubeconfig", str(missing)]) == 2
    assert capsys.readouterr().err == f"error: {missing}: No such file or directory\n"


@pytest.mark.parametrize("seconds", ["0", "301"])
def test_a_drain_out_of_bounds_is_refused(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["controller", "--drain", seconds]) == 2
    assert "--drain" in capsys.readouterr().err
