"""Commands `quaestor invalidate`, `quaestor sketch` and `quaestor status`, which call the admin API of a proxy or application."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from quaestor.cli.plain_text import printable
from quaestor.errors import ConfigurationError

AdminUrl = Annotated[
    str, typer.Option("--admin", metavar="URL", envvar="QUAESTOR_ADMIN_URL", help="The proxy or application to ask.")
]
TokenFile = Annotated[
    Path | None, typer.Option("--token-file", help="File with the admin token; default: $QUAESTOR_ADMIN_TOKEN.")
]


def invalidate(
    tag: Annotated[
        list[str] | None, typer.Option("--tag", help="Answers that carry this tag; may be repeated.")
    ] = None,
    url: Annotated[
        list[str] | None, typer.Option("--url", help="https://shop.example/items, or /items on every host; repeatable.")
    ] = None,
    collection: Annotated[
        list[str] | None, typer.Option("--collection", help="database.collection or database.*; repeatable.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Everything.")] = False,
    admin: AdminUrl = "http://127.0.0.1:8080",
    token_file: TokenFile = None,
) -> None:
    """Invalidate by tag, URL or collection, everywhere: in every process, in CDNs and in browsers."""
    from quaestor.admin.client import AdminClient
    from quaestor.admin.token import read_token

    if not (tag or url or collection or everything):
        raise ConfigurationError("nothing to invalidate: pass --tag, --url, --collection or --all")
    client = AdminClient(admin, read_token(token_file))
    answer = client.purge(tags=tag or [], urls=url or [], collections=collection or [], all=everything)
    print(json.dumps(answer["purged"]))


def sketch(
    off: Annotated[
        bool,
        typer.Option("--off/--on", help="Clients send every request to the network, or use the answers they keep."),
    ],
    admin: AdminUrl = "http://127.0.0.1:8080",
    token_file: TokenFile = None,
) -> None:
    """Switch clients that keep answers off, or on again: every tab and every process within the sketch's refresh interval."""
    from quaestor.admin.client import AdminClient
    from quaestor.admin.token import read_token

    answer = AdminClient(admin, read_token(token_file)).sketch(off=off)
    if answer["by_setting"] and not off:
        print("still off: the setting sketch_off is on; start the processes without it")
        raise typer.Exit(1)
    print("off" if off else "on")


def status(
    admin: AdminUrl = "http://127.0.0.1:8080",
    token_file: TokenFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Show the state of a running proxy or application. Exit status 1: nothing is served from its cache."""
    from quaestor.admin import status_text
    from quaestor.admin.client import AdminClient
    from quaestor.admin.token import read_token

    answer = AdminClient(admin, read_token(token_file)).status()
    print(json.dumps(answer) if as_json else printable(status_text.text(answer)))
    raise typer.Exit(0 if answer["serving"] else 1)
