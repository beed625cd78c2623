"""Check of one CDN of an application: whether a purge has an effect at the clients' address, and whether its limits suffice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import anyio.to_thread
import redis

from quaestor.app import Quaestor
from quaestor.cdn_ports import DiagnosedCdn, Facts, Finding, Level
from quaestor.doctor import diagnosis, shared_redis
from quaestor.doctor.diagnosis import Diagnosis, mend, ok, warn
from quaestor.doctor.hosted_app import load_app, middleware_of, started
from quaestor.errors import ConfigurationError, StoreError
from quaestor.invalidation.effects.purge_probe import addresses, check, probe_tag
from quaestor.invalidation.registry.surrogate_tags import everything_tag, tag
from quaestor.ports import CdnAdapter
from quaestor.settings import Settings

_LEVELS: Final = {
    diagnosis.Level.OK: Level.OK,
    diagnosis.Level.WARN: Level.WARN,
    diagnosis.Level.MEND: Level.BLOCK,
}
_SEVERITY: Final = list(Level)


async def check_cdn(app: str, name: str, *, address: str | None) -> list[Finding]:
    """Findings on a CDN, checked with the application's credentials for it; the worst finding first.

    app: module:app.
    address: public address of the CDN; None: the address in the setting cdn_addresses.

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
        known = addresses([f"{name}={address}"]) if address else addresses(quaestor.settings.cdn.cdn_addresses)
        if name not in known:
            raise ConfigurationError(f"where clients ask {name} is not known: give --address, or set cdn_addresses")
        purge = quaestor.parts.effects.purging.of(adapters[name])
        findings = [await check(known[name], probe_tag(quaestor.settings.scope), purge)]
        findings += await _diagnosed(adapters[name], quaestor.settings)
        findings += await _clock(quaestor.settings)
        return sorted(findings, key=lambda finding: _SEVERITY.index(finding.level), reverse=True)


async def diagnosed(quaestor: Quaestor) -> list[Diagnosis]:
    """Diagnoses of an application's CDNs for the doctor, without a request to any CDN."""
    diagnoses = []
    for adapter in quaestor.parts.effects.cdn:
        subject = f"cdn {adapter.name}"
        findings = await _diagnosed(adapter, quaestor.settings)
        diagnoses += [
            (mend if finding.level is Level.BLOCK else warn)(subject, finding.sentence) for finding in findings
        ]
        if not findings:
            diagnoses.append(
                ok(subject, "its limits and bounds suffice; `quaestor cdn check` sees whether purges have an effect")
            )
    return diagnoses


def facts_of(settings: Settings) -> Facts:
    """Return the facts that an application's settings contain."""
    return Facts(lives_ms=settings.lifetimes.ttl_max_ms, tags=(tag(""), everything_tag(settings.scope)))


async def _diagnosed(adapter: CdnAdapter, settings: Settings) -> Sequence[Finding]:
    if not isinstance(adapter, DiagnosedCdn):
        return []
    try:
        return await adapter.diagnose(facts_of(settings))
    except StoreError as error:
        return [Finding(level=Level.WARN, sentence=f"what it has to do is not known: {error}")]


async def _clock(settings: Settings) -> list[Finding]:
    """Findings on the clock of Redis, by which accounts are kept and leases of purges end."""
    if settings.redis_url is None:
        return []
    try:
        compared = await anyio.to_thread.run_sync(shared_redis.clock, settings.redis_url, settings)
    except (redis.RedisError, ConfigurationError) as error:
        return [Finding(level=Level.BLOCK, sentence=f"Redis, where the outbox lies, does not answer: {error}")]
    return [Finding(level=_LEVELS[compared.level], sentence=f"{compared.subject}: {compared.sentence}")]
