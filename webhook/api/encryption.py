"""Recognizes objects with values that SOPS has encrypted. Such values cannot be judged without the key.

Source: github.com/getsops/sops cmd/sops/formats and aes/cipher.go, for the key `sops` and the form of a value.
"""

from typing import Any

from webhook.model import Object


def is_encrypted(value: Object) -> bool:
    """Whether an object has the metadata of SOPS, and a value that is encrypted."""
    return isinstance(value.get("sops"), dict) and holds({key: each for key, each in value.items() if key != "sops"})


def holds(value: Any) -> bool:
    """Whether a key or text in a value is encrypted."""
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, str) and each.startswith("ENC["):
            return True
        if isinstance(each, dict):
            left += each
            left += each.values()
        elif isinstance(each, list):
            left += each
    return False
