"""Types of responses that both APIs share. OpenAPI schemas are generated from them."""

from typing import Annotated, Any, Generic, TypedDict, TypeVar

from msgspec import Meta

__all__ = ["Empty", "Error", "Json", "Listener", "Page"]

T = TypeVar("T")
Json = Annotated[Any, Meta(description="Any JSON value.")]
Empty = Annotated[list[Any], Meta(max_length=0, description="Always empty.")]


class Error(TypedDict):
    """An error."""

    error: Annotated[str, Meta(description="A code for programs, such as not_found.")]
    reason: Annotated[str, Meta(description="What is wrong, and what to do.")]


class Listener(TypedDict):
    """A listener of the server."""

    protocol: str
    host: str
    port: int
    tls: bool


class Page(TypedDict, Generic[T]):
    """One page of a list."""

    items: list[T]
    page: int
    page_size: int
    page_count: int
    filtered_count: Annotated[int, Meta(description="Items that match the filter.")]
    total_count: Annotated[int, Meta(description="Items without the filter.")]
    item_count: Annotated[int, Meta(description="Items on this page.")]
