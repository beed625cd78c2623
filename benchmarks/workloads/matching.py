"""Queries and records to be matched: the papers' workload, and a mixed one.

In both, the share of writes that change a result is the same for any number of queries. Only the cost of queries that do not
match grows with their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

Document = dict[str, Any]

_DOMAIN = 1_000_000_000
_MATCHING_SHARE = 17 / 1000
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_STATES = ("new", "paid", "packed", "sent", "returned")


@dataclass(frozen=True, slots=True)
class Workload:
    """queries(n, random): n filters; records(n, random): endless records to write, made for n queries."""

    name: str
    what: str
    queries: Callable[[int, Random], Iterator[Document]]
    records: Callable[[int, Random], Iterator[Document]]


def _papers_queries(n: int, random: Random) -> Iterator[Document]:
    width = _DOMAIN * _MATCHING_SHARE / n
    for _ in range(n):
        low = random.random() * _DOMAIN
        yield {"random": {"$gte": low, "$lt": low + width}}


def _papers_records(n: int, random: Random) -> Iterator[Document]:
    number = 0
    while True:
        number += 1
        record: Document = {"_id": number}
        for field in range(5):
            record[f"s{field}"] = "".join(random.choices(_LETTERS, k=10))
        for field in range(4):
            record[f"i{field}"] = random.randrange(_DOMAIN)
        record["random"] = random.random() * _DOMAIN
        yield record


def _mixed_queries(n: int, random: Random) -> Iterator[Document]:
    return _mixture(n, random, 20)


def _indexed_queries(n: int, random: Random) -> Iterator[Document]:
    return _mixture(n, random, 18)


def _mixture(n: int, random: Random, kinds: int) -> Iterator[Document]:
    many = 100 * n
    width = _DOMAIN * 0.01 / n
    for number in range(n):
        kind = number % kinds
        low = random.random() * _DOMAIN
        if kind < 6:
            yield {"customer": random.randrange(many), "state": random.choice(_STATES)}
        elif kind < 11:
            yield {"amount": {"$gte": low, "$lt": low + width}, "state": {"$ne": "returned"}}
        elif kind < 14:
            yield {"product": {"$in": [random.randrange(many) for _ in range(5)]}}
        elif kind < 16:
            yield {"code": {"$regex": f"^{_code(random)}"}}
        elif kind < 18:
            yield {"$or": [{"lines.sku": random.randrange(many)}, {"amount": {"$gte": low, "$lt": low + width}}]}
        elif kind < 19:
            yield {"note": {"$regex": f"{_code(random)}$"}}
        else:
            yield {"amount": {"$not": {"$gte": low * 1e-6}}, "state": {"$ne": random.choice(_STATES)}}


def _mixed_records(n: int, random: Random) -> Iterator[Document]:
    many = 100 * n
    number = 0
    while True:
        number += 1
        yield {
            "_id": number,
            "customer": random.randrange(many),
            "product": random.randrange(many),
            "state": random.choice(_STATES),
            "amount": 1_000.0 + random.random() * (_DOMAIN - 1_000),
            "code": _code(random),
            "note": f"leave it {_code(random)} please {_code(random)}",
            "lines": [{"sku": random.randrange(many), "n": random.randrange(9)} for _ in range(3)],
            "country": random.choice(_LETTERS) + random.choice(_LETTERS),
            "open": random.random() < 0.5,
        }


def _code(random: Random) -> str:
    return "".join(random.choices(_LETTERS, k=9))


PAPERS = Workload(
    "papers",
    "10 fields; each query a range over a random number; 17 of 1,000 writes match one (InvaliDB, PVLDB 2020, section 6)",
    _papers_queries,
    _papers_records,
)
MIXED = Workload(
    "mixed",
    "30 % equality, 25 % range, 15 % $in, 10 % prefix, 10 % disjunction, 10 % without a value (unanchored regex, negation)",
    _mixed_queries,
    _mixed_records,
)
INDEXED = Workload("indexed", "the mixed one without the 10 % that look for no value", _indexed_queries, _mixed_records)
WORKLOADS = {workload.name: workload for workload in (PAPERS, INDEXED, MIXED)}
