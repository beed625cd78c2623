from __future__ import annotations

import tests.unhurried  # noqa: F401
