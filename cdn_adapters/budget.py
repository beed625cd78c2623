"""Budget of a place's purges in a month, in money, counted in Redis for all processes that share the account."""

from __future__ import annotations

from datetime import UTC, datetime

from quaestor.cdn_adapters.capabilities import UNBOUNDED, Cost
from quaestor.cdn_adapters.place import Place
from quaestor.clock import Clock
from quaestor.errors import ConfigurationError
from quaestor.purge_ports import PurgeAccounts


class MonthlyBudget:
    """Budget of one place. A month is one of UTC; what is left at its end is forfeited.

    usd: what purges of a month may cost, beyond those that cost nothing.
    left: targets that may still be sent this month, as far as it was asked; less than 1: it is spent.

    Raises ConfigurationError if it is negative, or the place has no price.
    """

    def __init__(self, place: Place, *, usd: float, accounts: PurgeAccounts, clock: Clock) -> None:
        cost = checked_cost(place, usd)
        self.most = min(UNBOUNDED, cost.free_a_month + int(usd / cost.usd_a_target))
        self.left = self.most
        self._account = cost.account or f"{place.name}/{place.address}"
        self._accounts = accounts
        self._clock = clock

    @property
    def spent(self) -> bool:
        """Whether nothing is left."""
        return self.left < 1

    async def pay(self, targets: int) -> bool:
        """Pay for these, if as many are left; `left` says how many there are otherwise. Raises StoreError."""
        if await self._accounts.charge(self._month(), number=targets, most=self.most):
            self.left = max(1, self.left)  # a new month may have begun
            return True
        await self.look()
        return False

    async def refund(self, targets: int) -> None:
        """Take these back: the provider has refused them. Raises StoreError."""
        await self._accounts.charge(self._month(), number=-targets, most=UNBOUNDED)

    async def look(self) -> None:
        """See how many are left, whoever has paid. Raises StoreError."""
        self.left = self.most - await self._accounts.charged(self._month())

    def _month(self) -> str:
        return f"{self._account}/{datetime.fromtimestamp(self._clock() / 1_000, UTC):%Y-%m}"


def checked_cost(place: Place, usd: float) -> Cost:
    """The price of this place's purges, for which there is a budget. Raises ConfigurationError, see MonthlyBudget."""
    cost = place.capabilities.cost
    if cost is None or cost.usd_a_target <= 0:
        raise ConfigurationError(f"purges of {place.name} have no price: leave budget_usd out")
    if not 0 <= usd < float("inf"):
        raise ConfigurationError(f"budget_usd must be 0 (only what is free) or an amount of money, not {usd}")
    return cost
