"""Entry point of `python -m holdfast`, the same as the `holdfast` command."""

import sys

from holdfast.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
