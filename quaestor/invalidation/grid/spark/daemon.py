"""Spark's Python daemon, with the grid's code loaded before it forks workers.

The replacement of a killed worker then has nothing to import: it matches again within a fraction of the time. The workers of an
executor share the memory of the code. The import starts no thread, so forking is safe.
"""

from __future__ import annotations

import quaestor.invalidation.grid.tasks  # noqa: F401

if __name__ == "__main__":
    from pyspark import daemon, worker  # noqa: F401

    daemon.manager()
