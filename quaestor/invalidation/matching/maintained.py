"""The former place of `ResultEvent` and `replay`: import them from `quaestor`."""

import warnings

from quaestor.incremental import ResultEvent, replay

__all__ = ["ResultEvent", "replay"]

warnings.warn("import ResultEvent and replay from quaestor", DeprecationWarning, stacklevel=2)
