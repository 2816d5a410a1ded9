"""A process that writes batches to a bucket or a server as the sink does, until it is killed.

python -m tests.spark.sink_worker OPTIONS NOTES BATCHES

OPTIONS are those of the sink, as JSON. Each batch has three records. NOTES is a file to which the number of a batch is
added when its commit has returned, as in the checkpoint of a stream: the next process begins with the one behind it.
"""

import json
import sys
from pathlib import Path

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from holdfast.spark.sink import BatchWriter


def run(options: dict[str, str], notes: Path, batches: int) -> None:
    """Write the batches that are not noted."""
    done = len(notes.read_text().splitlines()) if notes.exists() else 0
    for number in range(done, batches):
        rows = pa.RecordBatch.from_pydict({"value": [b"%d.%d" % (number, part) for part in range(3)]})
        given = {**options, "txnAppId": "worker", "txnVersion": str(number)}
        writer = BatchWriter(given, from_arrow_schema(rows.schema), overwrite=False)
        writer.commit([writer.write(iter([rows]))])
        with notes.open("a") as file:
            file.write(f"{number}\n")


if __name__ == "__main__":
    print("ready", flush=True)
    run(json.loads(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
