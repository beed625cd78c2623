"""Guard of the admin API and the dashboard: clients without a token learn nothing, and clients that guess have to wait."""

from __future__ import annotations

from collections.abc import Sequence

from quaestor.admin.problem_details import problem
from quaestor.admin.token import AdminToken, Failures
from quaestor.clock import Clock
from quaestor.middleware.interface import Scope, Send
from quaestor.observability.telemetry import Telemetry


class Guard:
    """Guard of one program's endpoints.

    tokens: each of them admits.
    """

    def __init__(self, tokens: Sequence[AdminToken], telemetry: Telemetry, clock: Clock) -> None:
        self._tokens = tuple(tokens)
        self._telemetry = telemetry
        self._failures = Failures(clock)

    async def admitted(self, scope: Scope, send: Send) -> AdminToken | None:
        """Token that a request carries. None: the request has no right token, and was answered."""
        client = client_of(scope)
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        # Behind a load balancer all clients have one address, and strangers must not lock out the holder of the token.
        if len(given) == 1:
            allowing = [token for token in self._tokens if token.allows(given[0])]
            if allowing:
                return allowing[0]
        if wait_ms := self._failures.wait_ms(client):
            self._telemetry.failure("admin", "admin.too_many_attempts", "wrong tokens", client=client)
            retry = [(b"retry-after", b"%d" % (wait_ms // 1000 + 1))]
            await problem(send, 429, "Too many attempts.", headers=retry)
            return None
        if given:
            self._failures.note(client)
            self._telemetry.failure("admin", "admin.wrong_token", "a request without the right token", client=client)
        challenge = [(b"www-authenticate", b'Bearer realm="quaestor"')]
        await problem(send, 401, "A bearer token is needed.", headers=challenge)
        return None


def client_of(scope: Scope) -> str:
    """Address of the client, as the server knows it."""
    client = scope.get("client")
    return client[0] if client else "unknown"
