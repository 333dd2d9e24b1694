"""The life of certificates: whatever is served verifies, whenever the work stops and whenever it goes on."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TypeVar

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, VerificationError
from cryptography.x509.verification import Store as TrustStore
from hypothesis import given, settings
from hypothesis import strategies as st

from certs import (
    Authorities,
    Changed,
    Pair,
    Stored,
    Terms,
    authorities,
    issue_ca,
    issue_serving,
    keep,
    service_names,
    written,
)
from certs.life import ATTEMPTS, Choice, renew, rotate, step
from certs.read import added, blocks, certificate, contains, removed, signed

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NAMES = service_names("slicewarden", "slicewarden-system")
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
TERMS = Terms(NAMES)
SHORT = Terms(NAMES, serving_days=3, ca_days=11, overlap=4 * HOUR)
HOOKS = ("mutating/a", "validating/a", "validating/b")
EMPTY = Stored(bundles=dict.fromkeys(HOOKS, b""))
FOREIGN = issue_ca("somebody else's", NOW).certificate_pem
LONGEST = 12
"""More changes than any run makes."""


def settled(stored: Stored, now: datetime, terms: Terms = TERMS) -> Stored:
    """The objects that are stored after a run."""
    for _ in range(LONGEST):
        change = step(stored, terms, now)
        if change is None:
            return stored
        stored = change.after
    raise AssertionError("there is always one more change")


def wished(stored: Stored, choice: Choice, now: datetime, terms: Terms = TERMS) -> Stored:
    change = choice(stored, terms, now)
    assert change
    return change.after


@cache
def verifies(serving: Pair, bundle: bytes, now: datetime) -> bool:
    """As an API server would: by somebody else's code."""
    trusted = TrustStore(x509.load_pem_x509_certificates(bundle))
    verifier = PolicyBuilder().store(trusted).time(now).build_server_verifier(x509.DNSName(NAMES[0]))
    try:
        verifier.verify(x509.load_pem_x509_certificate(serving.certificate_pem), [])
    except VerificationError:
        return False
    return True


def names(bundle: bytes) -> list[str]:
    return [certificate(each).subject for each in blocks(bundle)]


def ends(pair: Pair | None) -> datetime:
    assert pair
    return certificate(pair.certificate_pem).end


FIRST = settled(EMPTY, NOW)


# The first time


def test_from_nothing_all_is_made_at_once() -> None:
    ours, serving = FIRST.authorities, FIRST.serving
    assert ours.signing
    assert serving
    assert (ours.coming, ours.published, ours.retired, ours.replaced) == (None, None, (), None)
    assert all(bundle == ours.signing.certificate_pem for bundle in FIRST.bundles.values())
    assert verifies(serving, ours.signing.certificate_pem, NOW)
    assert set(certificate(serving.certificate_pem).names) == set(NAMES)
    assert ends(serving) - NOW == timedelta(days=90) - HOUR
    assert ends(ours.signing) - NOW == timedelta(days=730) - HOUR
    assert step(FIRST, TERMS, NOW) is None


def test_the_bundles_are_written_before_anything_is_served() -> None:
    stored, orders = EMPTY, []
    while change := step(stored, TERMS, NOW):
        orders.append((change.after.bundles != stored.bundles, change.after.serving != stored.serving))
        stored = change.after
    assert orders.index((True, False)) < orders.index((False, True))


def test_what_is_served_already_is_served_until_every_api_server_knows_the_new_ca() -> None:
    """A certificate made by hand, of a CA that was put into the bundles by hand."""
    by_hand = issue_ca("by hand", NOW)
    pair = issue_serving(by_hand, NAMES, [], NOW)
    stored = settled(Stored(serving=pair, bundles=dict.fromkeys(HOOKS, by_hand.certificate_pem)), NOW)
    assert stored.serving == pair
    assert stored.authorities.signing is None
    assert {len(blocks(bundle)) for bundle in stored.bundles.values()} == {2}
    assert settled(stored, NOW + DAY - HOUR) == stored
    after = settled(stored, NOW + DAY)
    assert after.serving != pair
    assert after.authorities.signing == stored.authorities.coming
    assert all(contains(bundle, by_hand.certificate_pem) for bundle in after.bundles.values())  # not ours to take away


# Renewal


def test_renewed_when_a_third_is_left() -> None:
    third = timedelta(days=30)
    assert settled(FIRST, ends(FIRST.serving) - third - HOUR) == FIRST
    renewed = settled(FIRST, ends(FIRST.serving) - third)
    assert renewed.authorities == FIRST.authorities
    assert renewed.bundles == FIRST.bundles
    assert ends(renewed.serving) - ends(FIRST.serving) == timedelta(days=60) - HOUR


def test_renewed_when_somebody_wants_it() -> None:
    renewed = wished(FIRST, renew, NOW)
    assert renewed.serving != FIRST.serving
    assert settled(renewed, NOW) == renewed
    assert renew(EMPTY, TERMS, NOW) is None


OTHER_CA = issue_ca("another", NOW)
WRONG = {
    "mismatched": Pair(issue_serving(OTHER_CA, NAMES, [], NOW).certificate_pem, issue_ca("x", NOW).key_pem),
    "of another CA": issue_serving(OTHER_CA, NAMES, [], NOW),
    "without its key": Pair(issue_serving(OTHER_CA, NAMES, [], NOW).certificate_pem, b""),
    "no certificate": Pair(b"scribbled over", b"and over"),
    "not yet": issue_serving(OTHER_CA, NAMES, [], NOW + DAY),
    "over": issue_serving(issue_ca("old", NOW - 3 * DAY), NAMES, [], NOW - 3 * DAY, days=1),
    "other names": issue_serving(OTHER_CA, ["elsewhere"], [], NOW),
}


@pytest.mark.parametrize("serving", WRONG.values(), ids=WRONG)
def test_a_serving_pair_that_will_not_do_is_replaced_at_once(serving: Pair) -> None:
    mended = settled(replace(FIRST, serving=serving), NOW)
    assert mended.serving
    assert mended.authorities == FIRST.authorities
    assert verifies(mended.serving, mended.bundles[HOOKS[0]], NOW)


def test_another_name_is_asked_for() -> None:
    more = Terms((*NAMES, "localhost"))
    change = step(FIRST, more, NOW)
    assert change
    assert "lacks localhost" in change.what
    assert change.after.serving
    assert "localhost" in certificate(change.after.serving.certificate_pem).names


# Rotation


def test_a_rotation_step_by_step() -> None:
    old = FIRST.authorities.signing
    assert old
    begun = settled(wished(FIRST, rotate, NOW), NOW)
    new = begun.authorities.coming
    assert new
    assert begun.serving == FIRST.serving
    assert {names(bundle)[0] for bundle in begun.bundles.values()} == {certificate(old.certificate_pem).subject}
    assert all(contains(bundle, new.certificate_pem) for bundle in begun.bundles.values())
    assert settled(begun, NOW + DAY - HOUR) == begun

    turned = settled(begun, NOW + DAY)
    assert turned.authorities.signing == new
    assert turned.serving
    assert signed(turned.serving.certificate_pem, new.certificate_pem)
    assert turned.bundles == begun.bundles
    assert old.key_pem not in written(turned.authorities).values()  # what signs no more is not kept to be stolen
    assert settled(turned, NOW + 2 * DAY - HOUR) == turned

    over = settled(turned, NOW + 2 * DAY)
    assert over.authorities == Authorities(signing=new)
    assert over.serving == turned.serving
    assert {*over.bundles.values()} == {new.certificate_pem}


def test_a_ca_is_replaced_when_a_third_is_left() -> None:
    signing = FIRST.authorities.signing
    third = (ends(signing) - NOW + HOUR) / 3
    before = settled(FIRST, ends(signing) - third - HOUR)
    assert before.authorities.coming is None
    assert settled(before, ends(signing) - third).authorities.coming


def test_wanted_twice_a_rotation_is_begun_once() -> None:
    begun = settled(wished(FIRST, rotate, NOW), NOW)
    again = rotate(begun, TERMS, NOW + HOUR)
    assert again
    assert again.after == begun
    assert "already being introduced; it signs from 2026-03-02T12:00Z on" in again.what


def test_a_ca_that_was_taken_out_of_a_bundle_waits_again() -> None:
    begun = settled(wished(FIRST, rotate, NOW), NOW)
    torn = replace(begun, bundles={**begun.bundles, HOOKS[1]: FIRST.bundles[HOOKS[1]]})
    mended = settled(torn, NOW + DAY)
    assert mended.bundles == begun.bundles
    assert mended.serving == begun.serving
    assert mended.authorities.published == NOW + DAY


def test_a_serving_pair_lost_in_a_rotation_comes_from_the_ca_that_signs() -> None:
    begun = settled(wished(FIRST, rotate, NOW), NOW)
    mended = settled(replace(begun, serving=None), NOW + HOUR)
    assert mended.authorities == begun.authorities
    assert mended.serving
    assert mended.authorities.signing
    assert signed(mended.serving.certificate_pem, mended.authorities.signing.certificate_pem)


def test_an_emptied_bundle_is_filled_with_all_that_may_be_needed() -> None:
    turned = settled(settled(wished(FIRST, rotate, NOW), NOW), NOW + DAY)
    torn = replace(turned, bundles={**turned.bundles, HOOKS[0]: b"\n"})
    mended = settled(torn, NOW + DAY)
    assert sorted(blocks(mended.bundles[HOOKS[0]])) == sorted(blocks(turned.bundles[HOOKS[0]]))


def test_a_ca_that_ended_is_replaced_at_once() -> None:
    """Nobody came for years: nothing that is served is trusted, and there is nothing to wait for."""
    later = NOW + timedelta(days=1000)
    mended = settled(FIRST, later)
    assert mended.serving
    assert all(verifies(mended.serving, bundle, later) for bundle in mended.bundles.values())


def test_a_rotation_that_was_left_for_years() -> None:
    begun = settled(wished(FIRST, rotate, NOW), NOW)
    later = NOW + timedelta(days=1000)
    mended = settled(begun, later)
    assert mended.serving
    assert all(verifies(mended.serving, bundle, later) for bundle in mended.bundles.values())
    assert {len(blocks(bundle)) for bundle in settled(mended, later + DAY).bundles.values()} == {1}


def test_a_clock_that_went_back_makes_everyone_wait_longer() -> None:
    begun = settled(wished(FIRST, rotate, NOW), NOW)
    back = settled(begun, NOW - HOUR / 2)
    assert back.authorities.published == NOW - HOUR / 2
    assert back.serving == begun.serving


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"serving_days": 0}, "lives 1 to 365 days, not 0"),
        ({"serving_days": 366, "ca_days": 3650}, "lives 1 to 365 days, not 366"),
        ({"ca_days": 276}, "a CA of 276 days would end too soon: more than 276 are needed"),
        ({"overlap": timedelta(0)}, "longer than 0"),
        ({"overlap": 31 * DAY, "ca_days": 3650}, "a third of 90 days is not longer than this overlap"),
    ],
)
def test_terms_that_do_not_fit(terms: Mapping[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Terms(NAMES, **terms)  # type: ignore[arg-type]


# Any sequence of times and interruptions


@dataclass
class World:
    """The objects that are stored over time, and all that an API server or a replica may have seen last."""

    now: datetime
    stored: Stored
    bundles: list[tuple[datetime, Mapping[str, bytes]]] = field(default_factory=list)
    served: list[tuple[datetime, Pair | None]] = field(default_factory=list)

    def take(self, after: Stored) -> None:
        """Store a change as a cluster does: one object after the other, which others may see."""
        bundles = dict(self.stored.bundles)
        for name in [name for name in after.bundles if after.bundles[name] != bundles[name]]:
            bundles[name] = after.bundles[name]
            self._see(replace(self.stored, bundles=dict(bundles)))
        self._see(after)

    def _see(self, stored: Stored) -> None:
        self.stored = stored
        self.bundles.append((self.now, stored.bundles))
        self.served.append((self.now, stored.serving))
        self.check()

    def check(self) -> None:
        """Whatever anyone saw last within the overlap fits together."""
        for serving in _last_seen(self.served, self.now - SHORT.overlap):
            for bundles in _last_seen(self.bundles, self.now - SHORT.overlap):
                assert serving
                assert all(verifies(serving, bundle, self.now) for bundle in set(bundles.values()))

    def run(self, wish: Choice | None, changes: int = LONGEST) -> None:
        """Make changes until there is none left, or so many were made."""
        for choose in (step, wish, step):
            while choose and changes and (change := choose(self.stored, SHORT, self.now)):
                changes -= 1
                self.take(change.after)
                if choose is not step:
                    break


Seen = TypeVar("Seen")


def _last_seen(history: list[tuple[datetime, Seen]], since: datetime) -> list[Seen]:
    """The state at a moment, and all that came after it."""
    before = [seen for when, seen in history if when <= since]
    found: list[Seen] = []
    for each in (*before[-1:], *(seen for when, seen in history if when > since)):
        if each not in found:
            found.append(each)
    return found


WISHES = st.sampled_from([None, None, None, rotate, renew])
MOVES = st.tuples(st.integers(0, 17), WISHES, st.integers(0, 6), st.integers(0, 120))
"""Hours that pass, a wish, after how many changes the run breaks off, and minutes until one that does not."""


@settings(max_examples=12, deadline=None)
@given(st.lists(MOVES, min_size=10, max_size=30))
def test_whatever_is_served_verifies_at_all_times(moves: list[tuple[int, Choice | None, int, int]]) -> None:
    """Run once in less than a third of a serving certificate's life, less the overlap; broken off at times."""
    start = settled(replace(EMPTY, bundles={**EMPTY.bundles, HOOKS[1]: FOREIGN}), NOW, SHORT)
    world = World(NOW, start, [(NOW, start.bundles)], [(NOW, start.serving)])
    for hours, wish, changes, minutes in moves:
        world.now += hours * HOUR
        world.check()
        world.run(wish, changes)
        world.now += timedelta(minutes=minutes)
        world.check()
        world.run(None)
    assert contains(world.stored.bundles[HOOKS[1]], FOREIGN)
    ours = []
    for _ in range(8):  # and what was begun is finished, be it that a CA came to its last third meanwhile
        world.now += SHORT.overlap
        world.run(None)
        ours.append(world.stored.authorities)
    assert any(each.coming is None and not each.retired for each in ours)


TEARS = st.sampled_from(["nothing", "bundle", "serving", "authorities", "published", "replaced"])


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(-2, 500), TEARS, st.integers(0, 6)), min_size=1, max_size=8))
def test_after_any_run_all_is_well_whatever_was_there(moves: list[tuple[int, str, int]]) -> None:
    """Days pass, more than any promise allows, objects are lost, runs break off: one whole run mends it."""
    stored, now = FIRST, NOW
    for days, torn, changes in moves:
        now += days * DAY
        stored = _torn(stored, torn)
        for _ in range(changes):
            if change := step(stored, TERMS, now):
                stored = change.after
    stored = settled(stored, now)
    assert stored.serving
    assert all(verifies(stored.serving, bundle, now) for bundle in stored.bundles.values())
    assert authorities(written(stored.authorities)) == stored.authorities


def _torn(stored: Stored, torn: str) -> Stored:
    ours = stored.authorities
    match torn:
        case "bundle":
            return replace(stored, bundles={**stored.bundles, HOOKS[0]: b""})
        case "serving":
            return replace(stored, serving=None)
        case "authorities":
            return replace(stored, authorities=Authorities())
        case "published":
            return replace(stored, authorities=replace(ours, published=None))
        case "replaced":
            return replace(stored, authorities=replace(ours, replaced=None))
    return stored


# Runs against a store


class Shelf:
    """A store in memory; `rivals` say what somebody else does before our next writes."""

    def __init__(self, stored: Stored = EMPTY, rivals: list[Choice] | None = None) -> None:
        self.stored, self.rivals, self.written = stored, rivals or [], 0
        self._read = stored

    def read(self) -> Stored:
        self._read = self.stored
        return self.stored

    def write(self, after: Stored) -> None:
        if self.rivals:
            change = self.rivals.pop(0)(self.stored, TERMS, NOW)
            if change:
                self.stored = change.after
        if self.stored != self._read:
            raise Changed("Secret slicewarden-ca")
        self.stored = after
        self.written += 1


def kept(shelf: Shelf, *wishes: Choice, now: datetime = NOW, dry_run: bool = False) -> list[str]:
    return list(keep(shelf, TERMS, lambda: now, wishes, dry_run=dry_run))


def test_a_line_for_each_change() -> None:
    shelf = Shelf()
    ca = "CN=slicewarden CA 2026-03-01T12:00Z"
    assert kept(shelf) == [
        f"{ca} is new, and ends 2028-02-29T11:00Z",
        f"3 bundles are written with {ca}",
        f"{ca} signs from now on; no served certificate is trusted, so it signs at once",
        f"a serving certificate of {ca} is issued, and ends 2026-05-30T11:00Z: there was none",
    ]
    assert kept(shelf) == []


def test_a_dry_run_says_the_same_and_writes_nothing() -> None:
    shelf = Shelf()
    lines = kept(shelf, dry_run=True)
    assert (shelf.written, shelf.stored) == (0, EMPTY)
    assert lines == kept(shelf)


def test_wishes_are_granted_once() -> None:
    shelf = Shelf(FIRST)
    lines = kept(shelf, renew, rotate)
    assert [line for line in lines if "as asked for" in line] == lines[:1]
    assert [line for line in lines if "is new" in line] == lines[1:2]


def test_two_at_once_end_as_one_would() -> None:
    shelf = Shelf(rivals=[step, step])
    kept(shelf)
    assert step(shelf.stored, TERMS, NOW) is None
    assert shelf.stored.serving


def test_somebody_who_never_stops_is_left_alone() -> None:
    shelf = Shelf(FIRST, rivals=[renew] * ATTEMPTS)
    with pytest.raises(Changed):
        kept(shelf, rotate)
    assert shelf.written == 0


# What is stored


def test_authorities_are_read_as_they_were_written() -> None:
    assert authorities({}) == Authorities()
    begun = settled(wished(FIRST, rotate, NOW), NOW)
    turned = settled(begun, NOW + DAY)
    for each in (FIRST, begun, turned):
        assert authorities(written(each.authorities)) == each.authorities
    assert turned.authorities.replaced


GOOD = written(settled(wished(FIRST, rotate, NOW), NOW).authorities)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ca.key": b""}, "ca.key: not the private key of ca.crt"),
        ({"ca.crt": b""}, "ca.crt: not a PEM certificate"),
        ({"ca.crt": b"scribbled over"}, "ca.crt: not a PEM certificate"),
        ({"ca.crt": GOOD["coming.crt"]}, "ca.key: not the private key of ca.crt"),
        ({"ca.crt": GOOD["ca.crt"] + GOOD["coming.crt"]}, "ca.crt: not one CA certificate"),
        ({"ca.crt": FIRST.serving.certificate_pem if FIRST.serving else b""}, "ca.crt: not one CA certificate"),
        ({"coming.key": b"?"}, "coming.key: not the private key of coming.crt"),
        ({"coming.published": b"yesterday"}, "coming.published: not a time: 'yesterday'"),
        ({"coming.published": b"2026-03-01T12:00:00"}, "coming.published: a time without its zone"),
        ({"retired.crt": b"x"}, "retired.crt: more than certificates in PEM"),
        ({"retired.crt": GOOD["ca.key"]}, "retired.crt: more than certificates in PEM"),
        ({"tls.key": b"x"}, "tls.key is none of ours"),
    ],
)
def test_what_cannot_be_read_is_said_and_not_guessed(change: dict[str, bytes], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        authorities({**GOOD, **change})


# Bundles

UNREADABLE = b"-----BEGIN CERTIFICATE-----\nAAA\n-----END CERTIFICATE-----"


def test_what_others_put_into_a_bundle_stays_as_it_is() -> None:
    strange = b"# theirs\n" + FOREIGN.replace(b"\n", b"\r\n") + UNREADABLE
    ours = OTHER_CA.certificate_pem
    both = added(strange, ours)
    assert both == strange + b"\n" + ours
    assert added(both, ours) == both
    assert added(both, FOREIGN) == both
    assert removed(both, ours) == strange + b"\n"
    assert removed(both, issue_ca("x", NOW).certificate_pem) == both
    assert len(blocks(both)) == 3


@pytest.mark.parametrize("nothing", [b"", b"\n", b" \n"])
def test_a_bundle_of_nothing(nothing: bytes) -> None:
    assert added(nothing, FOREIGN) == FOREIGN
    assert blocks(nothing) == ()
