"""Implementation of the table commands that write: add, change, delete and undelete."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from holdfast.base.errors import HoldfastError, InvalidArgument
from holdfast.base.units import plural
from holdfast.cli.confirm import ask
from holdfast.cli.input import STANDARD_INPUT, read_file_payload, standard_input_lines
from holdfast.cli.options import Target, UsageError
from holdfast.cli.output import error_console, json_line, progress_on, short_name, show, standard_output, write_json
from holdfast.cli.table.open_table import key_of, table_to_change
from holdfast.cli.table.printing import time_text
from holdfast.cli.warnings import notify
from holdfast.table import Add, Delete, Done, Table, Undelete, text_of_key
from holdfast.table.model.change_parser import parse_changes
from holdfast.table.model.json_output import time_json
from holdfast.table.operations import Operation, Outcome

__all__ = ["add_records", "change_record", "delete_records", "undelete_records"]

_BATCH = 1000
_SHOWN = 20
"""Failures that are reported one by one."""
_FAILED = 1


def add_records(
    name: str, given: Sequence[str], data: Target, *, keyring: Path | None, key: str | None, as_json: bool
) -> None:
    """Add records and print their keys."""
    if not given:
        raise UsageError("nothing to add: give a JSON object, @FILE, or - for lines from standard input")
    if key is not None and (len(given) > 1 or given[0] == STANDARD_INPUT or given[0].startswith("@")):
        raise UsageError("--key is the key of one record: give one JSON object with it")
    if STANDARD_INPUT in given and len(given) > 1:
        raise UsageError("- means all lines of standard input: give no other record")
    wanted = None if key is None else key_of(key)
    alone = len(given) == 1 and not given[0].startswith(("@", STANDARD_INPUT))
    texts = [] if given == [STANDARD_INPUT] else [text for one in given for text in _texts(one)]
    with table_to_change(data, name, keyring) as table:
        if alone:
            done = table.add(_record(table, texts[0]), key=wanted)
            if as_json:
                write_json(_done_json(done))
            else:
                show(text_of_key(done.key))
            return
        batches = _lines(table, shown=not as_json) if given == [STANDARD_INPUT] else _parts(texts, shown=not as_json)
        report = _Report(as_json=as_json, keys=not any(one.startswith(("@", STANDARD_INPUT)) for one in given))
        try:
            for batch in batches:
                report.take(_added(table, batch))
        finally:  # after an error among many lines, the user must still learn which records are stored
            report.end("added")


def change_record(
    name: str,
    key: str,
    given: Sequence[str],
    data: Target,
    *,
    unset: Sequence[str],
    check: Sequence[str],
    if_version: int | None,
    keyring: Path | None,
    as_json: bool,
) -> None:
    """Change values of a record."""
    if not given and not unset:
        raise UsageError("nothing to change: give name=value, a JSON object, or --unset NAME")
    wanted = key_of(key)
    with table_to_change(data, name, keyring) as table:
        try:
            changes, expected = parse_changes(table.model, given, unset), parse_changes(table.model, check)
        except InvalidArgument as error:
            raise UsageError(str(error)) from error
        done = table.change(wanted, changes, check=expected, if_version=if_version)
    if as_json:
        write_json(_done_json(done))
    elif done.changed:
        show(f"changed: version {done.version} at {time_text(done.version)}")
    else:
        show(f"nothing changed: the record has had these values since version {done.version}")


def delete_records(
    name: str,
    keys: Sequence[str],
    data: Target,
    *,
    keyring: Path | None,
    hard: bool,
    if_version: int | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete records, softly or permanently."""
    wanted = [key_of(key) for key in keys]
    if if_version is not None and len(wanted) > 1:
        raise UsageError("--if-version is the version of one record: delete several with one command for each")
    if hard:
        what = f"{plural(len(wanted), 'record')} of {name!r}"
        ask(f"Permanently delete {what}, with all versions?", action=f"permanently delete {what}", yes=yes)
    operations = [Delete(key, hard, if_version) for key in wanted]
    _carry_out(name, operations, data, "permanently deleted" if hard else "deleted", keyring=keyring, as_json=as_json)


def undelete_records(name: str, keys: Sequence[str], data: Target, *, keyring: Path | None, as_json: bool) -> None:
    """Restore softly deleted records."""
    _carry_out(name, [Undelete(key_of(key)) for key in keys], data, "restored", keyring=keyring, as_json=as_json)


def _carry_out(
    name: str, operations: Sequence[Operation], data: Target, verb: str, *, keyring: Path | None, as_json: bool
) -> None:
    with table_to_change(data, name, keyring) as table:
        outcomes = table.write(operations)
    if len(outcomes) == 1 and isinstance(outcomes[0], HoldfastError):
        raise outcomes[0]
    report = _Report(as_json=as_json, keys=False)
    report.take(outcomes)
    report.end(verb)


class _Report:
    """Prints the outcomes of operations, in their order; ends with the exit code 1 if some failed."""

    def __init__(self, *, as_json: bool, keys: bool) -> None:
        self._as_json = as_json
        self._keys = keys
        self._stream = standard_output()
        self._count = 0
        self._failed = 0

    def take(self, outcomes: Sequence[Outcome]) -> None:
        """Print the next outcomes."""
        for outcome in outcomes:
            self._count += 1
            if isinstance(outcome, HoldfastError):
                self._fail(outcome)
            elif self._as_json:
                self._stream.write(json_line({"number": self._count, **_done_json(outcome)}))
            elif self._keys:
                self._stream.write(f"{text_of_key(outcome.key)}\n".encode())
        self._stream.flush()

    def end(self, verb: str) -> None:
        """Print the summary and set the exit code."""
        succeeded = self._count - self._failed
        if not self._as_json and not self._keys:
            of = f" of {self._count:,}" if self._failed else ""
            show(f"{verb}: {plural(succeeded, 'record')}{of}")
        if self._failed > _SHOWN and not self._as_json:
            notify(f"and {self._failed - _SHOWN} more failed")
        if self._failed:
            raise typer.Exit(_FAILED)

    def _fail(self, error: HoldfastError) -> None:
        self._failed += 1
        if self._as_json:
            self._stream.write(json_line({"number": self._count, "error": str(error)}))
        elif self._failed <= _SHOWN:
            notify(f"record {self._count}: {error}")


def _texts(argument: str) -> list[str | bytes]:
    """Return the JSON objects of an argument; a file may hold one object, a list of them, or one per line."""
    if not argument.startswith("@"):
        return [argument]
    content = read_file_payload(Path(argument[1:]))
    try:
        whole = json.loads(content)
    except (ValueError, RecursionError):
        return [line for line in content.split(b"\n") if line.strip()]
    return [json_line(one) for one in whole] if isinstance(whole, list) else [content]


def _lines(table: Table[Any], *, shown: bool) -> Iterator[Sequence[str | bytes]]:
    for lines in standard_input_lines(
        f"adding to {short_name(table.name)}", table.log.settings.max_message, shown=shown
    ):
        filled = [line for line in lines if line.strip()]
        for at in range(0, len(filled), _BATCH):
            yield filled[at : at + _BATCH]


def _parts(texts: Sequence[str | bytes], *, shown: bool) -> Iterator[Sequence[str | bytes]]:
    with progress_on(error_console(), shown=shown, in_bytes=False) as progress:
        bar = progress.add_task("adding", total=len(texts))
        for at in range(0, len(texts), _BATCH):
            part = texts[at : at + _BATCH]
            yield part
            progress.update(bar, advance=len(part))


def _added(table: Table[Any], texts: Sequence[str | bytes]) -> list[Outcome]:
    """Return the outcome of each; those that can be parsed are added in one request."""
    outcomes: list[Any] = []
    for text in texts:
        try:
            outcomes.append(Add(_record(table, text)))
        except HoldfastError as error:
            outcomes.append(error)
    done = iter(table.write([one for one in outcomes if isinstance(one, Add)]))
    return [next(done) if isinstance(one, Add) else one for one in outcomes]


def _record(table: Table[Any], text: str | bytes) -> Any:
    try:
        return table.model.from_json(text)
    except RecursionError:
        raise InvalidArgument(f"invalid JSON for {table.name!r}: it is nested too deeply") from None


def _done_json(done: Done) -> dict[str, Any]:
    return {
        "key": text_of_key(done.key),
        "version": done.version,
        "version_time": time_json(done.version),
        "changed": done.changed,
    }
