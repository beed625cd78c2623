"""The applications of README and tutorial answer as the documents print it, saved, served and asked as the documents print it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest

from tests.docs.blocks import ROOT, blocks
from tests.docs.transcripts import run, transcript
from tests.examples.started import uvicorn

DATABASES = {"README.md": ("airport", "airport"), "docs/tutorial.md": ("shop", "tutorial")}
"""By document: the module that its first block of Python is saved as, and the database that it uses."""
SERVER = "localhost:8000"
MONGO_URL = "mongodb://localhost:27017/?replicaSet=rs0"


@pytest.fixture
def database(request: pytest.FixtureRequest, mongo_url: str) -> Iterator[str]:
    """A document's database, empty before and after."""
    with pymongo.MongoClient[Any](mongo_url) as client:
        client.drop_database(request.param)
        yield request.param
        client.drop_database(request.param)


@pytest.mark.parametrize(
    ("document", "module", "database"),
    [(document, *names) for document, names in DATABASES.items()],
    indirect=["database"],
    ids=list(DATABASES),
)
def test_each_command_prints_its_transcript(
    document: str, module: str, database: str, mongo_url: str, tmp_path: Path
) -> None:
    """Every command prints what the document says, on documents whose ids MongoDB made."""
    first = next(block for block in blocks() if block.document == document and block.language == "python")
    assert f"client.{database}." in first.text
    (tmp_path / f"{module}.py").write_text(first.text.replace(MONGO_URL, mongo_url))
    with uvicorn(tmp_path, f"{module}:app", "--app-dir", str(tmp_path)) as url:
        addresses = {SERVER: url.removeprefix("http://"), "M()": f'M("{mongo_url}")'}
        commands = list(run(document, tmp_path, addresses))
    assert len(commands) == len(transcript(document)) >= 3


EXPLAINED = sorted(
    document.relative_to(ROOT).as_posix()
    for document in (ROOT / "docs").glob("*.md")
    if "```console\n$ quaestor explain" in document.read_text()
)


@pytest.mark.parametrize("document", EXPLAINED)
def test_explanations_are_printed_as_on_the_page(document: str, tmp_path: Path) -> None:
    """`quaestor explain` prints what the page shows."""
    assert list(run(document, tmp_path, {}))


def test_queries_are_explained_on_the_pages_of_their_semantics() -> None:
    """All four pages show how a query is matched."""
    assert [document for document in EXPLAINED if "query_semantics" in document] == EXPLAINED
    assert len(EXPLAINED) == 4


def test_tutorial_and_examples_share_no_database() -> None:
    """Documents of one would be read by the models of the other."""
    examples = Path(__file__).parents[2] / "examples"
    used = {database for _, database in DATABASES.values()}
    assert len(used) == len(DATABASES)
    for source in [*examples.glob("*.py"), *examples.glob("*/*.js")]:
        text = source.read_text()
        if "DATABASE" in text:
            assert '"examples"' in text, source
            assert not any(f'"{name}"' in text for name in used), source
