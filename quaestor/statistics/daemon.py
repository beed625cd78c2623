"""Spark's Python daemon, with the source loaded before it forks workers: `python -m quaestor.statistics.daemon`.

Spark uses workers of five kinds to start a stream. None of them has anything left to import then. The import starts no thread,
so forking is safe.
"""

from __future__ import annotations

import quaestor.statistics.source  # noqa: F401

if __name__ == "__main__":
    from pyspark import daemon, worker  # noqa: F401

    daemon.manager()
