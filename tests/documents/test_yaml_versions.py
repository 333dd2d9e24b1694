"""YAML that go-yaml v3 reads otherwise than v2."""

import pytest

from webhook.documents.yaml_versions import unlike

BASES = "a: &a {x: 1}\nb: &b {<<: *a, y: 1}\nc: &c {z: 1}\n"


@pytest.mark.parametrize("word", ["y", "N", "yes", "No", "on", "OFF", "!!bool on", "!!bool 'on'", "2001-01-01", "-0o7"])
def test_scalars_that_differ(word: str) -> None:
    for text in (f"k: {word}", f"- [{word}]", f"{word}: k", f"a: 1\n---\nb: {word}"):
        assert unlike(text, scalars=True)
        assert not unlike(text, scalars=False)


@pytest.mark.parametrize("word", ["true", "FALSE", "'on'", '"off"', "offline", "", "~", "1", "0x1", "2001-01", "&a b"])
def test_scalars_that_are_the_same(word: str) -> None:
    assert not unlike(f"k: {word}", scalars=True)


@pytest.mark.parametrize(
    ("entry", "differs"),
    [
        ("{x: 2, <<: *a}", True),
        ("{x: 2, <<: *b}", True),
        ("{x: 2, <<: [*c, *a]}", True),
        ("{<<: [*a, *b]}", True),
        ("{<<: *a, <<: *c}", True),
        ('{x: 2, !!merge "\\x3c<": *a}', True),
        ("[{k: [{x: 2, <<: *a}]}]", True),
        ("{<<: *a, x: 2}", False),
        ("{z: 2, <<: *b}", False),
        ("{<<: [*b, *c], x: 2}", False),
        ("{x: 2, '<<': 3}", False),
        ("*b", False),
    ],
)
def test_merge_keys_after_keys_that_they_have(entry: str, differs: bool) -> None:
    assert unlike(f"{BASES}d: {entry}\n", scalars=False) is differs


@pytest.mark.parametrize("text", ["a: &a {<<: *a}", "<<: [", "%TAG !a! b\n" * 101 + "--- {<<: {}}", "[" * 5000 + "<<"])
def test_text_that_cannot_be_read_differs(text: str) -> None:
    assert unlike(text, scalars=False) is ("*a" not in text)


@pytest.mark.parametrize(("length", "differs"), [(200, False), (2000, True)])
def test_a_long_chain_of_merge_keys_is_not_followed_to_its_end(length: int, differs: bool) -> None:
    """Each map has the keys of all maps before it, so reading them all takes the square of the length."""
    chain = (f"b{each}: &b{each} {{<<: *b{each - 1}, k{each}: 1}}\n" for each in range(1, length))
    assert unlike(f"b0: &b0 {{x: 1}}\n{''.join(chain)}", scalars=False) is differs
