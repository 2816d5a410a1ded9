"""Makes the golden incoming batches of format version 1. Run once, when there was none: they are never made anew.

`python -m tests.golden.make_incoming_v1`
"""

from dataclasses import replace
from pathlib import Path

from holdfast.log.batch_inbox import BatchInbox, Manifest, PartWriter
from holdfast.log.pending_block import PendingBlock
from holdfast.testing import SimFiles
from tests.golden.files import V1

STORE = Path("store")


def make() -> dict[str, bytes]:
    """Three batches: one waits, one is being adopted, one was; the files by their names in the store."""
    files = SimFiles(1)
    incoming = BatchInbox(files, STORE)
    for batch, bodies in enumerate(([b"done"], [b"adopting", b""], [b"waiting", b"with key", b"with header"])):
        manifest = Manifest("events", None, "query", batch, 1_000 + batch)
        writer = PartWriter(incoming, manifest, None, 7)
        pending_block = PendingBlock(0, 0, 0)
        pending_block.payloads, pending_block.times = list(bodies), [0] * len(bodies)
        if batch == 2:
            pending_block.extras = {"key": {1: b"k"}, "headers": {2: {"text": "grüß", "raw": b"\xff"}}}
        writer.write(pending_block)
        manifest = replace(manifest, parts=writer.finish())
        incoming.guard().release()
        incoming.hand_over(manifest)
        if batch == 0:
            incoming.finish(incoming.begin(manifest, 0, 5_000))
        elif batch == 1:
            incoming.begin(manifest, 0, 6_000)
    return {name: data for name, data in files.snapshot().items() if not name.endswith("LOCK")}


if __name__ == "__main__":
    for name, data in make().items():
        path = V1 / "incoming" / Path(name).relative_to(STORE)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
