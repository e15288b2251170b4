"""Runs the command line: ``python -m viewstamp``."""

from viewstamp.cli.main import main

if __name__ == "__main__":
    main()
