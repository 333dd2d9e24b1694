"""The tour: the real webhook on loopback, and what it says about the pods of the sample."""

import pytest

from webhook.cli import main as cli


def test_the_tour_shows_pods_that_are_patched_denied_and_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo"]) == 0
    out, err = capsys.readouterr()
    for words in ("   allowed\n", "   DENIED  ", "+    slicewarden.dev/memory-caps: "):
        assert words in out, out
    assert out.rstrip().endswith("The webhook has stopped. Judge manifests of your own: slicewarden check PATH")
    assert err == ""
