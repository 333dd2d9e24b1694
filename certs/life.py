"""The life of the webhook's certificates: decides the next change of the store. Pure: no files, no clock.

The store holds three things, each changed on its own: the authorities, in a Secret that no pod mounts; the serving
pair, in the Secret that the webhook mounts; and the bundles of CA certificates, by which API servers trust the webhook.

A new CA is published in every bundle before it signs. It signs only after every API server has had time to see it. The
old CA stays in the bundles until every replica has had time to serve from the new one. So the bundle that an API server
last saw verifies the pair that a replica last loaded, if neither is older than the overlap. A run may stop after any
change, and the next run continues.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Protocol

from certs.issue import MAX_SERVING_DAYS, Pair, issue_ca, issue_serving
from certs.read import added, blocks, certificate, contains, fits, removed, signed

ATTEMPTS = 5
"""Maximum attempts in a row that may fail because another program has changed the store."""

_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of certificates: the names of the webhook, the lifetimes in days, and the overlap of two CAs.

    The overlap is the time in which every API server sees a change of its webhook configuration, and every replica
    loads a change of its Secret. A certificate is renewed when a third of its life is left. So the last third of a
    serving certificate must be longer than the overlap; that of a CA, longer than a serving certificate's life and
    two overlaps. Raises ValueError otherwise.
    """

    names: tuple[str, ...]
    serving_days: int = 90
    ca_days: int = 730
    overlap: timedelta = _DAY

    def __post_init__(self) -> None:
        if not 1 <= self.serving_days <= MAX_SERVING_DAYS:
            raise ValueError(f"a serving certificate lives 1 to {MAX_SERVING_DAYS} days, not {self.serving_days}")
        if self.overlap <= timedelta(0):
            raise ValueError("the overlap of two CAs must be longer than 0")
        if timedelta(days=self.serving_days) / 3 <= self.overlap:  # otherwise it could end while it is served
            raise ValueError(f"a third of {self.serving_days} days is not longer than this overlap")
        needed = 3 * (timedelta(days=self.serving_days) + 2 * self.overlap)
        if timedelta(days=self.ca_days) <= needed:
            raise ValueError(
                f"a CA of {self.ca_days} days would end too soon: more than {needed.days} are needed for serving"
                f" certificates of {self.serving_days} days and this overlap"
            )


@dataclass(frozen=True, slots=True)
class Authorities:
    """The CAs: the one that signs, the `coming` one that signs next, and the certificates of the retired ones.

    `published` is when every bundle had received the coming CA. `replaced` is when the serving certificate was first
    signed by the current CA.
    """

    signing: Pair | None = None
    coming: Pair | None = None
    published: datetime | None = None
    retired: tuple[bytes, ...] = ()
    replaced: datetime | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """The contents of the store. The bundles are PEM, by the name of their webhook."""

    authorities: Authorities = Authorities()
    serving: Pair | None = None
    bundles: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """One change: a line for people, and the contents of the store after it."""

    what: str
    after: Stored


Choice = Callable[[Stored, Terms, datetime], Step | None]
"""Returns the next change, or None."""


def step(stored: Stored, terms: Terms, now: datetime) -> Step | None:
    """Return the next change that is due; None if none is due yet."""
    ours, serving = stored.authorities, stored.serving
    if not _able(ours.coming, now) and (not _able(ours.signing, now) or _aged(ours.signing, now)):
        return _begin(stored, terms, now)
    coming, published = ours.coming, ours.published
    if coming and published and (published > now or not _published(coming, stored)):
        what = f"{_name(coming)} was not in every bundle since it was published: its waiting time starts again"
        return Step(what, replace(stored, authorities=replace(ours, published=None)))
    bundles = {name: _bundle(bundle, ours, terms, now) for name, bundle in stored.bundles.items()}
    if bundles != stored.bundles:
        return Step(_difference(stored.bundles, bundles), replace(stored, bundles=bundles))
    if coming and not _able(ours.signing, now) and not _trusted(stored, now):
        return _promote(stored, coming, "; no served certificate is trusted, so it signs at once")
    if coming and published is None:
        what = f"{_name(coming)} is in every bundle, and signs from {_moment(now + terms.overlap)} on"
        return Step(what, replace(stored, authorities=replace(ours, published=now)))
    if coming and published and published + terms.overlap <= now:
        return _promote(stored, coming)
    if ours.signing and _able(ours.signing, now) and (why := _fault(serving, ours.signing, terms, now)):
        return _issue(stored, ours.signing, terms, now, why)
    if ours.retired and serving and ours.signing and signed(serving.certificate_pem, ours.signing.certificate_pem):
        return _retire(stored, terms, now)
    return None


def rotate(stored: Stored, terms: Terms, now: datetime) -> Step | None:
    """Return the first change of a rotation of the CA, even if none is due."""
    ours = stored.authorities
    if ours.coming:
        since = f"; it signs from {_moment(ours.published + terms.overlap)} on" if ours.published else ""
        return Step(f"{_name(ours.coming)} is already being introduced{since}", stored)
    return _begin(stored, terms, now)


def renew(stored: Stored, terms: Terms, now: datetime) -> Step | None:
    """Return the renewal of the serving certificate, even if it is not due; None if no CA can sign."""
    signing = stored.authorities.signing
    return _issue(stored, signing, terms, now, "as asked for") if signing and _able(signing, now) else None


def _begin(stored: Stored, terms: Terms, now: datetime) -> Step:
    """Issue a new CA. A coming CA that has expired may be in the bundles, so it is retired."""
    ours = stored.authorities
    coming = issue_ca(f"slicewarden CA {_moment(now)}", now, terms.ca_days)
    unused = (ours.coming.certificate_pem,) if ours.coming else ()
    after = replace(ours, coming=coming, published=None, retired=(*ours.retired, *unused))
    return Step(f"{_name(coming)} is new, and ends {_end(coming)}", replace(stored, authorities=after))


def _promote(stored: Stored, coming: Pair, why: str = "") -> Step:
    ours = stored.authorities
    before = (ours.signing.certificate_pem,) if ours.signing else ()
    after = Authorities(signing=coming, retired=(*ours.retired, *before))
    return Step(f"{_name(coming)} signs from now on{why}", replace(stored, authorities=after))


def _issue(stored: Stored, signing: Pair, terms: Terms, now: datetime, why: str) -> Step:
    left = certificate(signing.certificate_pem).end - now
    made = issue_serving(signing, terms.names, [], now, min(terms.serving_days, left.days))
    what = f"a serving certificate of {_name(signing)} is issued, and ends {_end(made)}: {why}"
    return Step(what, replace(stored, serving=made))


def _retire(stored: Stored, terms: Terms, now: datetime) -> Step | None:
    ours = stored.authorities
    names = ", ".join(map(_name, ours.retired))
    if ours.replaced is None or ours.replaced > now:
        what = f"nothing new is served from {names}; every bundle drops it at {_moment(now + terms.overlap)}"
        return Step(what, replace(stored, authorities=replace(ours, replaced=now)))
    if _ripe(ours, terms, now):
        after = replace(ours, retired=(), replaced=None)
        return Step(f"{names} is forgotten", replace(stored, authorities=after))
    return None


def bundle(ours: Authorities, terms: Terms, now: datetime) -> bytes:
    """Return the bundle of a webhook that is new: the certificates of every CA that may be needed, in PEM."""
    return _bundle(b"", ours, terms, now)


def _bundle(bundle: bytes, ours: Authorities, terms: Terms, now: datetime) -> bytes:
    """Return the wanted bundle: certificates that others added, and those of ours that may still be needed."""
    ripe = _ripe(ours, terms, now)
    wanted = [pair.certificate_pem for pair in (ours.signing, ours.coming) if pair]
    wanted += [] if ripe else ours.retired
    return reduce(added, wanted, reduce(removed, ours.retired if ripe else (), bundle))


def _ripe(ours: Authorities, terms: Terms, now: datetime) -> bool:
    """Whether every replica has had time to serve from the current CA."""
    return ours.replaced is not None and ours.replaced + terms.overlap <= now


def _published(ca: Pair, stored: Stored) -> bool:
    return all(contains(bundle, ca.certificate_pem) for bundle in stored.bundles.values())


def _able(ca: Pair | None, now: datetime) -> bool:
    """Whether a CA can still sign a certificate that lasts one day."""
    if ca is None:
        return False
    read = certificate(ca.certificate_pem)
    return read.start <= now <= read.end - _DAY


def _aged(pair: Pair | None, now: datetime) -> bool:
    """Whether at most a third of a certificate's life is left."""
    if pair is None:
        return False
    read = certificate(pair.certificate_pem)
    return read.end - now <= (read.end - read.start) / 3


def _fault(serving: Pair | None, signing: Pair, terms: Terms, now: datetime) -> str:
    """Return the reason to replace a serving pair; empty if there is none."""
    if serving is None:
        return "there was none"
    if not fits(serving):
        return "the stored pair is not a certificate with its key"
    read = certificate(serving.certificate_pem)
    if not read.holds(now):
        return "the previous one was no longer valid" if read.end < now else "the previous one was not valid yet"
    if not signed(serving.certificate_pem, signing.certificate_pem):
        return f"the previous one is of {read.issuer}"
    if missing := [name for name in terms.names if name not in read.names]:
        return f"the previous one lacks {', '.join(missing)}"
    return f"the previous one ends {_moment(read.end)}" if _aged(serving, now) else ""


def _trusted(stored: Stored, now: datetime) -> bool:
    """Whether every bundle verifies the stored serving pair."""
    serving = stored.serving
    if serving is None or not fits(serving) or not certificate(serving.certificate_pem).holds(now):
        return False
    return all(
        any(signed(serving.certificate_pem, ca) and certificate(ca).holds(now) for ca in blocks(bundle))
        for bundle in stored.bundles.values()
    )


def _difference(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> str:
    """Describe the change of the bundles in one line."""
    come = {ca for name in after for ca in blocks(after[name]) if not contains(before[name], ca)}
    go = {ca for name in before for ca in blocks(before[name]) if not contains(after[name], ca)}
    parts = [*(f"with {name}" for name in sorted(map(_name, come)))]
    parts += [f"without {name}" for name in sorted(map(_name, go))]
    count = sum(before[name] != after[name] for name in after)
    return f"{count} {'bundle is' if count == 1 else 'bundles are'} written {', '.join(parts)}"


def _name(ca: Pair | bytes) -> str:
    return certificate(ca if isinstance(ca, bytes) else ca.certificate_pem).subject


def _end(pair: Pair) -> str:
    return _moment(certificate(pair.certificate_pem).end)


def _moment(when: datetime) -> str:
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%MZ")


class Unsettled(Exception):
    """The change could not be made now. The store is consistent, and another run may make it."""


class Changed(Unsettled):
    """Another program has changed the store since it was read."""


class Store(Protocol):
    """A store of certificates."""

    def read(self) -> Stored:
        """Read everything. Raises ValueError for unusable contents, and Unsettled."""

    def write(self, after: Stored) -> None:
        """Write what differs from the last read. Raises Changed if the store has changed since then."""


def keep(
    store: Store, terms: Terms, clock: Callable[[], datetime], wishes: Sequence[Choice] = (), *, dry_run: bool = False
) -> Iterator[str]:
    """Make every change that is due, and the requested ones (`wishes`); yield a line after each.

    In a dry run nothing is written. Raises Changed after ATTEMPTS tries, and the errors of the store. The changes made
    before an error remain, and the next run continues from them.
    """
    stored, attempts = store.read(), ATTEMPTS
    for choose in (step, *wishes, step):
        while change := choose(stored, terms, clock()):
            if dry_run:
                stored = change.after
            else:
                try:
                    store.write(change.after)
                except Changed:
                    attempts -= 1
                    if not attempts:
                        raise
                    stored = store.read()
                    continue
                stored, attempts = store.read(), ATTEMPTS
            yield change.what
            if choose is not step:
                break


_CA, _KEY = "ca.crt", "ca.key"
_COMING, _COMING_KEY, _PUBLISHED = "coming.crt", "coming.key", "coming.published"
_RETIRED, _REPLACED = "retired.crt", "retired.replaced"


def written(ours: Authorities) -> dict[str, bytes]:
    """Return the authorities as the data of a Secret, without keys for absent parts."""
    data = {_RETIRED: b"".join(ours.retired)}
    for pair, names in ((ours.signing, (_CA, _KEY)), (ours.coming, (_COMING, _COMING_KEY))):
        if pair:
            data |= dict(zip(names, (pair.certificate_pem, pair.key_pem), strict=True))
    for when, name in ((ours.published, _PUBLISHED), (ours.replaced, _REPLACED)):
        data[name] = when.astimezone(UTC).isoformat().encode() if when else b""
    return {name: value for name, value in data.items() if value}


def authorities(data: Mapping[str, bytes]) -> Authorities:
    """Read the CAs from the data of their Secret.

    Raises ValueError, which names the key, for an unknown key or an invalid value.
    """
    if unknown := data.keys() - {_CA, _KEY, _COMING, _COMING_KEY, _PUBLISHED, _RETIRED, _REPLACED}:
        raise ValueError(f"{min(unknown)} is none of ours")
    return Authorities(
        signing=_pair(data, _CA, _KEY),
        coming=_pair(data, _COMING, _COMING_KEY),
        published=_time(data, _PUBLISHED),
        retired=_retired(data),
        replaced=_time(data, _REPLACED),
    )


def _pair(data: Mapping[str, bytes], name: str, key: str) -> Pair | None:
    pair = Pair(data.get(name, b""), data.get(key, b""))
    if not pair.certificate_pem and not pair.key_pem:
        return None
    try:
        is_ca = certificate(pair.certificate_pem).is_ca
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if not is_ca or len(blocks(pair.certificate_pem)) != 1:
        raise ValueError(f"{name}: not one CA certificate")
    if not fits(pair):
        raise ValueError(f"{key}: not the private key of {name}")
    return pair


def _retired(data: Mapping[str, bytes]) -> tuple[bytes, ...]:
    certificates = blocks(data.get(_RETIRED, b""))
    try:
        for pem in certificates:
            certificate(pem)
    except ValueError as error:
        raise ValueError(f"{_RETIRED}: {error}") from None
    if b"".join(certificates) != data.get(_RETIRED, b""):
        raise ValueError(f"{_RETIRED}: more than certificates in PEM")
    return certificates


def _time(data: Mapping[str, bytes], name: str) -> datetime | None:
    text = data.get(name, b"").decode("ascii", "replace")
    if not text:
        return None
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{name}: not a time: {text[:40]!r}") from None
    if when.utcoffset() is None:
        raise ValueError(f"{name}: a time without its zone: {text[:40]!r}")
    return when
