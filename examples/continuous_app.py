"""Reminders, expiring offers and orders without a reply, each reported once: `uvicorn examples.continuous_app:app`.

QUAESTOR_CONTINUOUS_FOLDER names the folder of the tables and queries. Four collections become tables; three queries report.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from pymongo import AsyncMongoClient

from quaestor import Now, Quaestor, QuaestorMiddleware

DATABASE = os.environ.get("DATABASE", "examples")

quaestor = Quaestor.from_env(
    filled_tables=(
        f"{DATABASE}.reminders(_id:text note:text due_at:timestamp)",
        f"{DATABASE}.offers(_id:text expires_at:timestamp)",
        f"{DATABASE}.orders(_id:bigint placed_at:timestamp)",
        f"{DATABASE}.replies(_id:text order_id:bigint)",
    )
)
client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(os.environ["MONGO_URL"], event_listeners=[quaestor.capture])
shop = client[DATABASE]

app = FastAPI()
app.add_middleware(QuaestorMiddleware, quaestor=quaestor)


@quaestor.continuous("SELECT _id, note FROM reminders WHERE due_at <= now()", every="1s")
async def remind(batch: Any) -> None:
    """A reminder that is due."""
    await report(batch, "note")


@quaestor.continuous(
    "SELECT _id FROM offers WHERE now() >= expires_at - INTERVAL 6 SECOND AND now() < expires_at", every="1s"
)
async def expiring(batch: Any) -> None:
    """An offer in its last six seconds."""
    await report(batch, "_id")


@quaestor.continuous(
    """SELECT _id FROM orders WHERE placed_at + INTERVAL 6 SECOND <= now()
       AND NOT EXISTS (SELECT 1 FROM replies WHERE replies.order_id = orders._id)""",
    every="1s",
)
async def unanswered(batch: Any) -> None:
    """An order that had no reply within six seconds."""
    await report(batch, "_id")


async def report(batch: Any, column: str) -> None:
    """Keep one report for each row. The key of the row makes a repeated delivery harmless."""
    for key, row in batch.keyed_rows():
        text = f"{batch.query}: {row[column]}"
        await shop.reports.replace_one({"_id": key}, {"text": text}, upsert=True)


class Reminder(BaseModel):
    note: str
    in_s: float


class Offer(BaseModel):
    name: str
    in_s: float


class Order(BaseModel):
    id: int


class Reply(BaseModel):
    order: int


@app.post("/reminders", status_code=201)
async def add_reminder(reminder: Reminder) -> Reminder:
    """One more reminder."""
    await shop.reminders.insert_one({"note": reminder.note, "due_at": _in(reminder.in_s)})
    return reminder


@app.post("/offers", status_code=201)
async def add_offer(offer: Offer) -> Offer:
    """One more offer."""
    await shop.offers.insert_one({"_id": offer.name, "expires_at": _in(offer.in_s)})
    return offer


@app.post("/orders", status_code=201)
async def add_order(order: Order) -> Order:
    """One more order."""
    await shop.orders.insert_one({"_id": order.id, "placed_at": _in(0)})
    return order


@app.post("/replies", status_code=201)
async def add_reply(reply: Reply) -> Reply:
    """A reply to an order."""
    await shop.replies.insert_one({"order_id": reply.order})
    return reply


@app.get("/offers")
async def offers() -> list[str]:
    """Offers that have not expired: cached until the first one does."""
    return [offer["_id"] async for offer in shop.offers.find({"expires_at": {"$gt": Now()}}).sort("_id", 1)]


@app.get("/reports")
async def reports() -> list[str]:
    """All reports so far."""
    return [report["text"] async for report in shop.reports.find().sort("text", 1)]


def _in(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)
