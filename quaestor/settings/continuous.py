"""Settings of tables, of continuous queries, and of the delivery of their results."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_network

from quaestor.settings.bounds import Form, check, text, texts, whole


def _is_network(name: str) -> bool:
    try:
        ip_network(name)
    except ValueError:
        return False
    return True


def _is_executor(name: str) -> bool:
    return name in ("duckdb", "spark") or re.fullmatch(r"\d+(\.\d+)? ?[KMGT]B", name) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSettings:
    """Settings of the tables that collections fill (docs/tables.md)."""

    filled_tables: tuple[str, ...] = texts(
        "Collections that become tables of the folder: 'shop.orders', or 'orders=shop.orders(_id:text price:double)' with "
        "the table's name and declared columns (docs/tables.md).",
        Form(description="a collection like 'shop.orders'", fits=lambda name: all(name.partition("."))),
    )
    table_days: int = whole(
        0, "days", 0, 36_500, "Days for which filled tables keep superseded versions of records. 0: for ever."
    )

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuousSettings:
    """Settings of continuous queries and channels: their runs, and the delivery of results (docs/continuous/running.md)."""

    continuous_folder: str = text(
        "", "Folder of the tables, the installed queries and the dead letters. Empty: no continuous queries."
    )
    feed_folder: str = text("", "Folder below which feeds read files. Empty: no feeds of type files.")
    function_modules: tuple[str, ...] = texts(
        "Python modules whose functions statements may name: 'shop.enrichment' (docs/channels/feeds.md)."
    )
    channel_days: int = whole(7, "days", 0, 36_500, "Days for which results of channels are kept. 0: for ever.")
    continuous_executor: str = text(
        "duckdb",
        "Engine of continuous queries and channels: duckdb, spark, or the size above which Spark executes one: '10GB'.",
        Form(description="duckdb, spark, or a size like '10GB'", fits=_is_executor),
    )
    continuous_spark_master: str = text(
        "local[*]", "Spark of continuous queries and channels, as spark-submit takes it."
    )
    continuous_limit_s: int = whole(
        3_600,
        "s",
        1,
        604_800,
        "Longest time of a continuous query or a run of a channel in DuckDB. A longer one is interrupted, and fails.",
    )
    webhook_key: str = text("", "Key that signs webhooks: 'whsec_' and base64 of 24 to 64 bytes. Empty: no webhooks.")
    webhook_networks: tuple[str, ...] = texts(
        "Private networks that webhooks may reach, besides public addresses: '10.1.0.0/16'. Webhooks to them may be http.",
        Form(description="a network like '10.1.0.0/16'", fits=_is_network),
    )
    mail_server: str = text(
        "", "Mail server that takes digests: smtp://user:password@host:port, or smtps://... Empty: no mail."
    )
    mail_from: str = text("", "Sender of digests, like 'quaestor@shop.example'.")
    delivery_folder: str = text("", "Folder of the files that results are appended to. Empty: no files.")
    delivery_timeout_ms: int = whole(10_000, "ms", 10, 600_000, "Longest time of one delivery, the answer included.")
    delivery_attempts: int = whole(
        8, "", 1, 100,
        "Attempts before a batch becomes a dead letter. The pauses double, from a second to five minutes.",
    )  # fmt: skip

    def __post_init__(self) -> None:
        check(self)
