"""Sends queries to a Prometheus, or to a server with its HTTP API. It reads the settings of Prometheus' own clients."""

import base64
import ipaddress
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from webhook.cluster import client
from webhook.documents import documents, files
from webhook.model import Problem, Unusable

MOST_SECRET = 65_536
"""Maximum bytes of a file with a password or a token."""

KEYS: Mapping[str, Collection[str]] = {
    "basic_auth": ("username", "username_file", "password", "password_file"),
    "authorization": ("type", "credentials", "credentials_file"),
    "tls_config": ("ca_file", "cert_file", "key_file", "server_name"),
}
"""The settings that are read (prometheus/common config/http_config.go). Certificates are always verified."""

SILENCE, LONGEST = 130.0, 150.0
"""Seconds that the server may be silent and may take for an answer: its own limit for a query is two minutes."""


class Settings:
    """The settings of a client, read from a file. Paths in it are relative to its folder. Raises Unusable."""

    def __init__(self, file: str | None) -> None:
        self._file = file or ""
        self._value = self._read() if file else {}

    def _wrong(self, why: str) -> Unusable:
        return Unusable((Problem(self._file, 0, why),))

    def _read(self) -> Mapping[str, Mapping[str, str]]:
        try:
            found, problems = documents.read(files.contents(self._file).decode(), self._file)
        except OSError as error:
            raise self._wrong(error.strerror or str(error)) from error
        except ValueError as error:
            raise self._wrong("not text in UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)) from error
        if problems:
            raise Unusable(tuple(problems))
        value = found[0].value if len(found) == 1 else None
        if not isinstance(value, dict):
            raise self._wrong("it has no settings of a client")
        for section, settings in value.items():
            known = KEYS.get(section) if isinstance(section, str) else None
            if known is None:
                raise self._wrong(f"{section!r} is not supported; the settings are {', '.join(KEYS)}")
            for key, text in settings.items() if isinstance(settings, dict) else [("", None)]:
                if key not in known:
                    raise self._wrong(f"{section}.{key} is not supported; it may have {', '.join(known)}")
                if not isinstance(text, str) or not text:
                    raise self._wrong(f"{section}.{key} must be a text")
        if "basic_auth" in value and "authorization" in value:
            raise self._wrong("basic_auth and authorization exclude each other")
        return value

    @property
    def authorization(self) -> str:
        """The value of the `Authorization` header; empty if the settings have none."""
        if basic := self._value.get("basic_auth"):
            user, password = self._text(basic, "username"), self._text(basic, "password")
            if ":" in user:
                raise self._wrong("basic_auth.username must not have a colon")
            return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"
        if given := self._value.get("authorization"):
            kind, secret = given.get("type", "Bearer"), self._text(given, "credentials")
            if not kind.isascii() or not kind.isalnum() or kind.lower() == "basic":
                raise self._wrong("authorization.type must be a word such as Bearer; a password is for basic_auth")
            return f"{kind} {secret}"
        return ""

    def _text(self, section: Mapping[str, str], key: str) -> str:
        """Return a text that is in the settings, or in a file that they name."""
        if key in section and f"{key}_file" in section:
            raise self._wrong(f"{key} and {key}_file exclude each other")
        found = section.get(key, "")
        if name := self.path(section.get(f"{key}_file")):
            try:
                with Path(name).open("rb") as file:
                    found = file.read(MOST_SECRET).decode("ascii").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise Unusable((Problem(name, 0, getattr(error, "strerror", "") or "not text"),)) from error
        if not found or not found.isascii() or not found.isprintable():
            raise self._wrong(f"{key} must be one line of printable ASCII")
        return found

    def path(self, name: str | None) -> str | None:
        """Return the path of a file that the settings name."""
        return str(Path(self._file).parent / name) if name else None

    def tls(self) -> dict[str, str | None]:
        """Return the client's settings for TLS."""
        given = self._value.get("tls_config", {})
        if ("cert_file" in given) != ("key_file" in given):
            raise self._wrong("tls_config needs both cert_file and key_file")
        names = {"ssl_ca_cert": "ca_file", "cert_file": "cert_file", "key_file": "key_file"}
        found = {name: self.path(given.get(key)) for name, key in names.items()}
        for name in filter(None, found.values()):
            try:
                Path(name).open("rb").close()
            except OSError as error:
                raise Unusable((Problem(name, 0, error.strerror or str(error)),)) from error
        return {**found, "tls_server_name": given.get("server_name")}


def connect(url: str, file: str | None = None) -> client.Api:
    """Make a client of a server with the settings in a file. Sends nothing. Raises Unusable and Unreachable.

    Requests to this machine never go through a proxy.
    """
    settings = Settings(file)
    authorization, tls = settings.authorization, settings.tls()
    here = _is_loopback(url)
    if authorization and not url.startswith("https://") and not here:
        raise Unusable((Problem(url, 0, "a password or a token is sent only by https, or to this machine"),))
    return client.of_server(url.rstrip("/"), authorization, tls, direct=here)


def fault(url: str) -> str:
    """Return the reason why a text is no URL of a server; empty if it is one."""
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return "it is no URL"
    if parts.scheme not in ("http", "https") or not named or not url.isascii() or not url.isprintable() or " " in url:
        return "it is no URL that begins with http:// or https://"
    if "@" in parts.netloc:
        return "a password in it would be visible to others; --prometheus-config FILE has it"
    return "it must end before ? and #" if "?" in url or "#" in url else ""


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def ask(api: client.Api, query: str, at: int | None, most: int) -> tuple[int, bytes]:
    """Ask for the values of a query at a time, in seconds from 1970 in UTC; None is the server's current time.

    Returns the HTTP status, and at most `most` bytes of the answer. A redirect is not followed. Raises Unreachable.
    """
    return _asked(api, "query", {"query": query, **({} if at is None else {"time": at})}, most)


def ask_each(api: client.Api, query: str, times: range, most: int) -> tuple[int, bytes]:
    """Ask for the values of a query at each of these times, as `ask` does for one. There is at least one."""
    given = {"query": query, "start": times[0], "end": times[-1], "step": times.step}
    return _asked(api, "query_range", given, most)


def _asked(api: client.Api, name: str, given: dict[str, Any], most: int) -> tuple[int, bytes]:
    return client.beginning(api, f"/api/v1/{name}", given, most, silence=SILENCE, longest=LONGEST)
