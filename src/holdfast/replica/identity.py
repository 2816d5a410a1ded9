"""The ids under which a store is shipped, kept in `replica.json` in its folder, and who claims its replica."""

import os
import socket
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holdfast.base.checked_json import read_checked, replace_checked
from holdfast.base.errors import Corrupt, raised_by_handler
from holdfast.base.files import Files
from holdfast.replica.manifest import Moment
from holdfast.replica.owner import Identity

__all__ = ["REPLICA_FILE", "StoreIds", "identity_of", "own_ids", "place_of_folder", "read_ids", "write_ids"]

REPLICA_FILE = "replica.json"
"""The file of a store with its id; in a store that was shipped, also with the id of this folder."""
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class StoreIds:
    """The content of `replica.json`."""

    store: str = ""
    instance: str = ""
    """The id of this folder; empty in a restored one until it is opened with a replica."""
    epoch: int = 0
    """The last epoch of which the folder has everything."""
    yields: bool = False
    """Whether the last claim may have promised to stop confirming at its end: see `Ownership`."""
    base: str = ""
    """After a takeover: the key of the moment that the folder was then brought to."""
    base_epoch: int = 0
    """The epoch that was claimed then. Later moments of earlier epochs do not count: a request of the owner before may
    have been delayed for long."""

    def counts(self, moment: Moment) -> bool:
        """Return whether a moment in the bucket counts for this folder."""
        base = Moment.of_key(self.base)
        return base is None or moment.epoch >= self.base_epoch or moment <= base


def read_ids(files: Files, folder: Path) -> StoreIds:
    """Return the ids of a store; empty ones if it was never shipped. Raises `Corrupt`."""
    file = folder / REPLICA_FILE
    try:
        known = read_checked(files, file)
        return StoreIds(
            str(known["store"]),
            str(known.get("instance", "")),
            int(known.get("epoch", 0)),
            known.get("yields") is True,
            str(known.get("base", "")),
            int(known.get("base_epoch", 0)),
        )
    except FileNotFoundError:
        return StoreIds()
    except (ValueError, KeyError, TypeError) as error:
        if raised_by_handler(error):
            raise
        raise Corrupt(
            f"{str(file)!r}, with the id under which this store is shipped, is damaged: delete it, and ship the store "
            "to another prefix",
            str(file),
        ) from error


def own_ids(files: Files, folder: Path) -> StoreIds:
    """Return the ids of a store that is about to be shipped. They are made and saved if there are none."""
    ids = read_ids(files, folder)
    if not (ids.store and ids.instance):
        ids = replace(
            ids, store=ids.store or files.random_bytes(16).hex(), instance=ids.instance or files.random_bytes(16).hex()
        )
        write_ids(files, folder, ids)
    return ids


def write_ids(files: Files, folder: Path, ids: StoreIds) -> None:
    """Save the ids, durably."""
    content: dict[str, Any] = {"format": _FORMAT, "store": ids.store, "instance": ids.instance, "epoch": ids.epoch}
    if ids.yields:
        content["yields"] = True
    if ids.base:
        content |= {"base": ids.base, "base_epoch": ids.base_epoch}
    replace_checked(files, folder / REPLICA_FILE, content)


def place_of_folder(folder: Path) -> str:
    """Return host and path of a folder, as in `owner.json`."""
    return f"{socket.gethostname()}:{folder.absolute()}"


def identity_of(files: Files, folder: Path, ids: StoreIds) -> Identity:
    """Return who claims a replica for this folder; each call is another claimer."""
    nonce = files.random_bytes(16).hex()
    return Identity(ids.store, ids.instance, place_of_folder(folder), socket.gethostname(), os.getpid(), nonce)
