"""Broker of police officers: keeps the alerts that a channel pushes, each once: `uvicorn examples.alerts_app:app`.

BROKER_KEY is the key of the broker, ALERTS the SQLite file of the alerts (by default alerts.db).
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing

from fastapi import FastAPI, HTTPException, Request
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

webhook = Webhook(os.environ["BROKER_KEY"])
app = FastAPI()


def connected() -> sqlite3.Connection:
    """Return a connection to the file of the alerts."""
    connection = sqlite3.connect(os.environ.get("ALERTS", "alerts.db"))
    connection.execute("CREATE TABLE IF NOT EXISTS messages (key TEXT PRIMARY KEY)")
    connection.execute("CREATE TABLE IF NOT EXISTS alerts (officer INTEGER, tweet INTEGER, text TEXT)")
    return connection


@app.post("/results", status_code=204)
async def results(request: Request) -> None:
    """Keep the results of one message. A repeated message has the key of the first one, and changes nothing."""
    try:
        message = webhook.verify(await request.body(), dict(request.headers))
    except WebhookVerificationError as error:
        raise HTTPException(401, "the message is not signed with the key of this broker") from error
    with closing(connected()) as connection, connection:
        key = request.headers["webhook-id"]
        if connection.execute("INSERT OR IGNORE INTO messages VALUES (?)", [key]).rowcount:
            records = [entry["result"] for entry in message["results"]]
            rows = [(record["oid"], record["tid"], record["text"]) for record in records]
            connection.executemany("INSERT INTO alerts VALUES (?, ?, ?)", rows)


@app.get("/alerts")
def alerts() -> list[str]:
    """All alerts so far."""
    with closing(connected()) as connection:
        rows = connection.execute("SELECT officer, text FROM alerts ORDER BY officer, tweet").fetchall()
    return [f"officer {officer}: {text}" for officer, text in rows]
