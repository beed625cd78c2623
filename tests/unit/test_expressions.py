"""Expressions beyond the oracle: the interface, the reasons, the boundaries of the operators that this engine knows."""

from __future__ import annotations

import datetime
import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal, localcontext
from typing import Any

import pytest
from bson import DatetimeMS, DBRef, Decimal128, Int64, Regex

from quaestor.errors import MalformedQueryError, UncertainMatchError, UnsupportedQueryError
from quaestor.query.bson_order import order_key
from quaestor.query.expressions import MISSING, ExpressionError, compile_expression, field_paths, truthy

NOON = datetime.datetime(2020, 7, 4, 12)


def evaluate(expression: Any, document: dict[str, Any] | None = None) -> Any:
    return compile_expression(expression)(document or {})


class TestVariables:
    def test_root_and_current_are_the_document(self) -> None:
        assert evaluate(["$$ROOT.a", "$$CURRENT.a", "$a"], {"a": 1}) == [1, 1, 1]

    def test_variables_of_the_surroundings_are_given_by_name(self) -> None:
        compiled = compile_expression({"$add": ["$a", "$$b", "$$c.d"]}, variables=("b", "c"))
        assert compiled({"a": 1}, {"b": 2, "c": {"d": 3}}) == 6

    def test_a_variable_that_is_not_given_is_missing(self) -> None:
        compiled = compile_expression("$$b", variables=("b",))
        assert compiled({}) is MISSING
        assert compiled({}, {}) is MISSING

    def test_a_variable_that_nobody_defines_is_malformed(self) -> None:
        with pytest.raises(MalformedQueryError, match="undefined variable: b"):
            compile_expression("$$b")

    def test_an_inner_variable_hides_the_outer_one_and_only_inside(self) -> None:
        expression = {
            "$let": {
                "vars": {"x": 1},
                "in": ["$$x", {"$let": {"vars": {"x": {"$add": ["$$x", 1]}}, "in": "$$x"}}, "$$x"],
            }
        }
        assert evaluate(expression) == [1, 2, 1]

    def test_current_can_be_rebound_and_paths_follow_it(self) -> None:
        assert evaluate({"$let": {"vars": {"CURRENT": "$o"}, "in": "$a"}}, {"a": 1, "o": {"a": 2}}) == 2

    def test_threads_do_not_see_each_others_variables(self) -> None:
        """One compiled expression serves the ingest thread and the request threads at once."""
        compiled = compile_expression({"$sum": {"$map": {"input": "$l", "in": {"$multiply": ["$$this", "$n"]}}}})
        with ThreadPoolExecutor(8) as pool:
            sums = list(pool.map(lambda n: compiled({"l": list(range(200)), "n": n}), range(200)))
        assert sums == [19_900 * n for n in range(200)]


class TestFieldPaths:
    @pytest.mark.parametrize(
        ("expression", "paths"),
        [
            (1, set()),
            ({"$literal": "$a"}, set()),
            ("$a.b", {"a.b"}),
            ({"$add": ["$a", "$$ROOT.b", "$$CURRENT.c.d"]}, {"a", "b", "c.d"}),
            ({"$add": ["$a", "$a.b", "$a.c.d", "$ab"]}, {"a", "ab"}),
            ({"$map": {"input": "$l", "in": {"$add": ["$$this.p", "$q"]}}}, {"l", "q"}),
            ({"$let": {"vars": {"x": "$o"}, "in": "$$x.y.z"}}, {"o"}),
            ({"$let": {"vars": {"CURRENT": "$o"}, "in": "$y"}}, {"o"}),
            ({"$cond": [True, "$a", "$b"]}, {"a", "b"}),
            ("$$ROOT", {""}),
            ({"$mergeObjects": ["$$CURRENT", "$a"]}, {""}),
            ({"$getField": "a"}, {""}),
        ],
    )
    def test_fields_that_an_expression_reads(self, expression: Any, paths: set[str]) -> None:
        assert field_paths(expression) == paths

    def test_variables_of_the_surroundings_are_not_the_document(self) -> None:
        assert field_paths({"$eq": ["$$id", "$a"]}, variables=("id",)) == {"a"}


class TestRefusals:
    @pytest.mark.parametrize(
        ("expression", "reason"),
        [
            ({"$rand": {}}, "every evaluation"),
            ("$$NOW", "without any write"),
            ({"$gt": ["$expires", "$$NOW"]}, "without any write"),
            ("$$CLUSTER_TIME", "without any write"),
            ({"$function": {"body": "function() {}", "args": [], "lang": "js"}}, "arbitrary code"),
            ({"$accumulator": {}}, "arbitrary code"),
            ({"$where": "1"}, "arbitrary code"),
            ({"$meta": "textScore"}, "query plan"),
            ({"$bitAnd": ["$a", 1]}, "newer"),
        ],
    )
    def test_expressions_that_depend_on_more_than_the_document_say_why(self, expression: Any, reason: str) -> None:
        with pytest.raises(UnsupportedQueryError, match=reason):
            compile_expression(expression)

    @pytest.mark.parametrize(
        ("expression", "reason"),
        [
            ({"$nope": 1}, r"Unrecognized expression '\$nope'"),
            ({"$abs": [1, 2]}, "takes exactly 1 arguments. 2 were passed in"),
            ({"$slice": ["$a"]}, "at least 2 arguments, and at most 3, but 1"),
            ({"$add": 1, "$subtract": 2}, "exactly one field"),
            ({"a": 1, "$add": 2}, "may not start with"),
            ({"a.b": 1}, "may not contain '.'"),
            ("$", "by itself"),
            ("$a.", "must not end with"),
            ("$a..b", "empty strings"),
            ({"$let": {"vars": {"A": 1}, "in": 1}}, "invalid character"),
            ({"$cond": {"if": 1, "then": 2}}, "Missing 'else'"),
            ({"$switch": {"branches": []}}, "at least one branch"),
            ({"$dateFromParts": {"year": 2020, "isoWeek": 1}}, "mixing"),
            (object(), "cannot be sent"),
        ],
    )
    def test_expressions_that_mongod_refuses_are_malformed_with_its_reason(self, expression: Any, reason: str) -> None:
        with pytest.raises(MalformedQueryError, match=reason):
            compile_expression(expression)

    def test_a_constant_that_fails_is_refused_beforehand(self) -> None:
        """mongod folds constants: the query fails though no document ever gets to that branch."""
        with pytest.raises(MalformedQueryError, match=r"\$divide by zero"):
            compile_expression({"$cond": ["$a", 1, {"$divide": [1, 0]}]})

    def test_parts_that_the_optimiser_drops_do_not_fail(self) -> None:
        branches = [{"case": True, "then": 1}, {"case": "$a", "then": {"$divide": [1, 0]}}]
        assert evaluate({"$switch": {"branches": branches}}) == 1

    def test_nesting_beyond_the_stack_is_refused(self) -> None:
        expression: Any = "$a"
        for _ in range(500):
            expression = {"$not": expression}
        with pytest.raises((UnsupportedQueryError, MalformedQueryError)):
            compile_expression(expression)

    def test_a_failure_on_one_document_is_an_expression_error(self) -> None:
        compiled = compile_expression({"$divide": [1, "$a"]})
        assert compiled({"a": 2}) == 0.5
        with pytest.raises(ExpressionError, match="by zero"):
            compiled({"a": 0})

    @pytest.mark.parametrize("text", ["January 2, 2020", "@1577934245", "12/31/2020 5pm", "2020-01-02T03:04:05 EST"])
    def test_a_date_text_that_is_not_iso_is_unknown_rather_than_wrong(self, text: str) -> None:
        with pytest.raises(UnsupportedQueryError, match="ISO 8601"):
            evaluate({"$toDate": "$s"}, {"s": text})

    def test_a_pattern_that_takes_too_long_is_uncertain(self) -> None:
        compiled = compile_expression({"$regexFind": {"input": "$s", "regex": "(?=(a+)+$)b|(a|aa)+$"}})
        with pytest.raises(UncertainMatchError):
            compiled({"s": "a" * 3000 + "!"})


class TestValues:
    """Documents and expressions hold every value that pymongo encodes, however it was made."""

    def test_python_integers_have_the_type_their_size_asks_for(self) -> None:
        assert evaluate([{"$type": 2**31 - 1}, {"$type": 2**31}, {"$type": Int64(1)}]) == ["int", "long", "long"]
        assert evaluate({"$type": "$a"}, {"a": 2**31}) == "long"

    def test_aware_datetimes_are_their_moment(self) -> None:
        berlin = datetime.timezone(datetime.timedelta(hours=2))
        aware = NOON.replace(hour=14, tzinfo=berlin)
        assert evaluate({"$hour": "$d"}, {"d": aware}) == 12
        assert evaluate({"$eq": ["$d", NOON]}, {"d": aware}) is True
        assert evaluate({"$add": [aware, 1000]}) == NOON.replace(second=1)

    def test_dates_beyond_python_stay_dates(self) -> None:
        assert evaluate({"$add": ["$d", 1]}, {"d": DatetimeMS(253402300799999)}) == DatetimeMS(253402300800000)
        assert evaluate({"$year": "$d"}, {"d": DatetimeMS(253402300800000)}) == 10000

    def test_a_reference_is_a_document(self) -> None:
        document = {"r": DBRef("things", 7), "l": [DBRef("things", 8)]}
        assert evaluate(["$r.$id", "$r.$ref", "$l.$id", {"$type": "$r"}], document) == [7, "things", [8], "object"]

    def test_constants_look_like_stored_values(self) -> None:
        assert evaluate({"$literal": re.compile("a", re.I)}) == Regex("a", re.I | re.U)
        assert evaluate({"$type": {"$literal": uuid.UUID(int=1)}}) == "binData"
        assert evaluate({"$literal": (1, 2)}) == [1, 2]

    def test_decimal_context_of_the_caller_does_not_matter(self) -> None:
        with localcontext() as context:
            context.prec = 3
            total = evaluate({"$add": ["$a", "$b"]}, {"a": Decimal128("1.23456789"), "b": Decimal128("1")})
        assert total.to_decimal() == Decimal("2.23456789")

    def test_another_order_reaches_comparisons(self) -> None:
        """A collation comes as an order key."""

        def ignoring_case(value: Any) -> Any:
            return order_key(value.lower() if isinstance(value, str) else value)

        compiled = compile_expression(
            [
                {"$eq": ["$a", "X"]},
                {"$in": ["$a", ["X"]]},
                {"$setUnion": [["x"], ["X"]]},
                {"$indexOfArray": [["X"], "$a"]},
            ],
            order_key=ignoring_case,
        )
        assert compiled({"a": "x"}) == [True, True, ["x"], 0]

    @pytest.mark.parametrize("value", [None, MISSING, False, 0, 0.0, -0.0, Int64(0), Decimal128("0E+3")])
    def test_falsy_values_are_false(self, value: Any) -> None:
        """False, null, zero and missing values are false."""
        assert not truthy(value)

    @pytest.mark.parametrize("value", [True, 1, "", [], {}, float("nan"), Decimal128("NaN"), NOON, -1])
    def test_all_other_values_are_true(self, value: Any) -> None:
        """Every other value is true, empty texts, arrays and documents included."""
        assert truthy(value)
