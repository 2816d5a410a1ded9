"""Requests to a standby to take over by hand, in the object `promote.json`."""

from dataclasses import asdict, dataclass

from holdfast.base.bucket import Bucket, ObjectMissing
from holdfast.base.checked_json import decode_checked, encode_checked
from holdfast.base.errors import NewerFormat, ReplicaError

__all__ = ["PROMOTE", "PromotionRequest", "put_request", "read_request"]

PROMOTE = "promote.json"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class PromotionRequest:
    """Somebody wants a standby to take over."""

    epoch: int
    """The epoch of the owner that is to be replaced: with another owner the request is void."""
    force: bool
    """Whether the owner is asked to hand over if it lives."""
    standby: str
    """The id of the standby that is to take over; empty for any."""
    by: str
    """Host and process that asked."""
    time: int
    """Nanoseconds since 1970, for people."""


def put_request(bucket: Bucket, request: PromotionRequest) -> None:
    """Ask. A later request replaces an earlier one."""
    bucket.put(PROMOTE, encode_checked({"format": _FORMAT, **asdict(request)}))


def read_request(bucket: Bucket) -> PromotionRequest | None:
    """Return the last request; None if there was none. Raises `ReplicaError` if it is damaged."""
    try:
        found = bucket.get(PROMOTE)
    except ObjectMissing:
        return None
    where = f"{bucket.url}/{PROMOTE}"
    try:
        content = decode_checked(found.content)
        if content["format"] > _FORMAT:
            raise NewerFormat(f"{where} was written by a newer Holdfast: update this one")
        return PromotionRequest(**{name: content[name] for name in PromotionRequest.__dataclass_fields__})
    except (ValueError, KeyError, TypeError) as error:
        raise ReplicaError(f"{where} is damaged: delete the object, and promote again") from error
