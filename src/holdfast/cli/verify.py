"""The `holdfast verify` command: checks everything in a store and prints what to do about damage."""

import time
from dataclasses import asdict
from pathlib import Path

from holdfast.base.units import format_duration, format_size, plural
from holdfast.cli.open_store import folder_of
from holdfast.cli.options import DataOption, JsonOption
from holdfast.cli.output import byte_progress, is_narrow, make_table, safe_text, show, write_json
from holdfast.verification import StoreVerification, verify_store

__all__ = ["verify"]


def verify(data: DataOption = Path("data"), as_json: JsonOption = False) -> int:
    """Check every checksum in a store, missing files, and the state against the journals.

    Covers logs, journals, tables, transactions, definitions, positions, settings and state. Changes nothing, and works
    while another process has the store open. The exit code is 1 if anything is damaged or missing.
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
            narrow = is_narrow()
            table = make_table(title, "found") if narrow else make_table(title, "file", "found", "what to do")
            for one in problems:
                file = Path(one.path).relative_to(found.path) if Path(one.path).is_relative_to(found.path) else one.path
                what, path, text, advice = (safe_text(each) for each in (one.what, str(file), one.text, one.advice))
                if narrow:
                    named = "" if str(file) in one.text else f"file: {path}"
                    table.add_row(what, "\n".join(filter(None, (text, named, advice))))
                else:
                    table.add_row(what, path, text, advice)
            show(table, "")
    parts = [plural(found.logs, "log"), plural(found.queues, "queue"), plural(found.tables, "table")]
    if found.unchecked_files:
        parts.append(f"{plural(found.unchecked_files, 'small file')} without a checksum")
    verdict = "intact" if found.ok else plural(len(found.problems), "problem")
    show(f"{verdict}: {', '.join(parts)}; {format_size(found.bytes)} checked in {format_duration(seconds)}")
