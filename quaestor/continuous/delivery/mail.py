"""E-mail digests: a batch of results as one message to one mailbox."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import format_datetime
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import aiosmtplib
from pydantic import SecretStr

from quaestor.continuous.delivery.batch import ResultBatch, moment, to_json
from quaestor.continuous.delivery.sink import DeliveryError
from quaestor.errors import ConfigurationError

_MOST_ROWS: Final = 200
"""Rows that a message shows; it names the number of the others."""
_LONGEST_LINE: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MailServer:
    """SMTP server that takes the messages.

    tls: from the first byte; otherwise STARTTLS where the server offers it.
    user, password: empty: without authentication.
    """

    host: str
    port: int
    tls: bool
    user: str
    password: SecretStr

    @classmethod
    def from_url(cls, url: str) -> MailServer:
        """Return the server of smtp://[user:password@]host[:port], or smtps://... Raises ConfigurationError."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise ConfigurationError("the setting mail_server is no URL: smtp://user:password@host:port") from error
        if parts.scheme not in ("smtp", "smtps") or not parts.hostname:
            raise ConfigurationError("the setting mail_server must be smtp://user:password@host:port, or smtps://...")
        tls = parts.scheme == "smtps"
        return cls(
            host=parts.hostname,
            port=port or (465 if tls else 587),
            tls=tls,
            user=unquote(parts.username or ""),
            password=SecretStr(unquote(parts.password or "")),
        )


class MailSink:
    """Mailbox. Implements Sink.

    to, sender: addresses like `ann@example.org`.
    timeout_s: for one whole delivery.

    A repeated message has the same Message-ID, so mail programs can show it once.
    """

    kind = "mail"

    def __init__(self, to: str, *, sender: str, server: MailServer, timeout_s: float = 10.0) -> None:
        self.name = f"mailto:{to}"
        self._to, self._sender = _address(to), _address(sender)
        self._server = server
        self._timeout_s = timeout_s

    async def deliver(self, batch: ResultBatch) -> None:
        """See Sink."""
        server = self._server
        try:
            async with asyncio.timeout(self._timeout_s):
                await aiosmtplib.send(
                    self._message(batch),
                    hostname=server.host,
                    port=server.port,
                    use_tls=server.tls,
                    username=server.user or None,
                    password=server.password.get_secret_value() or None,
                    timeout=self._timeout_s,
                )
        except (TimeoutError, aiosmtplib.SMTPTimeoutError) as error:
            raise DeliveryError(
                f"{server.host} did not take the message for {self.name} within {self._timeout_s:g} s", reason="timeout"
            ) from error
        except (aiosmtplib.SMTPResponseException, aiosmtplib.SMTPRecipientsRefused) as error:
            code = _code(error)
            raise DeliveryError(
                f"{server.host} refused the message for {self.name} with {code}",
                reason="mail-refused",
                retryable=code < 500,
            ) from error
        except (aiosmtplib.SMTPException, OSError) as error:
            raise DeliveryError(f"{server.host} broke off: {error!r}", reason="unreachable") from error

    def _message(self, batch: ResultBatch) -> EmailMessage:
        count = len(batch.rows)
        message = EmailMessage()
        message["From"], message["To"] = self._sender, self._to
        message["Subject"] = f"{batch.query}: {count} {'result' if count == 1 else 'results'}"
        message["Date"] = format_datetime(datetime.fromtimestamp(batch.instant // 1_000_000, UTC))
        digest = hashlib.sha256(f"{batch.key} {self.name}".encode()).hexdigest()[:40]
        message["Message-ID"] = f"<{digest}@{self._sender.domain}>"
        message["Auto-Submitted"] = "auto-generated"
        message["X-Quaestor-Key"] = batch.key
        message.set_content("\n".join(_lines(batch)) + "\n")
        return message


def _lines(batch: ResultBatch) -> list[str]:
    """Return the text of a digest: a row is a block of `column: value` lines."""
    lines = [f"Results of {batch.query} until {moment(batch.instant)}."]
    for row in batch.rows[:_MOST_ROWS]:
        lines.append("")
        lines += [f"{column}: {_text(value)}"[:_LONGEST_LINE] for column, value in row.items()]
    if len(batch.rows) > _MOST_ROWS:
        lines += ["", f"{len(batch.rows) - _MOST_ROWS} more: quaestor continuous results {batch.query}"]
    return lines


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else to_json(value).strip('"')
    return " ".join(text.splitlines())


def _address(text: str) -> Address:
    try:
        address = Address(addr_spec=text)
    except (ValueError, IndexError, MessageError) as error:
        raise ConfigurationError(f"{text!r} is no mail address: {error}") from error
    if not address.username or not address.domain or not text.isascii() or not text.isprintable():
        raise ConfigurationError(f"{text!r} is no mail address: write name@domain")
    return address


def _code(error: aiosmtplib.SMTPResponseException | aiosmtplib.SMTPRecipientsRefused) -> int:
    if isinstance(error, aiosmtplib.SMTPRecipientsRefused):
        return max((refused.code for refused in error.recipients), default=550)
    return error.code
