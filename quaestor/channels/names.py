"""Names of feeds and brokers."""

from __future__ import annotations

import re
from typing import Final

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}", re.ASCII)
