"""Registration of brokers: addresses, keys, states and leases, kept durably beside the datasets."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from ipaddress import ip_address
from typing import Any, Final

from pydantic import SecretStr

from quaestor.channels.names import NAME
from quaestor.clock import Clock, system_clock
from quaestor.continuous.delivery.networks import Networks
from quaestor.continuous.delivery.signed_requests import checked
from quaestor.continuous.schedule.periods import duration
from quaestor.errors import ConfigurationError, DependencyError
from quaestor.tables.changes import Change, Snapshot
from quaestor.tables.log import Table
from quaestor.tables.storage import LogStorage
from quaestor.webhook_signatures import Signer

_OPTIONS: Final = frozenset({"type", "key", "lease", "public", "check"})
_FORMAT: Final = 1
_RENEWAL: Final = 4
"""Part of a lease after which a renewal is written: one of so many."""


class Kind(StrEnum):
    """Kind of a broker: a program, or the HTTP feed of another instance."""

    GENERAL = "general"
    BAD = "BAD"


class State(StrEnum):
    """State of a broker. A draining broker receives its results, and takes no new subscriptions."""

    ACTIVE = "active"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """Broker.

    key: `whsec_` and base64, shared with the broker; signs the requests of both sides.
    owner: user that registered the broker.
    lease: microseconds after which a silent broker has expired; 0: never.
    renewed: instant of its newest sign of life.
    is_public: whether everybody may read its pages of results.
    is_checked: whether its health is checked.
    down_since: instant from which on its health checks have failed; 0: it is up.
    """

    name: str
    url: str
    key: str = field(repr=False)
    kind: Kind = Kind.GENERAL
    state: State = State.ACTIVE
    owner: str = ""
    lease: int = 0
    renewed: int = 0
    is_public: bool = False
    is_checked: bool = True
    down_since: int = 0

    @property
    def is_down(self) -> bool:
        """Whether it is known to answer no requests. Its results wait."""
        return bool(self.down_since)

    @property
    def accepts_subscriptions(self) -> bool:
        """Whether new subscriptions may name this broker."""
        return self.state is State.ACTIVE

    @property
    def signer(self) -> Signer:
        """Signer of requests to this broker, and verifier of its requests."""
        return Signer(SecretStr(self.key), name=f"the key of broker {self.name!r}")

    def has_expired(self, now: int) -> bool:
        """Whether the lease is over at an instant."""
        return bool(self.lease) and now > self.renewed + self.lease

    def described(self) -> dict[str, Any]:
        """Return the broker as plain data, without its key."""
        fields = {name: value for name, value in asdict(self).items() if name != "key"}
        return fields | ({"state": "down"} if self.is_down else {})


class Brokers:
    """Brokers of one place. Several processes may change them. Every change is durable when its method returns.

    networks: private networks that brokers may be in.
    most_of_owner: brokers that a user may register.

    Methods raise ConfigurationError for a wrong name or value, DependencyError if the storage fails.
    """

    def __init__(
        self,
        storage: LogStorage,
        *,
        networks: Networks | None = None,
        most_of_owner: int = 100,
        clock: Clock = system_clock,
    ) -> None:
        self._log = Table(storage.below("_brokers"))
        self._networks = networks or Networks()
        self._most_of_owner = most_of_owner
        self._clock = clock

    def all(self) -> list[Broker]:
        """Return all brokers, by name."""
        notes = self._log.snapshot().notes
        return [_decoded(notes[name], name) for name in sorted(notes)]

    def get(self, name: str) -> Broker:
        """Return a broker."""
        return _of(self._log.snapshot(), name)

    def register(
        self,
        name: str,
        url: str,
        *,
        options: Mapping[str, Any] | None = None,
        owner: str = "",
        replaces: bool = False,
    ) -> Broker:
        """Register a broker, or give a registered broker another address. Return it with its key.

        options: of WITH: `type` ("general" or "BAD"), `key` (by default a new one), `lease` ("PT1H"), `public` and `check` (true
            or false).
        replaces: whether the broker may be there already; it keeps its key, unless the options name another.
        """
        if not NAME.fullmatch(name):
            raise ConfigurationError(f"{name!r} cannot name a broker: use letters, digits and _, at most 63")
        wanted = self._wanted(name, url, dict(options or {}), owner)

        def decide(now: Snapshot) -> Change:
            broker = wanted
            if name in now.notes:
                if not replaces:
                    raise ConfigurationError(f"the broker {name!r} is registered: drop it first, or replace it")
                broker = replace(wanted, key=wanted.key or _decoded(now.notes[name], name).key)
            else:
                self._check_quota(now, owner)
            key = broker.key or f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}"
            return Change(notes={name: _encoded(replace(broker, key=key))})

        return _of(self._publish(decide), name)

    def drain(self, name: str) -> Broker:
        """Let a broker receive its results, but no new subscriptions."""
        return self._changed(name, lambda broker: replace(broker, state=State.DRAINING))

    def resume(self, name: str) -> Broker:
        """Let a draining broker take new subscriptions again."""
        return self._changed(name, lambda broker: replace(broker, state=State.ACTIVE))

    def renew(self, name: str) -> Broker:
        """Note a sign of life of a broker. A renewal soon after the last one writes nothing."""
        broker = self.get(name)
        now = self._clock() * 1_000
        if not broker.lease or now < broker.renewed + broker.lease // _RENEWAL:
            return broker
        return self._changed(name, lambda present: replace(present, renewed=max(now, present.renewed)))

    def note_down(self, name: str, since: int) -> Broker:
        """Keep since when a broker has answered no requests; 0: it answers."""
        broker = self.get(name)
        if broker.down_since == since:
            return broker
        return self._changed(name, lambda broker: replace(broker, down_since=since))

    def drop(self, name: str) -> None:
        """Drop a broker."""
        self.get(name)
        self._publish(lambda now: Change(notes={name: None}) if name in now.notes else None)

    def _wanted(self, name: str, url: str, options: dict[str, Any], owner: str) -> Broker:
        if unknown := sorted(options.keys() - _OPTIONS):
            raise ConfigurationError(f"a broker has no option {unknown[0]!r}: there are {', '.join(sorted(_OPTIONS))}")
        self._check_address(url)
        kinds = {kind.lower(): kind for kind in Kind}
        kind = kinds.get(str(options.get("type", Kind.GENERAL)).lower())
        if kind is None:
            raise ConfigurationError(f"the broker {name!r} is of type {options['type']!r}: write general or BAD")
        key = options.get("key", "")
        if not isinstance(key, str):
            raise ConfigurationError(f"the key of broker {name!r} is no text")
        if key:
            Signer(SecretStr(key), name=f"the key of broker {name!r}")
        lease = duration(str(options["lease"])) if options.get("lease") else 0
        return Broker(
            name=name,
            url=url,
            key=key,
            kind=kind,
            owner=owner,
            lease=lease,
            renewed=self._clock() * 1_000,
            is_public=_flag(name, options, "public", default=False),
            is_checked=_flag(name, options, "check", default=True),
        )

    def _check_address(self, url: str) -> None:
        """Refuse an address in a network that brokers must not be in. A name is checked at each delivery."""
        host = checked(url).host
        try:
            ip_address(host)
        except ValueError:
            return
        if not self._networks.allows(host):
            raise ConfigurationError(
                f"{host} is no public address; if brokers may be there, add its network to the setting webhook_networks"
            )

    def _check_quota(self, now: Snapshot, owner: str) -> None:
        owned = sum(_decoded(text, name).owner == owner for name, text in now.notes.items())
        if owned >= self._most_of_owner:
            raise ConfigurationError(
                f"{owner or 'this user'} has {owned} brokers, the most that are allowed: drop some of them"
            )

    def _changed(self, name: str, change: Callable[[Broker], Broker]) -> Broker:
        return _of(self._publish(lambda now: Change(notes={name: _encoded(change(_of(now, name)))})), name)

    def _publish(self, decide: Callable[[Snapshot], Change | None]) -> Snapshot:
        return self._log.publish(decide, now_us=self._clock() * 1_000)


def _flag(name: str, options: Mapping[str, Any], option: str, *, default: bool) -> bool:
    flag = options.get(option, default)
    if not isinstance(flag, bool):
        raise ConfigurationError(f"the option {option} of broker {name!r} is {flag!r}: write true or false")
    return flag


def _of(snapshot: Snapshot, name: str) -> Broker:
    if name not in snapshot.notes:
        raise ConfigurationError(f"no broker {name!r}: there are {', '.join(sorted(snapshot.notes)) or 'none'}")
    return _decoded(snapshot.notes[name], name)


def _encoded(broker: Broker) -> str:
    return json.dumps({"v": _FORMAT, **asdict(broker)})


def _decoded(text: str, name: str) -> Broker:
    try:
        fields = json.loads(text)
        if fields.pop("v") != _FORMAT:
            raise ValueError("another format")
        return Broker(**{**fields, "kind": Kind(fields["kind"]), "state": State(fields["state"])})
    except (ValueError, KeyError, TypeError) as error:
        raise DependencyError(f"the broker {name!r} is damaged: {error}; register it again", retryable=False) from error
