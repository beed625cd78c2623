"""Generated questions, seed after seed, to which mongod and this code have to give the same answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

_SHOWN = 5


def require_none(
    ask: Callable[[int], tuple[int, list[str]]], seeds: Iterable[int], *, questions: int, share: float = 0.25
) -> None:
    """Fails with the first few disagreements of all seeds, or if too little was found to mean much.

    ask: from a seed to how many of its questions found something, and what was answered differently; questions: how many it
    asks for each seed; share: of them has to find something.
    """
    disagreements, questions_asked = 0, 0
    wrong: list[str] = []
    for seed in seeds:
        some, different = ask(seed)
        disagreements += some
        questions_asked += questions
        wrong.extend(different)
    assert not wrong, f"{len(wrong)} disagreements, the first of them:\n" + "\n".join(wrong[:_SHOWN])
    assert disagreements > questions_asked * share, (
        f"only {disagreements} of {questions_asked} questions find anything: too few to mean much"
    )
