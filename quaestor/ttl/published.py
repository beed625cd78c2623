"""Published parameters: what operators apply, as a log in the event layer that every app process reads.

One stream, one entry for each time something was applied: who, when, which parameters, and which entry it was decided on. An
entry counts if it was decided on the last entry that counts. Of two operators who apply at once, one succeeds and the other gets
an error; nothing is ever overwritten. The log is the audit trail. To undo a change, apply the parameters from before it. An entry
may
begin a canary: its `parameters` are then for all other results. A process of an older version, which knows no canaries, therefore
does nothing wrong.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from quaestor.errors import ConfigurationError, EventLayerResetError
from quaestor.ports import EventLayer
from quaestor.ttl.canary import Canary, canary_of
from quaestor.ttl.canary_guards import guards_of
from quaestor.ttl.parameters import TtlParameters, decoded

_AT_ONCE = 1_000
_LONGEST: Final = 100
_LONGEST_WHY: Final = 1_000


class SupersededError(ConfigurationError):
    """Somebody else has published meanwhile."""


class Publication(NamedTuple):
    """An entry of the log.

    number: position among the entries that count, from 1.
    base: number that it was decided on; 0: there was none.
    parameters: None: as each app's settings say.
    canary: other parameters for a share of the results; None: these count for all.
    why: what a machine says of it; "": a human has done it.
    """

    number: int
    base: int
    at_ms: int
    by: str
    parameters: TtlParameters | None
    canary: Canary | None = None
    why: str = ""


NOTHING: Final = Publication(number=0, base=0, at_ms=0, by="", parameters=None)
"""Before anything is published: what the settings say counts."""


class PublishedParameters:
    """The log of one app's parameters. Not thread-safe; every call is one round trip or more, and raises EventLayerError.

    scope: of the app: no two tenants share parameters.
    """

    def __init__(self, layer: EventLayer, *, scope: str) -> None:
        self._layer = layer
        self._stream = f"quaestor:{{{scope}:ttl}}:parameters"
        self._offset = "0"
        self._counted: list[Publication] = [NOTHING]

    def history(self) -> list[Publication]:
        """All that was published and counts, the oldest first; before it NOTHING."""
        while True:
            try:
                entries = self._layer.read({self._stream: self._offset}, count=_AT_ONCE, block_ms=0)
            except EventLayerResetError:  # Redis came back without its data: what was published is gone with them
                self._offset, self._counted = "0", [NOTHING]
                continue
            for entry in entries:
                self._offset = entry.offset
                self._count(entry.payload)
            if len(entries) < _AT_ONCE:
                return self._counted

    def decided_on(self, base: int) -> Publication:
        """The entry that counts. Raises SupersededError if that is another one than `base`."""
        newest = self.history()[-1]
        if newest.number != base:
            raise _superseded(newest, base)
        return newest

    def publish(
        self,
        parameters: TtlParameters | None,
        *,
        base: int,
        by: str,
        now_ms: int,
        canary: Canary | None = None,
        why: str = "",
    ) -> Publication:
        """Publish parameters that were decided on the entry `base`. Raises SupersededError, and changes nothing, if another
        one counts by now. A running canary is over."""
        newest = self.history()[-1]
        fields = {
            "base": base, "at_ms": now_ms, "by": by[:_LONGEST],
            "parameters": None if parameters is None else json.loads(parameters.encoded()),
        }  # fmt: skip
        if canary is not None:
            fields["canary"] = canary.plain()
            if canary.guards:
                fields["guards"] = canary.guards.plain()
        if why:
            fields["why"] = why[:_LONGEST_WHY]
        if newest.number == base:
            self._layer.append(self._stream, [json.dumps(fields).encode()])
            newest = self.history()[-1]
        if newest.base != base or newest.at_ms != now_ms or newest.by != by[:_LONGEST]:
            raise _superseded(newest, base)
        return newest

    def rollback(self, *, by: str, now_ms: int) -> Publication:
        """Publish what counted before the newest entry. Raises ConfigurationError if nothing was ever published."""
        counted = self.history()
        if len(counted) < 2:
            raise ConfigurationError("nothing was applied that could be rolled back: the settings of each app count")
        return self.publish(counted[-2].parameters, base=counted[-1].number, by=by, now_ms=now_ms)

    def begin_canary(self, canary: Canary, *, base: int, by: str, now_ms: int) -> Publication:
        """Publish a canary beside what counts. Raises SupersededError, and changes nothing, as publish() does."""
        return self.publish(self.history()[-1].parameters, base=base, by=by, now_ms=now_ms, canary=canary)

    def _count(self, payload: bytes) -> None:
        """An unreadable entry, or one with another base, does not count."""
        newest = self._counted[-1]
        try:
            fields = json.loads(payload)
            if fields["base"] != newest.number:
                return
            given = fields["parameters"]
            parameters = None if given is None else decoded(json.dumps(given))
            canary = canary_of(fields["canary"], guards_of(fields.get("guards", {}))) if "canary" in fields else None
            at_ms, by, why = int(fields["at_ms"]), str(fields["by"]), str(fields.get("why", ""))
            publication = Publication(newest.number + 1, newest.number, at_ms, by, parameters, canary, why)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError, ConfigurationError):
            return
        self._counted.append(publication)


def _superseded(newest: Publication, base: int) -> SupersededError:
    return SupersededError(
        f"{newest.by or 'somebody'} has applied other parameters meanwhile (number {newest.number}, decided on "
        f"{newest.base}; yours on {base}): look at them, and apply yours again if they are still right"
    )
