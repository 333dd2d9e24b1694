"""Quantities amount to what the API server says they do (apimachinery pkg/api/resource/quantity.go)."""

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.api.quantity import parse

WHOLE = [
    (0, 0),
    (1, 1),
    (-1, -1),
    (1.0, 1),
    (1e3, 1000),
    (1e18, 10**18),
    ("0", 0),
    ("-0", 0),
    ("1", 1),
    ("01", 1),
    ("+1", 1),
    ("-1", -1),
    ("1.", 1),
    ("1.0", 1),
    ("1000m", 1),
    ("1000000u", 1),
    ("1000000000n", 1),
    ("1e0", 1),
    ("1e3", 1000),
    ("1e+3", 1000),
    ("1E3", 1000),
    ("2000e-3", 2),
    ("1k", 1000),
    ("1M", 10**6),
    ("1G", 10**9),
    ("1T", 10**12),
    ("1P", 10**15),
    ("1E", 10**18),
    ("1Ki", 1024),
    ("1Mi", 1024**2),
    ("1Gi", 1024**3),
    ("1Ti", 1024**4),
    ("1Pi", 1024**5),
    ("1Ei", 1024**6),
    (".5k", 500),
    ("0.5Ki", 512),
    ("15360Mi", 15360 * 1024**2),
    ("9223372036854775807", 2**63 - 1),
    # The API server counts no further (its inf.Dec values are capped).
    ("9223372036854775808", 2**63 - 1),
    ("9" * 40, 2**63 - 1),
    ("0" * 100 + "1", 1),
    ("1." + "0" * 100, 1),
    ("1e" + "0" * 100 + "3", 1000),
    ("1e999", 2**63 - 1),
    ("8Ei", 2**63 - 1),
    (1e22, 2**63 - 1),
    ("-1e999", 1 - 2**63),
]

BROKEN = [
    (".5", Fraction(1, 2)),
    ("-.5", Fraction(-1, 2)),
    (0.5, Fraction(1, 2)),
    (1e-7, Fraction(1, 10**7)),
    ("1m", Fraction(1, 1000)),
    ("1n", Fraction(1, 10**9)),
    ("5e-1", Fraction(1, 2)),
    ("1500m", Fraction(3, 2)),
    # Rounded up to what the API server can hold.
    ("0.0000000001", Fraction(1, 10**9)),
    ("-1e-30", Fraction(-1, 10**9)),
    ("1.0000000001n", Fraction(2, 10**9)),
]

REFUSED: list[object] = [
    "",
    " ",
    "+",
    "-",
    ".",
    "m",
    "Ki",
    "e3",
    "abc",
    "1 ",
    " 1",
    "1\n",
    "1 Ki",
    "+-1",
    "--1",
    "1,5",
    "1_000",
    "1.2.3",
    "0x10",
    "0b1",
    "1e",
    "1e1.5",
    "1e3k",
    "1kk",
    "1K",
    "1ki",
    "1KI",
    "1mi",
    "1i",
    "½",
    "١",
    "１",
    "1\u200b",
    "inf",
    "nan",
    "Infinity",
    float("inf"),
    float("-inf"),
    float("nan"),
    True,
    False,
    None,
    [],
    ["1"],
    {},
    b"1",
]

ENORMOUS = [
    "1e1000",
    "1e-1000",
    "1e999999999999",
    "9" * 1000,
    "0." + "0" * 1000 + "1",
    "9" * 1_000_000,
    "1e" + "9" * 1_000_000,
    "0" * 1_000_000 + "x",
    "1." + "0" * 1_000_000 + "x",
]


@pytest.mark.parametrize(("value", "amount"), WHOLE, ids=repr)
def test_a_whole_quantity_is_an_int(value: object, amount: int) -> None:
    assert parse(value) == amount
    assert type(parse(value)) is int


@pytest.mark.parametrize(("value", "amount"), BROKEN, ids=repr)
def test_a_quantity_below_one_is_an_exact_fraction(value: object, amount: Fraction) -> None:
    assert parse(value) == amount
    assert type(parse(value)) is Fraction


@pytest.mark.parametrize("value", REFUSED, ids=repr)
def test_a_quantity_that_the_api_server_refuses_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        parse(value)


@pytest.mark.parametrize("value", ENORMOUS, ids=lambda value: f"{len(value)} characters")
def test_a_number_of_enormous_length_is_refused_rather_than_computed(value: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        parse(value)


@given(st.integers(min_value=1 - 2**63, max_value=2**63 - 1))
def test_an_integer_is_read_alike_as_a_number_and_as_text(number: int) -> None:
    assert parse(number) == number
    assert parse(str(number)) == number
    assert type(parse(str(number))) is int


@given(st.integers(min_value=-(10**15), max_value=10**15), st.sampled_from(["m", "u", "n"]))
def test_a_quantity_is_an_int_exactly_when_it_is_whole(number: int, suffix: str) -> None:
    divisor = {"m": 10**3, "u": 10**6, "n": 10**9}[suffix]
    amount = parse(f"{number}{suffix}")
    assert amount == Fraction(number, divisor)
    assert isinstance(amount, int) == (number % divisor == 0)


@given(st.floats(min_value=-1e18, max_value=1e18))
def test_a_quantity_is_read_alike_as_a_json_number_and_as_text(number: float) -> None:
    nanos = Fraction(repr(abs(number))) * 10**9
    assert abs(parse(number)) == Fraction(ceil(nanos), 10**9) == abs(parse(repr(number)))
    assert (parse(number) < 0) == (number < 0)


@given(st.one_of(st.text(max_size=20), st.text("0123456789.+-eEkKmMiI", max_size=12)))
def test_any_text_is_an_amount_or_a_value_error(text: str) -> None:
    try:
        amount = parse(text)
    except ValueError:
        return
    assert isinstance(amount, (int, Fraction))
    assert text.isascii()
    assert any(character.isdigit() for character in text)
