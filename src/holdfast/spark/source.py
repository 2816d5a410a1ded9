"""The Spark data source `format("holdfast")`: reading and writing, in batches and streams."""

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from holdfast.spark.errors import in_one_line
from holdfast.spark.options import ReadOptions
from holdfast.spark.reader import Reader
from holdfast.spark.schemas import ddl
from holdfast.spark.sink import BatchWriter, StreamWriter
from holdfast.spark.sources import view_schema
from holdfast.spark.stream import StreamReader

__all__ = ["HoldfastSource"]


class HoldfastSource(DataSource):
    """Logs, queues, lifecycles of messages and tables, as DataFrames."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return "holdfast"

    @in_one_line
    def schema(self) -> str:
        """Return the columns of the view; a schema that the user gives may narrow them."""
        return ddl(view_schema(ReadOptions.of(self.options)))

    @in_one_line
    def reader(self, schema: StructType) -> Reader:
        """Return a batch reader."""
        return Reader(self.options, schema)

    @in_one_line
    def streamReader(self, schema: StructType) -> StreamReader:
        """Return a stream reader."""
        return StreamReader(self.options, schema)

    @in_one_line
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return a batch writer."""
        return BatchWriter(self.options, schema, overwrite=overwrite)

    @in_one_line
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """Return a stream writer, which adds a repeated batch once."""
        return StreamWriter(self.options, schema, overwrite=overwrite)
