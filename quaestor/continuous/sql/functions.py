"""Functions of a continuous query: deterministic ones that DuckDB and Spark both have. Others are refused.

A function outside the list may read a file, the network, the clock or the settings of an engine. A list of `range` fills
the memory. The `reflect` of Spark calls any method of the JVM.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from sqlglot import exp

from quaestor.continuous.sql.refusals import refusal

PAGE: Final = "docs/continuous/sql.md#functions"
_STRUCTURE: Final = (
    exp.And, exp.Or, exp.Exists, exp.Case, exp.If, exp.Coalesce, exp.Nullif, exp.Cast, exp.TryCast, exp.Greatest, exp.Least,
    exp.Struct, exp.Array,
)  # fmt: skip
_TEXTS: Final = (
    exp.Ascii, exp.Concat, exp.ConcatWs, exp.Contains, exp.EndsWith, exp.Left, exp.Length, exp.Levenshtein, exp.Lower, exp.MD5,
    exp.Pad, exp.RegexpExtract, exp.RegexpLike, exp.Repeat, exp.Replace, exp.Reverse, exp.Right, exp.SplitPart, exp.StartsWith,
    exp.StrPosition, exp.Substring, exp.Translate, exp.Trim, exp.Upper, exp.JSONExtractScalar,
)  # fmt: skip
_NUMBERS: Final = (
    exp.Abs, exp.Acos, exp.Asin, exp.Atan, exp.Atan2, exp.Cbrt, exp.Ceil, exp.Cos, exp.Degrees, exp.Exp, exp.Floor,
    exp.Ln, exp.Log, exp.Pi, exp.Pow, exp.Radians, exp.Round, exp.Sign, exp.Sin, exp.Sqrt, exp.Tan,
)  # fmt: skip
_TIMES: Final = (
    exp.CurrentDate, exp.CurrentTimestamp, exp.CurrentTimestampLTZ, exp.Localtimestamp, exp.CurrentDatetime, exp.UtcTimestamp,
    exp.UtcDate, exp.Systimestamp, exp.CurrentTime, exp.Localtime, exp.UtcTime, exp.Date, exp.DateDiff, exp.DateFromParts,
    exp.DateTrunc, exp.Day, exp.DayOfMonth, exp.DayOfYear, exp.Extract, exp.Hour, exp.LastDay, exp.Minute, exp.Month,
    exp.Quarter, exp.Second, exp.TimestampFromParts, exp.TimestampTrunc, exp.ToDays, exp.WeekOfYear, exp.Year,
)  # fmt: skip
ACCEPTED: Final = (*_STRUCTURE, *_TEXTS, *_NUMBERS, *_TIMES)
"""Functions with a node of their own. Rules about current time refuse the time of day with a better reason."""
_REFUSED_LATER: Final = (exp.AggFunc, exp.Columns)
"""Functions that other rules accept or refuse with a better reason."""
INTERVALS: Final = frozenset(
    {"to_weeks", "to_hours", "to_minutes", "to_seconds", "to_milliseconds", "to_microseconds", "to_months", "to_years"}
)
_FIELDS: Final = frozenset({"YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DOY", "HOUR", "MINUTE"})
"""Fields of EXTRACT. Other fields have another value, or none, in Spark."""
_LONGEST: Final = 10_000
"""Length that `repeat`, `lpad` and `rpad` may name."""


def refuse_other_functions(tree: exp.Expr, spellings_of_now: frozenset[str]) -> None:
    """Raise QueryRefusedError for a function outside the list.

    spellings_of_now: names of functions that give current time, in small letters.
    """
    refuse_functions_outside(tree, INTERVALS | spellings_of_now, ACCEPTED, of="continuous queries", page=PAGE)
    for node in tree.find_all(exp.Func):
        if isinstance(node, exp.Log) and node.expression is None:
            raise refusal(node, "log() has another base on each engine", "write ln, log2 or log10")
        if isinstance(node, exp.Extract) and node.name.upper() not in _FIELDS:
            fields = ", ".join(sorted(_FIELDS))
            raise refusal(node, f"EXTRACT of {node.name.upper()} differs between the engines", f"use one of {fields}")


def refuse_functions_outside(
    tree: exp.Expr, names: Collection[str], nodes: tuple[type[exp.Expr], ...], *, of: str, page: str
) -> None:
    """Raise QueryRefusedError for a function that is not accepted, and for a text of unbounded length.

    names: accepted functions without a node of their own, in small letters.
    nodes: accepted functions with a node of their own, besides aggregates.
    of: the statements that accept them.
    page: of the documentation.
    """
    for node in tree.find_all(exp.Func):
        is_named = isinstance(node, exp.Anonymous)
        name = (node.name if is_named else node.sql_name()).lower()
        if not (name in names if is_named else isinstance(node, (*nodes, *_REFUSED_LATER))):
            raise refusal(node, f"{name}() is no function of {of}", f"use a function of {page}")
        if isinstance(node, exp.Repeat | exp.Pad):
            length = node.args["times" if isinstance(node, exp.Repeat) else "expression"]
            if not isinstance(length, exp.Literal) or length.is_string or float(length.name) > _LONGEST:
                raise refusal(node, f"the length in {name}() may be any number", f"write a number up to {_LONGEST}")
