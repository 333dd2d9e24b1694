"""Connections of which nothing is asked. The last page of this folder: what it waits for began with the first."""

from concurrent.futures import Future

from tests.faults.silence import PATIENCE, Silence


def test_a_connection_outlives_a_silence_of_100_s(silence: Future[Silence]) -> None:
    """It is asked on again after the longest that an API server leaves it alone, and no handshake is needed."""
    found = silence.result()
    assert found.seconds >= PATIENCE
    assert found.same
    assert found.before == found.after
    assert found.before[0] == 200
