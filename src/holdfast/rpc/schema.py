"""The Cap'n Proto schemas of the RPC server, loaded once from the files next to this module.

Cap'n Proto keeps every schema of a process by its id forever, and a second loading from elsewhere must agree with it:
so the files are loaded only here.
"""

from pathlib import Path
from typing import Any

import capnp

__all__ = ["HOLDFAST", "QUEUEBER", "SCHEMAS"]

capnp.remove_import_hook()  # otherwise every `import` of the process would search for schemas

SCHEMAS = Path(__file__).parent
"""The folder of the files, for clients that load them too."""
QUEUEBER: Any = capnp.load(str(SCHEMAS / "queueber.capnp"))
HOLDFAST: Any = capnp.load(str(SCHEMAS / "holdfast.capnp"))
