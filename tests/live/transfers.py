"""Transfers between two accounts: every state that a transaction left has the same sum."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

SUM: Final = 1_000
ACCOUNTS: Final = ("a", "b")


def open_accounts(accounts: Any) -> None:
    """Write the two accounts."""
    accounts.insert_many([{"_id": name, "amount": SUM // 2, "account": name} for name in ACCOUNTS])


def amounts_in(accounts: Any) -> list[int]:
    """The amounts in the database."""
    return [account["amount"] for account in accounts.find(sort=[("_id", 1)])]


@contextmanager
def transfers(accounts: Any) -> Iterator[None]:
    """Transfer from one account to the other until the block ends, each time in a transaction."""
    enough, mongo = threading.Event(), accounts.database.client

    def transfer() -> None:
        while not enough.is_set():
            with mongo.start_session() as session, session.start_transaction():
                accounts.update_one({"_id": "a"}, {"$inc": {"amount": -1}}, session=session)
                accounts.update_one({"_id": "b"}, {"$inc": {"amount": 1}}, session=session)

    writing = threading.Thread(target=transfer, name="transfers")
    writing.start()
    try:
        yield
    finally:
        enough.set()
        writing.join()
