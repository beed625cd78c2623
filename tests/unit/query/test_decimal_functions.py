"""Functions of decimals: 34 digits, also near zeros and poles, and the behaviour at the end of the range."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from bson import Decimal128

from quaestor.errors import UncertainMatchError
from quaestor.query.expressions import compile_expression

LARGEST = "9.999999999999999999999999999999999E+6144"


def value(name: str, *operands: str) -> Any:
    return compile_expression({name: [Decimal128(operand) for operand in operands]})({})


@pytest.mark.parametrize(
    ("name", "operand", "expected"),
    [
        ("$sin", "3.141592653589793238462643383279503", "-1.158028306006248941790250554076922E-34"),
        ("$cos", "1.570796326794896619231321691639751", "4.420985846996875529104874722961539E-34"),
        ("$tan", "1E+60", "-1.490335926161356194687476517197331"),
        ("$acos", "0.9999999999999999999999999999999999", "1.414213562373095048801688724209698E-17"),
        ("$acosh", "1.000000000000000000000000000000001", "4.472135954999579392818347337462552E-17"),
        ("$atanh", "0.9999999999999999999999999999999999", "39.49052017117874928301447079036328"),
        ("$atanh", "-1", "-Infinity"),
        ("$sinh", "20000", "Infinity"),
        ("$sinh", "-1E+6144", "-Infinity"),
        ("$cosh", "-20000", "Infinity"),
        ("$tanh", "-1E+6144", "-1"),
        ("$sin", "-0E+3", "-0E+3"),
        ("$atan", "-0", "-0"),
        ("$degreesToRadians", "1", "0.01745329251994329576923690768488613"),
        ("$radiansToDegrees", "1", "57.29577951308232087679815481410517"),
    ],
)
def test_functions_are_exact_to_the_last_digit(name: str, operand: str, expected: str) -> None:
    """As the real mongod says, but where its own last digit is not right."""
    assert str(value(name, operand)) == expected


def test_threads_do_not_disturb_each_other() -> None:
    """The library keeps constants as precisely as anybody has needed them."""
    arguments = [f"{digit}E+{exponent}" for exponent in range(0, 600, 7) for digit in range(1, 10)]
    alone = [str(value("$sin", argument)) for argument in arguments]
    with ThreadPoolExecutor(8) as threads:
        for answers in [threads.map(lambda argument: str(value("$sin", argument)), arguments) for _ in range(8)]:
            assert list(answers) == alone


@pytest.mark.parametrize(
    ("base", "exponent"),
    [(LARGEST, "1"), (f"-{LARGEST}", "1"), ("-10", "6145"), ("3.162277660168379331998893544432719E+3072", "2")],
)
def test_a_power_beside_the_largest_decimal_is_not_for_us_to_say(base: str, exponent: str) -> None:
    """mongod's library calls the first Infinity, though it is not."""
    with pytest.raises(UncertainMatchError, match="largest"):
        value("$pow", base, exponent)


@pytest.mark.parametrize(("base", "exponent"), [("10", "0"), ("1E+1", "-0"), ("10.00", "0E-6176")])
def test_ten_to_the_power_of_zero_is_not_for_us_to_say(base: str, exponent: str) -> None:
    """mongod's library calls it 0."""
    with pytest.raises(UncertainMatchError, match="10 to the power of 0"):
        value("$pow", base, exponent)


@pytest.mark.parametrize(
    ("base", "exponent", "expected"),
    [
        (LARGEST, "0.5", "3.162277660168379331998893544432718E+3072"),
        (LARGEST, "2", "Infinity"),
        ("-1E+3000", "3", "Infinity"),
        ("-Infinity", "1", "-Infinity"),
        ("1E+6144", "1", "1.000000000000000000000000000000000E+6144"),
        ("10", "6146", "Infinity"),
    ],
)
def test_powers_farther_away_are_as_in_mongod(base: str, exponent: str, expected: str) -> None:
    assert str(value("$pow", base, exponent)) == expected
