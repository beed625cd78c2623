"""Check of one CDN of an application: whether a purge has an effect where clients ask."""

from __future__ import annotations

from quaestor.app import Quaestor
from quaestor.doctor.hosted_app import load_app, middleware_of, started
from quaestor.errors import ConfigurationError
from quaestor.invalidation.effects.canary import Finding, addresses, canary_tag, check


async def check_cdn(app: str, name: str, *, address: str | None) -> Finding:
    """Check the CDN that this application calls so, with the credentials that the application gives it.

    app: module:app.
    address: public address of the CDN; None: that of the setting cdn_addresses.

    Raises ConfigurationError if there is no such application, CDN or address.
    """
    hosted = load_app(app)
    async with started(hosted):
        quaestor = middleware_of(hosted).engine
        if not isinstance(quaestor, Quaestor):
            raise ConfigurationError(f"{app} has no Quaestor behind its middleware")
        adapters = {adapter.name: adapter for adapter in quaestor.parts.effects.cdn}
        if name not in adapters:
            raise ConfigurationError(f"{app} has no CDN {name!r}; it has: {', '.join(sorted(adapters)) or 'none'}")
        known = addresses([f"{name}={address}"]) if address else addresses(quaestor.settings.cdn_addresses)
        if name not in known:
            raise ConfigurationError(f"where clients ask {name} is not known: give --address, or set cdn_addresses")
        purge = quaestor.parts.effects.purging.of(adapters[name])
        return await check(known[name], canary_tag(quaestor.settings.scope), purge)
