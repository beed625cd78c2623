"""`python -m quaestor.cli`: the same as `quaestor`."""

from quaestor.cli.main import main

if __name__ == "__main__":
    main()
