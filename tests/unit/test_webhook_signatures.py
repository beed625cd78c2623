"""Signatures of webhooks: the same for purges, results and brokers, and checked by the library of Standard Webhooks."""

from __future__ import annotations

import time

import pytest
from pydantic import SecretStr
from standardwebhooks import Webhook

from quaestor.errors import ConfigurationError
from quaestor.webhook_signatures import Signer

KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_the_library_accepts_a_signature_and_a_changed_body_is_refused() -> None:
    signer = Signer(SecretStr(KEY), name="the key")
    fields = signer.fields("c/1/0", '{"a":"é"}', at_s=time.time())
    assert Webhook(KEY).verify('{"a":"é"}', fields) == {"a": "é"}
    assert signer.accepts(fields, '{"a":"é"}')
    assert not signer.accepts(fields, '{"a":"e"}')
    assert not signer.accepts({**fields, "webhook-id": "c/1/1"}, '{"a":"é"}')
    assert not signer.accepts({}, '{"a":"é"}')


def test_an_old_signature_is_refused() -> None:
    """A recorded request cannot be sent again for ever."""
    signer = Signer(SecretStr(KEY), name="the key")
    assert not signer.accepts(signer.fields("c/1/0", "{}", at_s=time.time() - 600), "{}")


@pytest.mark.parametrize("key", ["", "whsec_AAAA", "whsec_!", "whsec_" + "A" * 200])
def test_a_bad_key_is_refused_by_its_name_and_never_shown(key: str) -> None:
    with pytest.raises(ConfigurationError, match="the broker's key") as raised:
        Signer(SecretStr(key), name="the broker's key")
    assert "AAAA" not in str(raised.value)
