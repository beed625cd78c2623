"""Monthly budget of a place's purges, in money, counted in Redis for all processes that share the account."""

from __future__ import annotations

from datetime import UTC, datetime

from quaestor.cdn_adapters.capabilities import UNBOUNDED, Cost
from quaestor.cdn_adapters.place import Place
from quaestor.clock import Clock
from quaestor.errors import ConfigurationError
from quaestor.purge_ports import PurgeAccounts


class MonthlyBudget:
    """Budget of one place. Months are UTC; an unspent rest is forfeited at the end of the month.

    usd: bound of the month's price, beyond the free purges.
    left: targets that may still be sent this month, as of the last look; less than 1: the budget is spent.

    Raises ConfigurationError if the budget is negative, or the place has no price.
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
        """Whether the budget is spent."""
        return self.left < 1

    async def pay(self, targets: int) -> bool:
        """Pay for these targets and return True, if as many are left; otherwise update `left` and return False. Raises
        StoreError.
        """
        if await self._accounts.charge(self._month(), number=targets, most=self.most):
            self.left = max(1, self.left)  # a new month may have begun
            return True
        await self.look()
        return False

    async def refund(self, targets: int) -> None:
        """Refund these targets, which the provider has refused. Raises StoreError."""
        await self._accounts.charge(self._month(), number=-targets, most=UNBOUNDED)

    async def look(self) -> None:
        """Update `left` with the payments of all processes. Raises StoreError."""
        self.left = self.most - await self._accounts.charged(self._month())

    def _month(self) -> str:
        return f"{self._account}/{datetime.fromtimestamp(self._clock() / 1_000, UTC):%Y-%m}"


def checked_cost(place: Place, usd: float) -> Cost:
    """Return the price of this place's purges, for a budget. Raises ConfigurationError, see MonthlyBudget."""
    cost = place.capabilities.cost
    if cost is None or cost.usd_a_target <= 0:
        raise ConfigurationError(f"purges of {place.name} have no price: leave budget_usd out")
    if not 0 <= usd < float("inf"):
        raise ConfigurationError(f"budget_usd must be 0 (only what is free) or an amount of money, not {usd}")
    return cost
