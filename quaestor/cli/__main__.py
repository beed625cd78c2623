"""Module to run with `python -m quaestor.cli`, which does the same as `quaestor`."""

from quaestor.cli.main import main

if __name__ == "__main__":
    main()
