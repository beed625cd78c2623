"""Keys of answers: the target, and the request fields that the answer varies by."""

from __future__ import annotations

from dataclasses import replace

from quaestor.read_path import asked_fields, partial_answers, vary
from quaestor.read_path.answered import AnsweredRequest
from quaestor.read_path.asked_fields import EVERYTHING, WHOLES
from quaestor.read_path.entries import Answer
from quaestor.read_path.local_store import LocalStore
from quaestor.read_path.variant_key import covered
from quaestor.read_path.vary import Variants


class AnswerKeys:
    """Keys of answers; one per read path. Use from one event loop."""

    def __init__(self, variants: Variants, store: LocalStore) -> None:
        self._variants = variants
        self._store = store

    @property
    def ignored(self) -> frozenset[bytes]:
        """Request fields that never decide."""
        return self._variants.ignored

    def of(self, answer: Answer, request: AnsweredRequest, deciding: tuple[bytes, ...]) -> tuple[str | None, Answer]:
        """Return the key of an answer, None if it has none, and the answer with the deciding fields in its `Vary`.

        deciding: the fields that its handler looked up.
        """
        policy, target = request.policy, request.target
        named = vary.names(answer.headers, covered=covered(policy))
        if named is None:
            return None, answer
        variants = self._variants
        by = variants.learn(target.key, (*named, *deciding))
        if by is None and deciding:
            deciding = (asked_fields.whole(policy),)
            by = variants.learn(target.key, (*named, *deciding))
        if by is None:
            return None, answer
        key = vary.variant_key(
            target.key, by, request.headers, ignored=variants.ignored, normalised=variants.normalised
        )
        if key != target.key and self._store.resident(target.key) is not None:
            # This entry was stored before any further deciding field was known.
            self._store.drop(target.key, "outdated")
        if answer.part is not None:
            key = None if key is None else partial_answers.key_of_parts(key)
        further = [name for name in deciding if name not in named]
        if not further:
            return key, answer
        if not WHOLES.isdisjoint(further):
            further = [EVERYTHING]
        return key, replace(answer, headers=[*answer.headers, (b"vary", b", ".join(further))])
