"""Refusal of tables in Spark's catalog: Spark 4.3 does not pass their options to a Python source."""

from collections.abc import Mapping

from holdfast.base.errors import InvalidArgument

__all__ = ["refuse_catalog_table"]

_PROPERTIES = frozenset({"location", "owner", "provider", "external", "is_managed_location"})
"""What Spark adds to the options of a table when it is created."""
_INSTEAD = (
    "Spark does not pass the options of CREATE TABLE ... USING holdfast to the source. Use CREATE TEMPORARY VIEW name "
    "USING holdfast OPTIONS (path '...', log '...') to read, or holdfast.spark.refresh_view; to write, "
    'df.write.format("holdfast").option(...).mode("append").save()'
)


def refuse_catalog_table(options: Mapping[str, str]) -> None:
    """Raise `InvalidArgument` if the options, in lower case, are those of a table in Spark's catalog.

    When it is created, they have its properties; later, there are none.
    """
    if _PROPERTIES & options.keys():
        raise InvalidArgument(f"a table in Spark's catalog cannot be of the format holdfast: {_INSTEAD}")
    if not any("." not in name and not name.startswith("__") for name in options):
        raise InvalidArgument(
            f"no options were given, not even 'path'; if this is a table in Spark's catalog, it cannot be used: "
            f"{_INSTEAD}"
        )
