"""`python -m quaestor.statistics`: the same as `quaestor statistics`."""

from __future__ import annotations

import sys

from quaestor.cli import main

if __name__ == "__main__":
    main(["statistics", *sys.argv[1:]])
