"""Decodes the key `devices` of an entry in a sharing configuration: `all`, a count, or a list of indices and UUIDs."""

import re
from typing import Any

from webhook.deviceplugin.decoders import Decoded, Decoding, Fault, integer, must
from webhook.model import Path


def device_list(value: Any, path: Path) -> Decoding:
    """Decode `all`, a count, or a list of indices and UUIDs.

    A null item is read as an empty string, not as 0 (replicas.go).
    """
    if isinstance(value, list):
        for index, device in enumerate(value):
            if not _is_device(device):
                yield Fault((*path, index), must((*path, index), device, "a GPU's index or UUID"))
        return Decoded(value, path)
    count = integer(value)
    if value == "all" or (count is not None and count > 0):
        return Decoded(value, path)
    yield Fault(path, must(path, value, "all, a count above 0, or a list of indices and UUIDs"))
    return None


_UINT = re.compile(r"[0-9]+", re.ASCII)


def _is_uint(value: str) -> bool:
    digits = value.lstrip("0")
    return bool(_UINT.fullmatch(value)) and len(digits) <= 20 and int(digits or "0") < 2**64


def _is_device(value: Any) -> bool:
    if value is None:
        return True
    if isinstance(value, str):
        first, colon, second = value.partition(":")
        if _is_uint(first) and (not colon or _is_uint(second)):
            return True
        return _is_gpu(value) or _is_mig(value)
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**64


def _is_gpu(value: str) -> bool:
    return value.startswith("GPU-") and _is_uuid(value[4:])


def _is_mig(value: str) -> bool:
    if not value.startswith("MIG-"):
        return False
    gpu, *instances = value[4:].split("/", 2)
    return _is_uuid(value[4:]) or (_is_gpu(gpu) and len(instances) == 2 and all(map(_is_uint, instances)))


_DASHED = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
_PLAIN = re.compile(r"[0-9a-f]{32}", re.ASCII | re.IGNORECASE)


def _is_uuid(value: str) -> bool:
    """Whether github.com/google/uuid parses the value. It accepts any two characters in place of braces."""
    raw = value.encode()
    match len(raw):
        case 36:
            dashed = raw
        case 38:
            dashed = raw[1:-1]
        case 45 if raw[:9].lower() == b"urn:uuid:":
            dashed = raw[9:]
        case 32:
            return bool(_PLAIN.fullmatch(value))
        case _:
            return False
    return bool(_DASHED.fullmatch(dashed.decode("latin-1")))
