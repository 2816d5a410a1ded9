"""The `holdfast verify` command: checks everything in a store and prints what to do about damage."""

import time
from dataclasses import asdict
from pathlib import Path

from holdfast.base.units import format_duration, format_size, plural
from holdfast.cli.open_store import folder_of
from holdfast.cli.options import DataOption, JsonOption
from holdfast.cli.output import byte_progress, make_table, safe_text, show, write_json
from holdfast.verification import StoreVerification, verify_store

__all__ = ["verify"]


def verify(data: DataOption = Path("data"), as_json: JsonOption = False) -> int:
    """Check everything in a store: logs, journals, tables, transactions, definitions, positions, settings and state.

    Changes nothing, and works while another process owns the store. The exit code is 1 if anything is damaged.
    """
    folder = folder_of(data)
    began = time.perf_counter()
    with byte_progress(shown=not as_json) as progress:
        bar = progress.add_task("verifying", total=None)
        found = verify_store(folder, progress=lambda done, total: progress.update(bar, completed=done, total=total))
    seconds = time.perf_counter() - began
    if as_json:
        write_json({"ok": found.ok, "seconds": round(seconds, 6), **asdict(found), "path": str(found.path)})
    else:
        _show(found, seconds)
    return 0 if found.ok else 1


def _show(found: StoreVerification, seconds: float) -> None:
    for problems, title in ((found.problems, "damage"), (found.notes, "note")):
        if problems:
            table = make_table(title, "file", "found", "what to do")
            for one in problems:
                file = Path(one.path).relative_to(found.path) if Path(one.path).is_relative_to(found.path) else one.path
                table.add_row(safe_text(one.what), safe_text(str(file)), safe_text(one.text), safe_text(one.advice))
            show(table, "")
    parts = [plural(found.logs, "log"), plural(found.queues, "queue"), plural(found.tables, "table")]
    if found.unchecked_files:
        parts.append(f"{plural(found.unchecked_files, 'small file')} without a checksum, of an earlier version")
    verdict = "whole" if found.ok else plural(len(found.problems), "problem")
    show(f"{verdict}: {', '.join(parts)}; {format_size(found.bytes)} checked in {format_duration(seconds)}")
