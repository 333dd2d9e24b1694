"""The simulation of replicas: it gives what queueing theory says wherever that has a formula."""

from collections.abc import Callable
from random import Random
from statistics import fmean

import pytest

from bench.fleet import Fleet, Played, play

MEAN = 0.001
ALONE = Fleet(replicas=1, workers=1, api_servers=1, in_flight=10**9, waiting=10**9, idle=10**9)


def exponential(random: Random) -> float:
    return random.expovariate(1 / MEAN)


def constant(_: Random) -> float:
    return MEAN


@pytest.mark.parametrize(
    ("load", "service", "waits"),
    [
        (0.5, exponential, lambda load: load / (1 - load)),
        (0.8, exponential, lambda load: load / (1 - load)),
        (0.8, constant, lambda load: load / (2 * (1 - load))),
    ],
)
def test_one_worker_waits_as_long_as_the_formula_of_pollaczek_and_khinchine_says(
    load: float, service: Callable[[Random], float], waits: Callable[[float], float]
) -> None:
    played = play(ALONE, load / MEAN, 60, service, calls=1)
    assert fmean(played.taken) - MEAN == pytest.approx(MEAN * waits(load), rel=0.08)


def test_replicas_that_are_chosen_for_each_call_wait_as_each_alone_does() -> None:
    four = Fleet(replicas=4, workers=1, api_servers=1, in_flight=10**9, waiting=10**9, by_call=True)
    played = play(four, 4 * 0.7 / MEAN, 25, exponential, calls=1)
    assert fmean(played.taken) == pytest.approx(MEAN / (1 - 0.7), rel=0.08)
    assert played.busiest < 1.05


def test_a_full_worker_refuses_as_many_as_the_formula_of_a_finite_queue_says() -> None:
    load, places = 0.9, 5
    small = Fleet(replicas=1, workers=1, api_servers=1, in_flight=10**9, waiting=places - 1)
    played = play(small, load / MEAN, 60, exponential, calls=1)
    refused = played.refused / (played.refused + len(played.taken))
    assert refused == pytest.approx((1 - load) * load**places / (1 - load ** (places + 1)), rel=0.08)


def test_one_in_flight_never_waits_for_another() -> None:
    one = Fleet(replicas=2, api_servers=1, in_flight=1)
    assert max(play(one, 500, 5, constant).taken) == pytest.approx(MEAN)


def test_a_connection_costs_a_handshake_once() -> None:
    one = Fleet(replicas=1, api_servers=1, in_flight=1, handshake=0.01)
    taken = play(one, 100, 5, constant).taken
    assert sum(each > MEAN * 1.5 for each in taken) == 2  # one for each of the two calls


def test_the_last_connection_is_used_first_and_only_so_many_are_kept() -> None:
    def dear(_: Random) -> float:
        return 0.1

    none_kept = Fleet(replicas=3, api_servers=1, idle=0, handshake=0.01)
    assert min(play(none_kept, 5, 20, dear).taken) >= 0.1099
    few = play(Fleet(replicas=3, api_servers=1, handshake=0.0), 2, 60, dear)
    assert few.busiest > 1.5, "calls that seldom overlap keep to few connections, and so to few replicas"


def test_a_replica_that_was_away_gets_its_share_back_only_where_each_call_is_spread() -> None:
    def shares(*, by_call: bool) -> Played:
        fleet = Fleet(replicas=3, by_call=by_call, away=(5.0, 8.0))
        return play(fleet, 600, 20, constant)

    spread, kept = shares(by_call=True), shares(by_call=False)
    assert spread.after[0] == pytest.approx(sum(spread.after) / 3, rel=0.1)
    assert kept.after[0] < sum(kept.after) / 6


def test_a_seed_gives_the_same_play_again() -> None:
    fleet = Fleet(replicas=2)
    assert play(fleet, 300, 3, exponential, seed=7) == play(fleet, 300, 3, exponential, seed=7)
    assert play(fleet, 300, 3, exponential, seed=7) != play(fleet, 300, 3, exponential, seed=8)


def test_nothing_is_lost() -> None:
    busy = Fleet(replicas=1, workers=1, waiting=3, in_flight=5)
    played = play(busy, 2_000, 2, exponential)
    assert played.refused
    assert sum(played.answered) == len(played.taken)
    assert played.late(0.0) == len(played.taken)
    assert played.late(10.0) == 0


def test_a_replica_that_was_away_has_its_share_once_all_connections_have_ended_for_their_age() -> None:
    def share(age: float) -> float:
        fleet = Fleet(replicas=3, age=age, away=(5.0, 8.0))
        played = play(fleet, 600, 40, constant)
        return played.after[0] * 3 / sum(played.after)

    assert share(1.0) == pytest.approx(1, abs=0.25)
    assert share(100.0) < 0.3, "none has ended in the time that is played"
