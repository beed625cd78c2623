"""An account at a provider is never exceeded, however late requests arrive and are answered, and whichever process spends."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from quaestor.purge_ports import Bucket
from quaestor.store.purge_accounts_memory import MemoryAccounts

BUCKET = Bucket("api", per_s=5, burst=3)
PAYERS = 4


@dataclass
class Provider:
    """The provider's own bucket, which counts a request when it arrives."""

    now_ms: int = 0
    tokens: float = BUCKET.burst
    at_ms: int = 0
    under_way: dict[int, bool] = field(default_factory=dict)

    def arrive(self, payer: int) -> None:
        self.under_way[payer] = True
        self.tokens = min(BUCKET.burst, self.tokens + (self.now_ms - self.at_ms) * BUCKET.per_s / 1_000)
        self.at_ms = self.now_ms
        assert self.tokens >= 1 - 1e-9, "it would have been refused"
        self.tokens -= 1


@given(
    st.lists(
        st.tuples(
            st.integers(0, PAYERS - 1),
            st.sampled_from(["pay", "pay", "arrive", "answer", "unsent"]),
            st.sampled_from([0, 0, 1, 50, 200, 5_000]),
        ),
        max_size=80,
    )
)
def test_no_request_of_any_payer_is_ever_refused(steps: list[tuple[int, str, int]]) -> None:
    """Several queues and deployments: a paid request that has not arrived yet leaves no room for another payer."""

    async def run() -> None:
        accounts, provider = MemoryAccounts(), Provider()
        for payer, step, later_ms in steps:
            provider.now_ms += later_ms
            arrived = provider.under_way.get(payer)
            now_ms = provider.now_ms
            if step == "pay" and arrived is None:
                if await accounts.spend(BUCKET, tokens=1, payer=str(payer), lease_ms=10**9, now_ms=now_ms) == 0:
                    provider.under_way[payer] = False
            elif step == "arrive" and arrived is False:
                provider.arrive(payer)
            elif step == "unsent" and arrived is False:
                del provider.under_way[payer]
                await accounts.settle(BUCKET, payer=str(payer), sent=False, now_ms=now_ms)
            elif step == "answer" and arrived:
                del provider.under_way[payer]
                await accounts.settle(BUCKET, payer=str(payer), now_ms=now_ms)

    asyncio.run(run())
