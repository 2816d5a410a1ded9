"""Test doubles for time and disk, public for users' tests too: one seed replays one run.

```python
from holdfast.testing import SimClock, SimFiles

files = SimFiles(seed=7)
store = holdfast.open("data", files=files, clock=SimClock(), background=False)
```
"""

from holdfast.testing.clock import SimClock
from holdfast.testing.crash import CRASH_MODES, Scenario, crash_points
from holdfast.testing.files import Crash, SimFiles

__all__ = ["CRASH_MODES", "Crash", "Scenario", "SimClock", "SimFiles", "crash_points"]
