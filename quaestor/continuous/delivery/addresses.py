"""Addresses of sinks: https://... for a webhook, mailto:... for a mailbox, file:... for a file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from quaestor.continuous.delivery.file import FileSink
from quaestor.continuous.delivery.mail import MailServer, MailSink
from quaestor.continuous.delivery.networks import Networks
from quaestor.continuous.delivery.sink import Sink, shown
from quaestor.continuous.delivery.webhook import WebhookSink
from quaestor.errors import ConfigurationError
from quaestor.settings.continuous import ContinuousSettings

_FILE_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")


def sink_of(address: str, settings: ContinuousSettings) -> Sink:
    """Return the sink of an address. Raises ConfigurationError for an unknown kind, or a missing setting."""
    timeout_s = settings.delivery_timeout_ms / 1_000
    scheme, _, rest = address.partition(":")
    if scheme in ("https", "http"):
        if not settings.webhook_key:
            raise ConfigurationError(
                f"{shown(address)} needs the setting webhook_key: whsec_ and base64 of 24 to 64 bytes"
            )
        return WebhookSink(
            address,
            key=SecretStr(settings.webhook_key),
            networks=Networks(settings.webhook_networks),
            timeout_s=timeout_s,
        )
    if scheme == "mailto":
        if not settings.mail_server or not settings.mail_from:
            raise ConfigurationError(f"{address} needs the settings mail_server and mail_from")
        server = MailServer.from_url(settings.mail_server)
        return MailSink(rest, sender=settings.mail_from, server=server, timeout_s=timeout_s)
    if scheme == "file":
        return FileSink(address, _path(address, rest, settings))
    raise ConfigurationError(f"{address!r} is no address of a sink: write https://..., mailto:... or file:NAME")


def _path(address: str, name: str, settings: ContinuousSettings) -> Path:
    if not settings.delivery_folder:
        raise ConfigurationError(f"{address} needs the setting delivery_folder")
    if not _FILE_NAME.fullmatch(name):
        raise ConfigurationError(
            f"{address!r}: the name of the file has letters, digits, dots, '_' and '-' only, like file:offers.ndjson"
        )
    return Path(settings.delivery_folder, name)
