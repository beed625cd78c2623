"""Automatic encryption: the clients that pymongo makes within a client are no strangers, and what it decrypts is exact."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from bson.codec_options import CodecOptions
from fastapi import FastAPI
from pymongo import AsyncMongoClient, MongoClient
from pymongo.encryption import Algorithm, ClientEncryption
from pymongo.encryption_options import AutoEncryptionOpts
from pymongo.errors import OperationFailure

from quaestor import Quaestor
from quaestor.capture import recording
from quaestor.middleware import QuaestorMiddleware
from quaestor.model import Uncacheable
from tests.inputs.flights import Async, Sync, alive, get, is_hit
from tests.support import PATIENT, eventually

pytestmark = pytest.mark.anyio

PROVIDERS = {"local": {"key": bytes(96)}}


@asynccontextmanager
async def secrets(other: Sync, vault: str) -> AsyncIterator[Callable[[str], Any]]:
    """A function that encrypts a text by a key in this key vault."""
    with ClientEncryption(PROVIDERS, vault, other, CodecOptions()) as encryption:
        key = encryption.create_data_key("local")
        algorithm = Algorithm.AEAD_AES_256_CBC_HMAC_SHA_512_Deterministic
        yield lambda text: encryption.encrypt(text, algorithm, key_id=key)


@pytest.mark.parametrize("options", [{"bypass_auto_encryption": True}, {"bypass_query_analysis": True}], ids=str)
async def test_automatically_decrypted_answers_are_cached_and_exact(
    mongo_url: str, prefix: str, options: dict[str, bool]
) -> None:
    """Keys are read by a client that pymongo makes of the application's, and that carries its capture."""
    quaestor, app, vault = Quaestor(debug_header=True, **PATIENT), FastAPI(), f"{prefix}.vault"
    opts = AutoEncryptionOpts(PROVIDERS, vault, **options)  # type: ignore[arg-type]
    with MongoClient[dict[str, Any]](mongo_url) as other:
        async with secrets(other, vault) as encrypted:
            records = other[prefix].records
            records.insert_one({"_id": 1, "number": encrypted("123")})
            client: Async = AsyncMongoClient(mongo_url, event_listeners=[quaestor.capture], auto_encryption_opts=opts)

            @app.get("/")
            async def page() -> Any:
                return await client[prefix].records.find_one({"number": encrypted("123")})

            app.add_middleware(QuaestorMiddleware, quaestor=quaestor)
            async with alive(app) as http:
                await eventually(lambda: is_hit(http, "/"))
                assert (await get(http, "/")).json() == {"_id": 1, "number": "123"}
                records.replace_one({"_id": 1}, {"number": encrypted("456")})

                async def gone() -> bool:
                    return (await get(http, "/")).json() is None

                await eventually(gone)
            await client.close()
        other.drop_database(prefix)


@pytest.mark.parametrize("field", ["isRemoteSchema", "csfleEncryptionSchemas"])
def test_a_command_to_a_mongocryptd_is_no_read(mongo_url: str, prefix: str, field: str) -> None:
    """mongocryptd reports which parts of a command to encrypt.

    A mongod with data refuses such a command, so no read can hide.
    """
    with MongoClient[Any](mongo_url) as bare, recording() as recorder:
        with pytest.raises(OperationFailure, match="unknown field"):
            bare[prefix].command({"find": "records", "filter": {"number": "123"}, field: {}})
        assert [reason for reason, _ in recorder.outcome(0).reasons] == [Uncacheable.NO_READS]
        bare[prefix].records.find_one()
        assert Uncacheable.UNCAPTURED in {reason for reason, _ in recorder.outcome(0).reasons}
