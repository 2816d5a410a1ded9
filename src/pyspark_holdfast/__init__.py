"""Lets Spark find `format("holdfast")` by name alone: it looks into every module whose name starts with `pyspark_`."""

from holdfast.spark.source import HoldfastSource as DefaultSource

__all__ = ["DefaultSource"]
