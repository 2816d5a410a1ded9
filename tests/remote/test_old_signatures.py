"""Signatures of the remote store that changed still work, with a warning that names the new one."""

from pathlib import Path
from typing import Any

import pytest

from tests.remote.conftest import Operator


def test_a_queue_takes_arguments_of_amqp(remote: Any) -> None:
    new = r"RemoteStore.queue\(name, arguments\) is now RemoteStore.declare_queue\(name, arguments\)"
    with pytest.warns(DeprecationWarning, match=new) as caught:
        assert remote.queue("old 1", {"x-max-length": 7}).settings.max_length == 7
    assert caught[0].filename == __file__
    with pytest.warns(DeprecationWarning, match=new):
        assert remote.queue("old 2", arguments={"x-max-length": 8}).settings.max_length == 8
    with pytest.warns(DeprecationWarning, match=new):
        assert remote.queue("old 1", None).name == "old 1"
    assert remote.declare_queue("old 3", {"x-max-length": 9}).settings.max_length == 9
    with pytest.raises(TypeError):
        remote.queue("old 4", {}, {})


def test_a_backup_takes_its_folder_by_the_old_name(operator: Operator) -> None:
    remote: Any = operator.remote
    with pytest.warns(DeprecationWarning, match=r"backup\(to=...\) is now RemoteStore.backup\(dest=...\)") as caught:
        report = remote.backup(to=operator.folder / "by name")
    assert caught[0].filename == __file__ and report.path.parent == operator.folder / "by name"


def test_the_report_of_a_backup_can_be_read_as_a_dict(operator: Operator) -> None:
    report = operator.remote.backup(operator.folder / "as dict")
    with pytest.warns(DeprecationWarning, match=r"\['path'\] is now RemoteStore.backup\(...\).path"):
        assert Path(report["path"]) == report.path
    with pytest.warns(DeprecationWarning), pytest.raises(KeyError):
        report["no such field"]
