"""E-mail digests through a real mail server."""

from __future__ import annotations

import asyncio

import pytest

from quaestor.continuous.delivery.batch import ResultBatch
from quaestor.continuous.delivery.mail import MailServer, MailSink
from quaestor.continuous.delivery.sink import DeliveryError
from quaestor.errors import ConfigurationError
from tests.continuous.delivery.receivers import mailbox, receiver

pytestmark = pytest.mark.anyio

BATCH = ResultBatch(
    query="reminders", run=7, instant=1_700_000_000_000_000, rows=[{"_id": 1, "text": "Grüße\n.\nBcc: eve@x.example"}]
)


def sink(port: int, *, to: str = "ann@shop.example", timeout_s: float = 20.0) -> MailSink:
    server = MailServer.from_url(f"smtp://127.0.0.1:{port}")
    return MailSink(to, sender="quaestor@shop.example", server=server, timeout_s=timeout_s)


async def failure(mail: MailSink) -> DeliveryError:
    with pytest.raises(DeliveryError) as raised:
        await mail.deliver(BATCH)
    return raised.value


async def test_a_digest_holds_every_row_and_its_key() -> None:
    """A row's text stays text: it ends no message and adds no header field."""
    async with mailbox() as box:
        await sink(box.port).deliver(BATCH)
    (message,) = box.messages
    assert message["to"] == "ann@shop.example"
    assert message["subject"] == "reminders: 1 result"
    assert message["x-quaestor-key"] == "reminders/7/0"
    assert message["bcc"] is None
    text = message.get_content().replace("\r\n", "\n")
    assert text == (
        "Results of reminders until 2023-11-14T22:13:20.000000Z.\n\n_id: 1\ntext: Grüße . Bcc: eve@x.example\n"
    )


async def test_a_repeated_digest_has_the_same_message_id() -> None:
    """A repeated digest keeps its message id; a digest for another receiver has another id."""
    async with mailbox() as box:
        await sink(box.port).deliver(BATCH)
        await sink(box.port).deliver(BATCH)
        await sink(box.port, to="bob@shop.example").deliver(BATCH)
    first, second, other = (message["message-id"] for message in box.messages)
    assert first == second != other


async def test_a_large_digest_names_the_rows_that_it_leaves_out() -> None:
    rows = [{"n": number} for number in range(1_000)]
    async with mailbox() as box:
        await sink(box.port).deliver(ResultBatch(query="q", run=1, instant=0, rows=rows))
    text = box.messages[0].get_content()
    assert "n: 199" in text
    assert "n: 200" not in text
    assert "800 more: quaestor continuous results q" in text


@pytest.mark.parametrize(("answer", "is_retryable"), [("450 later", True), ("550 no such user", False)])
async def test_a_refused_recipient_is_tried_again_only_after_a_temporary_answer(
    answer: str, is_retryable: bool
) -> None:
    async with mailbox(answer) as box:
        error = await failure(sink(box.port))
    assert (error.reason, error.retryable) == ("mail-refused", is_retryable)
    assert box.messages == []


async def test_a_mail_server_that_hangs_is_left_after_the_time_limit() -> None:
    """The receiver of HTTP never greets, so the delivery waits for nothing."""
    async with receiver() as server:
        error = await failure(sink(server.port, timeout_s=0.2))
    assert (error.reason, error.retryable) == ("timeout", True)


async def test_a_closed_port_is_a_failure_that_may_pass() -> None:
    listening = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    assert (await failure(sink(port))).reason == "unreachable"
    listening.close()
    assert (await failure(sink(port))).reason == "unreachable"


@pytest.mark.parametrize("address", ["", "ann", "ann@", "a\r\nBcc: b@c", "@x", "ann@shop.example\n"])
def test_a_malformed_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigurationError, match="no mail address"):
        sink(25, to=address)


@pytest.mark.parametrize("url", ["http://a", "smtp://", "smtp://a:b"])
def test_a_malformed_server_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigurationError, match="mail_server"):
        MailServer.from_url(url)


def test_a_server_has_the_port_of_its_kind() -> None:
    assert MailServer.from_url("smtps://u%40x:p@mail.example") == MailServer(
        host="mail.example", port=465, tls=True, user="u@x", password=MailServer.from_url("smtp://u:p@a").password
    )
    assert MailServer.from_url("smtp://mail.example").port == 587
