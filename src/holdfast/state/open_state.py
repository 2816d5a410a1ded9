"""Opening of a store's state: RocksDB, or `SimulatedState` on simulated files; a damaged state is set aside."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast.base.errors import Corrupt, DiskFull, NotFound
from holdfast.base.files import Files, SystemFiles, translate_os_errors
from holdfast.state.column_families import FAMILIES
from holdfast.state.empty import EmptyState
from holdfast.state.rocks import RocksState, is_orphaned
from holdfast.state.simulated import SimulatedState
from holdfast.state.state import State

__all__ = ["open_state", "set_aside"]

logger = logging.getLogger("holdfast.state")

FLAT = "state.flat"


def open_state(
    files: Files,
    folder: Path,
    *,
    read_only: bool = False,
    families: Sequence[str] = FAMILIES,
    free_space: Callable[[], bool] = lambda: False,
) -> State:
    """Open the state in `folder`, created if there is none.

    Opening writes a little, so on a full disk `free_space` is called, and opening is tried again if it returns True;
    also for writes after the opening.

    A damaged state is set aside and replaced by an empty one, because all of it can be rebuilt: see `set_aside`. With
    `read_only` nothing is created or moved; a missing or damaged state is read as empty. A state that another process
    has locked, or that cannot be opened for another reason, raises an error and is left unchanged.
    """
    if read_only and isinstance(files, SystemFiles) and is_orphaned():
        return EmptyState(folder)  # readers rebuild what they need from the journals
    try:
        return _open(files, folder, read_only, families, free_space)
    except NotFound:
        return EmptyState(folder)
    except Corrupt as error:
        if read_only:
            logger.error(
                "state is damaged, reading it as empty: path=%s reason=%s",
                folder,
                error,
                extra={"path": str(folder), "reason": str(error)},
            )
            return EmptyState(folder)
        set_aside(files, folder, str(error))
    return _open(files, folder, read_only, families, free_space)


def set_aside(files: Files, folder: Path, reason: str) -> Path:
    """Rename the folder of a closed state to `<folder>.damaged-N`, and return that path.

    For damage that is found only when a row is read: close the state, set it aside, open an empty one and rebuild.
    """
    with translate_os_errors("setting aside the damaged state", folder):
        number = 1
        while files.exists(aside := folder.with_name(f"{folder.name}.damaged-{number}")):
            number += 1
        if isinstance(files, SystemFiles):
            files.replace(folder, aside)
        else:  # simulated files, which can rename only files
            files.make_dirs(aside)
            files.replace(folder / FLAT, aside / FLAT)
            files.sync_dir(aside)
            files.sync_dir(folder)
        files.sync_dir(folder.parent)
    logger.error(
        "state is damaged, set aside and rebuilt: path=%s aside=%s reason=%s",
        folder,
        aside,
        reason,
        extra={"path": str(folder), "aside": str(aside), "reason": reason},
    )
    return aside


def _open(
    files: Files, folder: Path, read_only: bool, families: Sequence[str], free_space: Callable[[], bool]
) -> State:
    if not isinstance(files, SystemFiles):
        return SimulatedState(files, folder / FLAT, read_only, free_space)
    while True:
        try:
            return _open_rocks(files, folder, read_only, families, free_space)
        except DiskFull:
            if read_only or not free_space():
                raise


def _open_rocks(
    files: SystemFiles, folder: Path, read_only: bool, families: Sequence[str], free_space: Callable[[], bool]
) -> RocksState:
    if not read_only:
        with translate_os_errors("opening the state", folder):
            files.make_dirs(folder)
    return RocksState(folder, read_only=read_only, families=families, free_space=free_space)
