"""The former place of `Whole` and `LiveResult`: import them from `quaestor`."""

import warnings

from quaestor.realtime.live import LiveResult, Whole

__all__ = ["LiveResult", "Whole"]

warnings.warn("import Whole and LiveResult from quaestor", DeprecationWarning, stacklevel=2)
