"""A receiver of Quaestor's webhook as its documentation asks for: the signature checked by the Standard Webhooks library."""

from __future__ import annotations

from standardwebhooks import Webhook as Verifier
from standardwebhooks import WebhookVerificationError

from tests.cdn_contracts.cache import Cache
from tests.cdn_contracts.serving import Received, Reply, json_reply

KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class WebhookContract:
    """The receiver's state.

    key: revoked by setting it to another.
    cache: the answers that purges remove.
    seen: ids of messages received before.
    """

    def __init__(self) -> None:
        self.key = KEY
        self.cache = Cache("surrogate-key", " ")
        self.seen: set[str] = set()

    def answer(self, request: Received) -> Reply:
        try:
            message = Verifier(self.key).verify(request.body, request.fields)
        except WebhookVerificationError as error:
            return json_reply(401, {"error": str(error)})
        self.seen.add(request.fields["webhook-id"])
        if message["type"] != "cdn.purge":
            return json_reply(400, {"error": "unknown type"})
        if message["by"] == "tag":
            self.cache.purge_tags(message["values"])
        else:
            self.cache.purge_urls(message["values"])
        return Reply(204)
