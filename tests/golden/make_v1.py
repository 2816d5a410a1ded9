"""How were the golden files of format version 1 made? By this, once; they are never made again, only read.

python -m tests.golden.make_v1 FOLDER
"""

import json
import sys
from pathlib import Path

import holdfast
from holdfast import Flush, Message, Roll
from holdfast.log.layout import HEADER_SIZE, SegmentHeader, frame, pack_segment_header
from holdfast.log.pending_block import PendingBlock, seal
from holdfast.testing import SimClock, SimFiles

GOLDEN_BYTES = 16 * 1024


def make(folder: Path) -> None:
    """Write a store with several logs, a segment with every column, and what must be read from them."""
    files = SimFiles(seed=1)
    clock = SimClock()
    expected: dict[str, list[dict[str, object]]] = {}
    with holdfast.open("store", files=files, clock=clock, background=False) as store:
        log = store.log("plain", flush=Flush.sync(), index_interval=16)
        number = 0
        while log.stats().bytes < GOLDEN_BYTES - 1100:
            clock.advance(1)
            number += 1
            log.append(b"record %d " % number * (number % 5) * 9)
            batch = [Message(b"%d" % n * n * 20, key=b"k%d" % n if n % 2 else None) for n in range(1, 6)]
            log.append_many([*batch, Message(b"", headers={"n": str(number), "raw": bytes([number % 256])}), b""])
        log.append(b"x" * (GOLDEN_BYTES - log.stats().bytes - HEADER_SIZE - 16))
        assert log.stats().bytes == GOLDEN_BYTES
        for codec in ("gzip", "zstd", "lz4"):
            log = store.log(codec, flush=Flush.sync(), compression=codec, roll=Roll.count(3))
            for number in range(4):
                log.append_many([b"%s %d " % (codec.encode(), number) * 200, b"small", b""])
        store.log("plain").tailer("audit").commit()
        for name in store.logs():
            expected[name] = [
                {
                    "sequence": record.sequence,
                    "timestamp": record.timestamp,
                    "key": record.key.hex() if record.key is not None else None,
                    "headers": {k: v if isinstance(v, str) else [v.hex()] for k, v in record.headers.items()},
                    "payload": record.payload.hex(),
                }
                for record in store.log(name).read()
            ]
    for path, content in files.snapshot().items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    (folder / "columns.data").write_bytes(every_column())


def every_column() -> bytes:
    """A segment of one block whose records use every optional column."""
    pending_block = PendingBlock(7, 0, 0)
    pending_block.payloads = [b"first", b"", b"third"]
    pending_block.times = [1_000, 2_000, 2_000]
    pending_block.extras = {
        "key": {0: b"key", 1: b""},
        "headers": {0: {"text": "grüß", "bytes": b"\x00\xff"}, 2: {"": ""}},
        "expiry": {1: 5_000_000_000},
        "priority": {0: 9, 2: 1},
        "due": {2: 3_000},
        "dedup": {0: b"order-17"},
        "producer": {0: 2**64 - 1, 1: 1},
        "number": {0: 1, 1: 2},
    }
    header = pack_segment_header(SegmentHeader(42, bytes(range(16)), 7, 999))
    return header + b"".join(frame(seal(pending_block, 0, None), HEADER_SIZE, HEADER_SIZE, 42))


if __name__ == "__main__":
    make(Path(sys.argv[1]))
