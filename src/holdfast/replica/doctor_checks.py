"""What `holdfast doctor` checks of a replica: access, owner, moments, clock, transport, keys, and rights by a probe."""

import ipaddress
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from holdfast.base.bucket import Bucket, ObjectMissing
from holdfast.base.checked_json import read_checked
from holdfast.base.errors import HoldfastError, ReplicaError
from holdfast.base.files import SystemFiles
from holdfast.base.units import format_duration, format_size, format_time, plural
from holdfast.doctor import BAD, OK, WARN, Check
from holdfast.replica.bucket import ObjectStorageBucket, open_bucket
from holdfast.replica.identity import REPLICA_FILE
from holdfast.replica.manifest import Moment, list_moments, read_manifest
from holdfast.replica.owner import OWNER, OwnerRecord, read_owner
from holdfast.replica.status import ReplicaStatus
from holdfast.table_registry import TABLES

__all__ = ["check_replica"]

_SKEW_S, _BAD_SKEW_S = 120.0, 600.0
"""S3 refuses requests from 15 minutes on."""


@runtime_checkable
class _Dated(Protocol):
    """A bucket that says when an object was written, by its own clock."""

    def modified(self, key: str) -> int:
        """Return nanoseconds since 1970."""
        ...


def check_replica(
    url: str | None,
    data: Path,
    *,
    status: ReplicaStatus | None = None,
    is_served: bool = False,
    lag_limit: float = 60.0,
    probe: bool = False,
) -> Iterator[Check]:
    """Check the replica that the settings name, None if they name none, of the store in the folder `data`.

    `status` is that of the process that serves the store, for a check inside of it; `is_served`: another process
    serves it, whose credentials may be others. `probe` writes and deletes an object of 20 bytes below the prefix.
    """
    if url is None:
        yield Check("replica", OK, "none: what a backup does not have is lost with the disk")
        return
    try:
        bucket = open_bucket(url)
        yield _check_transport(bucket)
        moments = list_moments(bucket)
        owner = read_owner(bucket)
    except HoldfastError as error:
        if is_served and status is None:
            yield Check(
                "replica", WARN, f"cannot be reached by this command: {error}",
                "The server may have other credentials: see GET /api/holdfast/replica, or the page.",
            )  # fmt: skip
        else:
            yield Check("replica", BAD, str(error), "Correct what the message names: nothing is shipped.")
    else:
        yield Check("replica", OK, f"{bucket.url} can be listed and read")
        yield _check_owner(owner, data)
        yield _check_moments(bucket, moments, status, lag_limit)
        yield from _check_clock(bucket, owner)
        if probe:
            yield _probe(bucket)
        else:
            yield _writes(status)
    if status is not None and (status.error is not None or status.role == "fenced"):
        since = "" if status.failing_since is None else f", since {format_time(status.failing_since)} UTC"
        found = status.error or "it was lost to another process"
        yield Check("replica shipping", BAD, f"{found}{since}", "Records wait on the local disk meanwhile.")
    yield _check_keys(data)


def _check_owner(owner: OwnerRecord | None, data: Path) -> Check:
    store, instance = _ids(data)
    if owner is None:
        return Check("replica owner", OK, "nobody has shipped to it yet")
    found = f"{owner.place}, epoch {owner.epoch}, renewed {format_time(owner.time)} UTC by its clock"
    if store and owner.store != store:
        return Check("replica owner", BAD, f"the replica of another store: {found}", "Choose another prefix.")
    if owner.released:
        return Check("replica owner", OK, f"nobody now; it was {found}")
    if instance and owner.instance != instance:
        return Check(
            "replica owner", WARN, f"another folder: {found}",
            "If that process runs, this store cannot be shipped: compare both stores before you use either.",
        )  # fmt: skip
    return Check("replica owner", OK, f"this store: {found}" if instance else found)


def _check_moments(bucket: Bucket, moments: list[Moment], status: ReplicaStatus | None, limit: float) -> Check:
    if not moments:
        return Check("replica moments", WARN, "none: nothing can be restored", "Start the server: it ships the store.")
    newest = moments[-1]
    try:
        size = format_size(read_manifest(bucket, newest).size)
    except ReplicaError as error:
        return Check("replica moments", BAD, str(error), "Run holdfast replica verify.")
    except HoldfastError as error:  # damaged, or of a newer version
        return Check("replica moments", BAD, str(error), "Run holdfast replica verify; restore an earlier moment.")
    found = f"{len(moments)}, the newest {newest.name} of {format_time(newest.time)} UTC with {size}"
    if status is not None:
        found += f"; {format_duration(status.lag_seconds)} and {plural(status.lag_records, 'record')} behind"
        if limit and status.lag_seconds > limit:
            return Check("replica moments", WARN, found, "A loss of this machine would lose that much.")
        if status.lost_records:
            found += f"; {plural(status.lost_records, 'record')} left a full disk before they were shipped"
            return Check("replica moments", WARN, found, "Give the disk more space, or the bucket more bandwidth.")
    return Check("replica moments", OK, found)


def _check_clock(bucket: Bucket, owner: OwnerRecord | None) -> Iterator[Check]:
    """Compare the clock of the last owner with that of the storage: both dated the last renewal."""
    if owner is None or not isinstance(bucket, _Dated):
        return
    try:
        skew = (owner.time - bucket.modified(OWNER)) / 1e9
    except ObjectMissing:
        return
    found = f"that of the owner and that of the storage differ by {format_duration(abs(skew))}"
    if abs(skew) < _SKEW_S:
        yield Check("replica clock", OK, "that of the owner and that of the storage agree")
    else:
        state = BAD if abs(skew) >= _BAD_SKEW_S else WARN
        advice = "Set the clock of the owner by a time server: S3 refuses requests that are 15 minutes off."
        yield Check("replica clock", state, found, advice)


def _check_transport(bucket: Bucket) -> Check:
    if isinstance(bucket, ObjectStorageBucket) and bucket.is_plain and not _is_loopback(bucket.host):
        return Check(
            "replica transport", WARN, f"requests to {bucket.host} are sent without TLS",
            "Messages can be read on the network: use an endpoint with https.",
        )  # fmt: skip
    return Check("replica transport", OK, "encrypted, or on this machine")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _writes(status: ReplicaStatus | None) -> Check:
    if status is not None and status.role == "owner" and status.error is None:
        return Check("replica rights", OK, f"this server writes: {plural(status.puts, 'object')} since its start")
    return Check("replica rights", OK, "writing and deleting were not tried: holdfast doctor --probe-replica does")


def _probe(bucket: Bucket) -> Check:
    """Try everything that shipping needs with one small object, which is deleted again."""
    key = f"probe/{os.urandom(8).hex()}"
    step = "write"
    content, other = b"holdfast doctor: one", b"holdfast doctor: two"
    try:
        etag = bucket.put_if_absent(key, content)
        step = "write conditionally"
        works = etag is not None and bucket.put_if_absent(key, other) is None
        works = works and bucket.compare_and_swap(key, other, etag or "") is not None
        works = works and bucket.compare_and_swap(key, content, etag or "") is None
        step = "read"
        works = works and bucket.get(key).content == other
        step = "list"
        listed = [one.key for one in bucket.list("probe/")]
        step = "delete"
        bucket.delete([key])
    except ReplicaError as error:
        if step != "write":
            _clear(bucket, key)
        return Check("replica rights", BAD, f"cannot {step}: {error}", "Give the user this permission.")
    if not works:
        return Check(
            "replica rights", BAD, "the storage ignores the conditions of conditional writes",
            "Use another storage, or a newer version of it: two processes could own the replica at once.",
        )  # fmt: skip
    if key not in listed:
        return Check("replica rights", WARN, "a listing lacks an object that was just written", "Listings lag there.")
    return Check("replica rights", OK, "an object was written, replaced, read, listed and deleted; conditions hold")


def _clear(bucket: Bucket, key: str) -> None:
    try:
        bucket.delete([key])
    except ReplicaError:
        return  # the check reports why; the owner collects the object


def _check_keys(data: Path) -> Check:
    sealed = []
    for folder in SystemFiles().list(data / TABLES):
        try:
            if _has_sensitive(json.loads((data / TABLES / folder / "table.json").read_text())):
                sealed.append(folder)
        except (OSError, ValueError):  # other checks report it
            continue
    if sealed:
        tables = f"the table {sealed[0]!r}" + (f" and {len(sealed) - 1} more" if len(sealed) > 1 else "")
        return Check(
            "replica keys", WARN, f"{tables} has encrypted fields, and keyrings are not shipped",
            "Keep a copy of the keyring elsewhere: without it these fields of a restored store cannot be read.",
        )  # fmt: skip
    return Check("replica keys", OK, "no table has encrypted fields")


def _has_sensitive(content: Any) -> bool:
    if isinstance(content, dict):
        return content.get("sensitive") is True or any(map(_has_sensitive, content.values()))
    return isinstance(content, list) and any(map(_has_sensitive, content))


def _ids(data: Path) -> tuple[str, str]:
    """Return the ids under which the store in this folder is shipped; empty if it was not yet."""
    try:
        known = read_checked(SystemFiles(), data / REPLICA_FILE)
        return str(known.get("store", "")), str(known.get("instance", ""))
    except (OSError, ValueError):
        return "", ""
