"""A remote store is backed up on the server's machine, with the options of an embedded one."""

import os

import pytest

import holdfast
from holdfast import InvalidArgument
from holdfast.backup.backup import BackupReport
from holdfast.remote import Refused
from tests.remote.conftest import Operator


def test_a_backup_returns_the_report_of_an_embedded_store(operator: Operator) -> None:
    operator.remote.log("facts").append(b"one")
    seen: list[tuple[int, int]] = []
    report = operator.remote.backup(operator.folder / "first", progress=lambda done, total: seen.append((done, total)))
    assert type(report) is BackupReport and report.logs >= 1 and seen == [(report.bytes, report.bytes)]
    holdfast.restore_backup(report.path, operator.folder / "restored")
    with holdfast.open(operator.folder / "restored", read_only=True) as store:
        assert [record.payload for record in store.log("facts").read()] == [b"one"]


def test_a_backup_shares_files_unless_told_otherwise(operator: Operator) -> None:
    backup, folder = operator.remote.backup, operator.folder
    first = backup(folder / "a", copy=True)
    assert backup(folder / "a", copy=True).base == first.path.name
    assert backup(folder / "b", copy=True, base=first.path).base == first.path.name
    assert backup(folder / "a", copy=True, incremental=False).base is None


def test_the_base_of_a_backup_must_be_below_an_allowed_folder(operator: Operator) -> None:
    with pytest.raises(Refused, match="allowed_paths"):
        operator.remote.backup(operator.folder / "c", base=os.sep + "etc")
    with pytest.raises(InvalidArgument, match="inside of the store"):
        operator.remote.backup(operator.folder / "data" / "x")
