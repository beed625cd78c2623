"""Random BSON values and documents, with the edges of every type much more often than chance would have them."""

from __future__ import annotations

import datetime
from random import Random
from typing import Any

from bson import Binary, Code, DatetimeMS, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp

NUMBERS: tuple[Any, ...] = (
    0, 1, -1, 2, 3, 5, 7, 10, -3, 100, 255, 1000, 2147483647, -2147483648, 2147483646,
    Int64(0), Int64(1), Int64(-1), Int64(2), Int64(7), Int64(2147483648), Int64(-2147483649), Int64(2**53 + 1),
    Int64(2**62), Int64(2**63 - 1), Int64(-(2**63)), Int64(1577836800000),
    0.0, -0.0, 0.5, 1.0, -1.5, 2.0, 2.5, 3.5, 0.1, 0.2, 0.3, 1 / 3, 3.0, 1e10, 1e15, 1e20, -1e20, 1e300, 1e-7, 5e-324,
    9007199254740993.0, 2147483648.0, 9223372036854775807.0, 1234.5678, float("nan"), float("inf"), float("-inf"),
    Decimal128("0"), Decimal128("1"), Decimal128("-1"), Decimal128("2"), Decimal128("0.1"), Decimal128("1.50"),
    Decimal128("-2.5"), Decimal128("3.5"), Decimal128("1E+10"), Decimal128("1E-20"), Decimal128("-0"),
    Decimal128("123456789012345678901234567890.1234"), Decimal128("9.999999999999999999999999999999999E+6144"),
    Decimal128("NaN"), Decimal128("Infinity"), Decimal128("-Infinity"), Decimal128("9223372036854775808"),
)  # fmt: skip

STRINGS: tuple[str, ...] = (
    "", "a", "b", "ab", "abc", "hello world", "Hello", "HELLO", "héllo", "É", "ß", "日本語", "😀a", " trim me \t", "a,b,,c",
    "aaa", "5", "-7", "12.5", "1e3", "true", "2020-01-02", "2020-02-30", "2020-01-02T03:04:05.678Z", "2020-07-04 12:00:00",
    "2021-03-04T05:06:07+05:30", "5f0000000000000000000001", "NaN", "Infinity", "0x1F", "foo.bar", "$a", "a\nb", "x" * 20,
)  # fmt: skip

_MOMENTS = (
    "1970-01-01", "1969-12-31T23:59:59.999", "2000-02-29T12:00", "2020-01-01", "2020-01-31T23:59:59.999", "2020-03-08T07:30",
    "2020-03-08T06:59:59", "2020-11-01T05:30", "2020-11-01T06:30", "2020-12-31T23:59:59", "2021-01-03T10:11:12.131",
    "2016-01-01T01:01:01", "1900-03-01", "1850-06-15T12:34:56", "2024-02-29", "2050-07-01", "0001-01-01",
    "9999-12-31T23:59:59.999", "2019-12-30", "2018-07-07T07:07:07.007",
)  # fmt: skip
DATES: tuple[Any, ...] = (
    *(datetime.datetime.fromisoformat(text) for text in _MOMENTS),
    DatetimeMS(2**55),
    DatetimeMS(-(2**55)),
    DatetimeMS(253402300800000),
)

ZONES: tuple[str, ...] = (
    "UTC", "America/New_York", "Europe/London", "Asia/Kolkata", "Australia/Lord_Howe", "+05:30", "-0330", "+14", "GMT",
    "Pacific/Apia", "America/Sao_Paulo",
)  # fmt: skip

PATTERNS: tuple[str, ...] = (
    "a", "l+", "(h)(x)?", "^a", "c$", "[a-c]", "b|c", "", ".", "(a)|(b)", "\\d+", "\\s", "é", "(?<=a)b", "o(?= w)", "a*", "(",
    "[", "*", "L", "\\w+", "(.)\\1", "^", "x{2,3}?",
)  # fmt: skip

OTHERS: tuple[Any, ...] = (
    True, False, None, ObjectId("5f0000000000000000000001"), ObjectId("000000000000000000000000"), Timestamp(1577836800, 1),
    Timestamp(0, 0), Regex("a"), Regex("b", "i"), Binary(b"ab"), b"", Binary(b"x", 5), MinKey(), MaxKey(), Code("x"),
)  # fmt: skip


def number(random: Random) -> Any:
    kind = random.randrange(8)
    if kind < 5:
        return random.choice(NUMBERS)
    if kind == 5:
        return random.randint(-50, 50)
    if kind == 6:
        return round(random.uniform(-1000, 1000), random.randrange(6))
    return Decimal128(f"{random.randint(-(10**6), 10**6)}E{random.randint(-8, 4)}")


def date(random: Random) -> Any:
    if random.random() < 0.7:
        return random.choice(DATES)
    return datetime.datetime(1970, 1, 1) + datetime.timedelta(milliseconds=random.randint(-(10**12), 3 * 10**12))


def string(random: Random) -> str:
    if random.random() < 0.85:
        return random.choice(STRINGS)
    return "".join(random.choice("abcABC ,.é😀") for _ in range(random.randrange(6)))


def array(random: Random, depth: int = 1) -> list[Any]:
    size = random.randrange(5)
    kind = random.randrange(5)
    if kind == 0:
        return [number(random) for _ in range(size)]
    if kind == 1:
        return [string(random) for _ in range(size)]
    if kind == 2:
        return [random.choice((0, 1, 2, 1.0, Int64(2), 3)) for _ in range(size)]
    if kind == 3 and depth:
        return [
            {name: value(random, depth - 1) for name in random.sample(("a", "b", "k", "v"), 2)} for _ in range(size)
        ]
    return [value(random, depth - 1) for _ in range(size)]


def document(random: Random, depth: int = 1) -> dict[str, Any]:
    names = random.sample(("a", "b", "c", "k", "v"), random.randrange(4))
    return {name: value(random, depth - 1) for name in names}


def value(random: Random, depth: int = 1) -> Any:
    kind = random.randrange(10)
    if kind < 3:
        return number(random)
    if kind < 5:
        return string(random)
    if kind == 5:
        return date(random)
    if kind == 6 and depth > 0:
        return array(random, depth - 1)
    if kind == 7 and depth > 0:
        return document(random, depth - 1)
    return random.choice(OTHERS)


def root(random: Random) -> dict[str, Any]:
    """A document whose field names tell what they mostly hold; now and then one is missing, null or something else."""
    fields: dict[str, Any] = {
        "n": number(random),
        "m": number(random),
        "s": string(random),
        "t": string(random),
        "d": date(random),
        "e": date(random),
        "l": array(random, 2),
        "p": array(random, 2),
        "o": document(random, 2),
        "x": value(random, 2),
        "z": None,
        "f": random.random() < 0.5,
    }
    for name in list(fields):
        chance = random.random()
        if chance < 0.06:
            del fields[name]
        elif chance < 0.12:
            fields[name] = value(random)
    return fields
