"""What does `python -m holdfast` do? The same as `holdfast`."""

import sys

from holdfast.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
