"""The world of random handlers where some read what nobody can see, and the cache verifies itself."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any

from quaestor.read_path.hidden_inputs import HIDDEN_INPUT
from quaestor.read_path.verification import Finding
from quaestor.read_path.verification_samples import SAMPLE_EVERY_MS
from tests.inputs.random_handlers import Ask, Change, Handler, Story
from tests.inputs.random_inputs import Said
from tests.inputs.random_world import Answered, World, WrongAnswerError
from tests.support import eventually


class UnseenWorld(World):
    """A world where an answer may be wrong because of what nobody can see, until that is found out.

    wrong: answers that were. found: how often a route was quarantined for it, or showed a hidden input. ended: how often a
    wrong entry was over before.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **{"verification": True, "verify_share": 1.0, "verify_per_second": 1_000.0} | settings)
        self.wrong = self.found = self.ended = 0
        self._earlier: list[Said] = []
        self._compared: list[tuple[int, str, str, Finding, tuple[str, ...]]] = []
        self._played: dict[str, Handler] = {}
        self._changes = 0
        verifications = self._cached._parts.verifications
        compared = verifications.compared

        async def noted(sample: Any) -> Any:
            changes = self._changes
            result = await compared(sample)
            self._compared.append((changes, sample.plan.route_name, sample.fingerprint.digest, *result[:2]))
            return result

        verifications.compared = noted  # type: ignore[method-assign]

    async def begin(self, story: Story) -> None:
        self._earlier.clear()
        self.change(Change(Said()))
        await super().begin(story)

    async def play(self, story: Story) -> None:
        await super().play(story)
        self._played |= {self.path(number): handler for number, handler in enumerate(story.handlers)}
        self.require_no_false_quarantine()

    def require_no_false_quarantine(self) -> None:
        """Routes that read nothing that nobody can see keep their word."""
        false = {path: self._played[path] for path in self.quarantined() if not self._played[path].reads_unseen}
        assert not false, f"quarantined in vain: {false}"

    def change(self, change: Change) -> None:
        self._earlier.append(self.unseen.read())
        self._changes += 1
        super().change(change)

    async def ask(self, ask: Ask) -> Answered:
        self.clock.advance(timedelta(milliseconds=SAMPLE_EVERY_MS + 1))  # each answer may be sampled
        return await super().ask(ask)

    async def judge(self, answered: Answered) -> None:
        if await self._is_wrong(answered):
            await self._is_found_out(answered)

    async def _is_wrong(self, answered: Answered) -> bool:
        """Whether it is one of before something changed that nobody can see. Raises WrongAnswerError for others."""
        if self._mixes_states(answered) or await self.could_have_been(answered, self.unseen.read()):
            return False
        if self._handlers[answered.ask.handler].reads_unseen and not answered.diverged:
            for said in reversed(self._earlier):
                if await self.could_have_been(answered, said):
                    self.wrong += 1
                    return True
        raise WrongAnswerError(await self._told(answered))

    async def _is_found_out(self, answered: Answered) -> None:
        """Ask until the answer is right: a verification without excuse reports the wrong one, or it ended by itself."""

        async def right() -> bool:
            return not await self._is_wrong(await self.ask(answered.ask))

        await eventually(right, within_s=self.patience_s)
        path, digest = self.path(answered.ask.handler), hashlib.blake2b(answered.body, digest_size=16).hexdigest()
        findings = [
            (finding, differs) for changes, name, of, finding, differs in self._compared
            if changes == self._changes and name.endswith(path) and of == digest
        ]  # fmt: skip
        assert all(finding is not Finding.SAME for finding, _ in findings), f"{findings} of what was wrong: {answered}"
        if path in self.quarantined() or any(differs == (HIDDEN_INPUT,) for _, differs in findings):
            self.found += 1
        else:
            self.ended += 1
