"""Plain words: sentences that a reader would have to read twice are counted, and their number only shrinks.

The rules are in plain_words.toml. Rooms that are not rewritten yet are in plain_words_left.json, with their number of faults.
`python -m tests.architecture.test_readability ROOM` prints them; `--write` lowers the numbers.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from pygments.lexers import TypeScriptLexer
from pygments.token import Comment, String

from tests.architecture.sources import ROOT, SOURCES, name_of

HERE = Path(__file__).parent
TESTS = sorted(source for folder in ("tests", "benchmarks") for source in (ROOT / folder).rglob("*.py"))
SCRIPT_ROOMS = ("clients/js/src", "clients/js/test", "clients/js/examples", "quaestor/dashboard/assets")
SCRIPTS = sorted(
    script
    for room in SCRIPT_ROOMS
    for script in (ROOT / room).rglob("*")
    if script.suffix in {".js", ".mjs", ".ts"} and not {"node_modules", "vendored"} & set(script.parts)
)
RULES = tomllib.loads((HERE / "plain_words.toml").read_text())
LEFT_FILE = HERE / "plain_words_left.json"
FIRST_WORDS = frozenset(RULES["first_words"])
CONSTRUCTIONS = {re.compile(pattern): instead for pattern, instead in RULES["constructions"].items()}
FEWEST_WORDS = 4
"""A shorter text is a name, not a sentence."""
_END_OF_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n\s*\n|\n(?=\s*[-*|#>\d])|\n(?=\s*\w+: )|\s*\|\s*")
_CODE = re.compile(r"``?[^`]*``?|\(?https?://\S+|\{[^}]*\}")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Text:
    """Text that people read. place: file and line."""

    place: str
    room: str
    text: str


def texts_of_code(source: Path) -> Iterator[Text]:
    """Docstrings, comments, and string literals of a few words: messages, help, metric descriptions.

    Other strings of a test or a benchmark are its data.
    """
    name, room = source.relative_to(ROOT), room_of(module_of(source))
    code = source.read_text()
    tree = ast.parse(code)
    nodes = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)] if is_test(source) else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield Text(f"{name}:{node.lineno}", room, node.value)
    comments = (
        (token.start[0], token.string.lstrip("#: "))
        for token in tokenize.generate_tokens(io.StringIO(code).readline)
        if token.type == tokenize.COMMENT and not token.string.startswith(("# type", "# fmt", "# noqa", "#!"))
    )
    for line, text in paragraphs(comments):
        yield Text(f"{name}:{line}", room, text)


def paragraphs(comments: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
    """Join comments on consecutive lines. Each comment is its line and its text."""
    joined: list[tuple[int, str]] = []
    for line, text in comments:
        if joined and joined[-1][0] == line - joined[-1][1].count("\n") - 1:
            first_line, before = joined.pop()
            joined.append((first_line, f"{before}\n{text}"))
        else:
            joined.append((line, text))
    return joined


def texts_of_script(script: Path) -> Iterator[Text]:
    """Comments and messages of a JavaScript or TypeScript file. The strings of a test are its data."""
    name = str(script.relative_to(ROOT))
    room = next(room for room in SCRIPT_ROOMS if name.startswith(room))
    for line, text in texts_of_javascript(script.read_text(), messages=not room.endswith("test")):
        yield Text(f"{name}:{line}", room, text)


def texts_of_javascript(code: str, *, messages: bool) -> Iterator[tuple[int, str]]:
    """Yield each comment, and each string literal if `messages`, with its line. A template yields its literal parts."""
    line_comments: list[tuple[int, str]] = []
    for offset, kind, token in TypeScriptLexer().get_tokens_unprocessed(code):
        line = code.count("\n", 0, offset) + 1
        if kind is Comment.Multiline:
            yield line, re.sub(r"^[ \t]*\*+", "", token.removeprefix("/").removesuffix("*/"), flags=re.MULTILINE)
        elif kind is Comment.Single:
            line_comments.append((line, token.lstrip("/ ").rstrip()))
        elif messages and kind in {String.Double, String.Single, String.Backtick}:
            yield line, token.strip("\"'`")
    yield from paragraphs(line_comments)


def is_test(source: Path) -> bool:
    """Return whether a file belongs to the tests or the benchmarks."""
    return source.relative_to(ROOT).parts[0] in {"tests", "benchmarks"}


def module_of(source: Path) -> str:
    """Dotted name of the module in a file of the packages, the tests or the benchmarks."""
    return ".".join(source.relative_to(ROOT).with_suffix("").parts) if is_test(source) else name_of(source)


def room_of(module: str) -> str:
    """The room of a module: the first name below the package, below `tests` or below `benchmarks`."""
    return ".".join(module.split(".")[:2])


def texts_of_documents() -> Iterator[Text]:
    """Every document except release notes and decisions, which keep their words."""
    for document in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")):
        if document.name != "CHANGELOG.md" and document.parent.name != "adr":
            name = str(document.relative_to(ROOT))
            yield Text(name, name, _FENCE.sub("", document.read_text()))


def faults_of(text: Text) -> Iterator[str]:
    """Sentences about what a reader would stumble over in a text."""
    for sentence in _END_OF_SENTENCE.split(_CODE.sub("x", text.text)):
        words = sentence.split()
        if len(words) < FEWEST_WORDS:
            continue
        shown = " ".join(words)[:160]
        if len(words) > RULES["words_a_sentence"]:
            yield f"{text.place}: {len(words)} words: {shown}"
        if words[0].strip("*_(\"',") in FIRST_WORDS:
            yield f"{text.place}: begins with {words[0]}: {shown}"
        for pattern, instead in CONSTRUCTIONS.items():
            if pattern.search(sentence):
                yield f"{text.place}: {pattern.pattern} (write: {instead}): {shown}"


@cache
def faults() -> dict[str, list[str]]:
    """Faults by room, and by document."""
    faults_by_room: dict[str, list[str]] = {}
    of_code = (text for source in (*SOURCES, *TESTS) for text in texts_of_code(source))
    of_scripts = (text for script in SCRIPTS for text in texts_of_script(script))
    for text in (*of_code, *of_scripts, *texts_of_documents()):
        faults_by_room.setdefault(text.room, []).extend(faults_of(text))
    return faults_by_room


def left() -> dict[str, int]:
    """Numbers of faults that rooms may have until they are rewritten. A room that is not named has none."""
    numbers: dict[str, int] = json.loads(LEFT_FILE.read_text())
    return numbers


ROOMS = {room_of(module_of(source)) for source in (*SOURCES, *TESTS)} | set(SCRIPT_ROOMS) | set(left())


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_sentences_are_read_once(room: str) -> None:
    """A room that is rewritten has no fault; another has no more than it had."""
    room_faults = faults().get(room, [])
    assert len(room_faults) <= left().get(room, 0), "\n".join(room_faults)


def test_documents_are_read_once() -> None:
    """A new document has no fault."""
    documents = {text.room for text in texts_of_documents()}
    worse = {name: faults()[name] for name in documents if len(faults().get(name, [])) > left().get(name, 0)}
    assert worse == {}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("Whoever reads it is told what it was.", "Whoever"),
        ("What is left is taken by tasks that wait.", "begins with What"),
        ("word " * (RULES["words_a_sentence"] + 1), "words"),
        ("Entries of clients that nobody asks for.", "nobody"),
    ],
)
def test_each_kind_of_riddle_is_recognised(text: str, fault: str) -> None:
    """Each kind of rule finds its example."""
    assert any(fault in name for name in faults_of(Text("here", "room", text)))


def test_comments_and_messages_of_a_script_are_recognised() -> None:
    """Comments are separated from strings, regular expressions and nested templates that look like comments."""
    code = """/**
 * Block comment
 * of two lines.
 */
const message = "a // string"; // A line comment
// and its continuation.
const pattern = /"/.test(`part ${deep ? `inner ${x} // text` : 'single /* text */'} // end`);
"""
    comments = [(5, "A line comment\nand its continuation.")]
    block = (1, "\n Block comment\n of two lines.\n ")
    strings = ["a // string", "part ", "inner ", " // text", "single /* text */", " // end"]
    assert list(texts_of_javascript(code, messages=False)) == [block, *comments]
    texts = list(texts_of_javascript(code, messages=True))
    assert [text for _, text in texts if text] == [block[1], *strings, comments[0][1]]


def test_every_room_of_scripts_has_scripts() -> None:
    """No folder of scripts is misspelt or has moved."""
    for room in SCRIPT_ROOMS:
        assert list((ROOT / room).rglob("*.?s")), room


def test_a_plain_sentence_is_no_fault() -> None:
    """Sentences of the style guide's right column."""
    for sentence in (
        "Return the largest trace written within a day of the newest.",
        "Preempt lower-priority tasks when a task they depend on has no slot.",
        "Fetch the entry; if there is none, use the newest stale one.",
        "Cache hits served since the last report.",
    ):
        assert list(faults_of(Text("here", "room", sentence))) == []


if __name__ == "__main__":
    rooms = [argument for argument in sys.argv[1:] if argument != "--write"]
    for room in rooms:
        print(*faults().get(room, []), sep="\n")
    if "--write" in sys.argv:
        numbers = {room: len(room_faults) for room, room_faults in sorted(faults().items()) if room_faults}
        before = left() or numbers
        lowered = {room: min(count, before.get(room, 0)) for room, count in numbers.items() if before.get(room, 0)}
        LEFT_FILE.write_text(json.dumps(lowered, indent=2) + "\n")
