"""`quaestor settings`, called as a user would: every setting, its source, and no password."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from quaestor.cli.main import app as command_line
from quaestor.settings import Settings
from quaestor.settings.sources import Source, in_use
from quaestor.settings.whole import setting_rows
from tests.docs.blocks import ROOT

APP = """
from fastapi import FastAPI
from quaestor import Quaestor, QuaestorMiddleware, Settings

made = Quaestor(memory_bytes=5)
read = Quaestor.from_env(memory_bytes=5)
app = FastAPI()
app.add_middleware(QuaestorMiddleware, quaestor=read)
bare = FastAPI()
"""


def run(*arguments: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("QUAESTOR_", "MONGO_", "REDIS_"))}
    return subprocess.run(
        [sys.executable, "-m", "quaestor.cli", "settings", *arguments],
        cwd=cwd, capture_output=True, text=True, timeout=60, check=False, env=kept | environment,
    )  # fmt: skip


def printed(*arguments: str, cwd: Path = ROOT, **environment: str) -> dict[str, dict[str, Any]]:
    """The settings that the command prints with --json, by name."""
    done = run(*arguments, "--json", cwd=cwd, **environment)
    assert done.returncode == 0, done.stderr
    return {setting["name"]: setting for setting in json.loads(done.stdout)["settings"]}


def test_each_setting_is_printed_with_all_that_its_table_says() -> None:
    """As JSON and as text; the environment's values with their source."""
    environment = {"QUAESTOR_MEMORY_BYTES": "5", "REDIS_URL": "redis://h", "QUAESTOR_GRID": "0"}
    settings = printed(**environment)
    assert settings.keys() == setting_rows().keys()
    assert settings["memory_bytes"] == {
        "name": "memory_bytes", "group": "store", "value": 5, "source": "environment", "default": 67108864,
        "variable": "QUAESTOR_MEMORY_BYTES", "type": "whole number", "unit": "bytes", "lowest": 0, "highest": 1024**5,
        "excluded": [], "choices": [], "sentence": "Budget of the store in each process.",
    }  # fmt: skip
    changed = {name for name, setting in settings.items() if setting["source"] == "environment"}
    assert changed == {"memory_bytes", "redis_url", "grid"}
    assert printed("--changed", **environment).keys() == changed
    text = run(**environment).stdout
    for name, row in setting_rows().items():
        assert re.search(rf"^  {name} ", text, re.MULTILINE)
        assert row.sentence.split()[0] in text


def test_an_apps_settings_are_printed_without_its_start(tmp_path: Path) -> None:
    """An app, or a Quaestor; variables count only where the program reads them."""
    (tmp_path / "shop.py").write_text(APP)
    for name, source in (("app", "environment"), ("read", "environment"), ("made", "default")):
        settings = printed("--app", f"shop:{name}", cwd=tmp_path, QUAESTOR_TTL_MIN_MS="7")
        assert (settings["memory_bytes"]["value"], settings["memory_bytes"]["source"]) == (5, "argument")
        assert settings["ttl_min_ms"]["source"] == source
        assert settings["ttl_min_ms"]["value"] == (7 if source == "environment" else 1_000)
    refused = run("--app", "shop:bare", cwd=tmp_path)
    assert refused.returncode == 2
    assert "name the object itself, as in shop.main:quaestor" in refused.stderr


def test_an_argument_that_wins_over_its_variable_is_an_argument() -> None:
    """The source is the argument also if it equals the default."""
    environment = {"QUAESTOR_RETENTION_MS": "5", "QUAESTOR_HEARTBEAT_MS": "100"}
    settings = Settings.from_env(environment, retention_ms=60_000)
    sources = {setting.row.name: setting.source for setting in in_use(settings, environment)}
    assert sources["retention_ms"] is Source.ARGUMENT
    assert sources["heartbeat_ms"] is Source.ENVIRONMENT


@pytest.mark.parametrize(
    "url",
    [
        "mongodb://ann:geheim@h/?replicaSet=rs0",
        "mongodb://ann:ge@heim:geheim@h/",
        "mongodb://h/?tlsCertificateKeyFilePassword=geheim&a=1",
        "mongodb://h/?authMechanismProperties=AWS_SESSION_TOKEN:geheim",
        "redis://:geheim@h:6379/0",
        "redis://:ge/heim:geheim@h:6379/0",
        "redis://h:6379?password=geheim",
    ],
)
def test_no_password_is_printed(url: str) -> None:
    """Neither as text nor as JSON; the rest of the URL stays."""
    for name in ("MONGO_URL", "REDIS_URL", "QUAESTOR_CDN_ADDRESSES"):
        text = f"a={url}" if name == "QUAESTOR_CDN_ADDRESSES" else url
        for arguments in (["settings"], ["settings", "--json"]):
            done = CliRunner().invoke(command_line, arguments, env={name: text})
            assert done.exit_code == 0
            assert "***" in done.stdout
            assert "heim" not in done.stdout


def test_a_wrong_setting_is_one_sentence() -> None:
    """A misspelt variable, a value outside its bounds, an unknown name."""
    for arguments, environment, sentence in (
        (
            (),
            {"QUAESTOR_MEMORY_BITES": "5"},
            "unknown setting QUAESTOR_MEMORY_BITES; did you mean QUAESTOR_MEMORY_BYTES?",
        ),
        ((), {"QUAESTOR_MEMORY_BYTES": "-5"}, "memory_bytes=-5 is below the lowest value 0"),
        (("memory_bites",), {}, "did you mean 'memory_bytes'?"),
    ):
        done = run(*arguments, **environment)
        assert (done.returncode, done.stdout) == (2, "")
        assert sentence in done.stderr
        assert done.stderr.count("\n") == 1


def test_the_reference_shows_what_the_command_prints() -> None:
    """The transcript of docs/reference/settings.md, run."""
    page = (ROOT / "docs/reference/settings.md").read_text()
    block = re.search(r"```console\n\$ (\S+)=(\S+) quaestor settings ([^\n]*)\n(.*?)```", page, re.DOTALL)
    assert block is not None
    assert run(*block[3].split(), **{block[1]: block[2]}).stdout == block[4]
