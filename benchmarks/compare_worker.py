"""The process of `benchmarks.compare` that measures one version: arguments are the work, a folder and the source."""

import sys
from pathlib import Path

import holdfast
from benchmarks.compare import work

__all__: list[str] = []

if __name__ == "__main__":
    name, folder, source = sys.argv[1:]
    if not Path(holdfast.__file__).is_relative_to(source):
        raise SystemExit(f"{holdfast.__file__} is measured instead of {source}")
    work(name, Path(folder))
