"""How much memory does reading a whole log take? Run in a process of its own, so that nothing else counts.

Two figures: private memory without the mapped file (what the process itself holds on to), and with it. Mapped pages are
the page cache's, shared with every other reader and given back when memory is short; while only one process maps them,
Linux counts them as private all the same.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import holdfast

__all__ = ["ReadMemory", "measure_reading", "private_memory"]

_BATCH = 1000
_SAMPLES = 200
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class ReadMemory:
    """The most that reading added at any time, in MiB."""

    records: int
    own_mib: float
    """Anonymous memory: what would go to swap."""
    private_mib: float
    """Private_Clean + Private_Dirty, with the pages of the mapped segment that no other process maps now."""


def measure_reading(store: Path, log: str) -> ReadMemory:
    """Read all of a log by `read_many` in a fresh process and say what that added."""
    command = [sys.executable, "-m", "benchmarks.memory", str(store.resolve()), log]
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True, check=True)
    return ReadMemory(**json.loads(done.stdout))


def private_memory() -> tuple[int, int]:
    """Bytes of this process: anonymous ones, and all private ones with the pages of files that only it maps."""
    fields = {}
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]:
        name, value, _unit = line.split()
        fields[name] = int(value) * 1024
    return fields["Anonymous:"], fields["Private_Clean:"] + fields["Private_Dirty:"]


def _read(store: str, name: str) -> ReadMemory:
    with holdfast.open(store, read_only=True) as hf:
        log = hf.log(name)
        tailer = log.tailer()
        every = max(1, (log.end - log.start) // _BATCH // _SAMPLES)
        private_memory()
        own_before, private_before = private_memory()
        own_most, private_most = own_before, private_before
        records = batches = 0
        while found := tailer.read_many(_BATCH):
            records += len(found)
            batches += 1
            if batches % every == 0:
                own, private = private_memory()
                own_most, private_most = max(own_most, own), max(private_most, private)
        assert records == log.end - log.start
    return ReadMemory(records, (own_most - own_before) / _MIB, (private_most - private_before) / _MIB)


if __name__ == "__main__":
    found = _read(*sys.argv[1:])
    print(json.dumps({"records": found.records, "own_mib": found.own_mib, "private_mib": found.private_mib}))
