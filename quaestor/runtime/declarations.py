"""Declarations of continuous queries on async functions of an application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """Declared query. The libraries of continuous queries are loaded at the start, not here.

    function: receives each batch of results.
    """

    text: str
    every: str
    name: str
    at_most: str
    function: Callable[[Any], Awaitable[object]]
