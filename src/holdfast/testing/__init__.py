"""Test doubles for time and disk, public for users' tests too: the same seed replays the same run.

```python
from holdfast.testing import SimClock, SimFiles

files = SimFiles(seed=7)
store = holdfast.open("data", files=files, clock=SimClock(), background=False)
```

A disk that fails and recovers while the process runs:

```python
files.outage(["write", "sync"], ["journal", "state"], error=errno.EIO, times=3)
files.outage(kinds=["segment"], error=errno.ENOSPC, seconds=30, clock=clock)
```
"""

from holdfast.testing.bucket import BUCKET_STOPS, BucketScenario, BucketStop, SimBucket, bucket_points
from holdfast.testing.clock import SimClock
from holdfast.testing.crash import CRASH_MODES, Scenario, crash_points
from holdfast.testing.files import Crash, SimFiles
from holdfast.testing.outages import FILE_KINDS, OPERATIONS, FileKind, Operation, Outage, kind_of

__all__ = [
    "BUCKET_STOPS",
    "CRASH_MODES",
    "FILE_KINDS",
    "OPERATIONS",
    "BucketScenario",
    "BucketStop",
    "Crash",
    "FileKind",
    "Operation",
    "Outage",
    "Scenario",
    "SimBucket",
    "SimClock",
    "SimFiles",
    "bucket_points",
    "crash_points",
    "kind_of",
]
