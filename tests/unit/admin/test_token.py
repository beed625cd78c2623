"""Tokens of the admin API: access with a valid token, and the bound of wrong attempts."""

from __future__ import annotations

from pathlib import Path

import pytest

from quaestor.admin.token import FAILURES, WINDOW_MS, AdminToken, Failures, read_token
from quaestor.errors import ConfigurationError

GOOD = "5t0Zk_v1r-0mXbQeYw8LhN2dPfJ7sUaC"


@pytest.mark.parametrize(
    "text", ["", "short", "a" * 23, "a" * 40, "with spaces in it, and long enough", "zwölfundzwanzig-zeichen-x"]
)
def test_a_token_that_can_be_guessed_or_not_be_sent_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        AdminToken(text)
    assert not text or text not in str(refused.value)


def test_only_the_token_itself_is_let_in() -> None:
    token = AdminToken(GOOD)
    assert token.allows(b"Bearer " + GOOD.encode())
    assert token.allows(b"bearer  " + GOOD.encode())
    for wrong in (
        b"",
        b"Bearer",
        b"Bearer ",
        GOOD.encode(),
        b"Basic " + GOOD.encode(),
        b"Bearer " + GOOD.encode() + b"x",
        b"Bearer \xff",
    ):
        assert not token.allows(wrong)


def test_it_is_read_from_a_file_or_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(GOOD + "\n")
    assert read_token(file, {}) == GOOD
    assert read_token(None, {"QUAESTOR_ADMIN_TOKEN": GOOD}) == GOOD
    with pytest.raises(ConfigurationError, match="QUAESTOR_ADMIN_TOKEN"):
        read_token(None, {})
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_token(tmp_path / "none", {})
    with pytest.raises(ConfigurationError, match="at least 24"):
        AdminToken.load(None, {"QUAESTOR_ADMIN_TOKEN": "short"})


def test_a_client_that_is_wrong_too_often_has_to_wait_and_others_do_not() -> None:
    now_ms = 1_000_000
    failures = Failures(lambda: now_ms)
    for _ in range(FAILURES):
        assert failures.wait_ms("a") == 0
        failures.note("a")
    assert failures.wait_ms("a") == WINDOW_MS
    assert failures.wait_ms("b") == 0
    now_ms += WINDOW_MS
    assert failures.wait_ms("a") == 0
    failures.note("a")
    assert failures.wait_ms("a") == 0


def test_memory_of_clients_is_bounded() -> None:
    failures = Failures(lambda: 1)
    for number in range(10_000):
        failures.note(str(number))
    assert len(failures._counts) <= 4096
