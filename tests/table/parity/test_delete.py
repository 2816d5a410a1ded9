"""The suite's cases of deleting."""

from tests.table.parity.asking import Open
from tests.table.parity.models import Simple


def test_a_softly_deleted_record_is_hidden_and_its_deletion_is_its_last_version(open_table: Open) -> None:
    table = open_table(Simple)
    key = table.add(Simple()).key
    version = table.delete(key).version
    assert table.get(key) is None
    assert table.get(key, include_deleted=True).deleted
    assert table.changes([key]) == []
    (found,) = table.changes([key], include_deleted=True)
    assert len(found.versions) == 2
    assert (found.versions[1].version, found.versions[1].kind, found.versions[1].values) == (version, "delete", {})


def test_a_record_that_is_deleted_for_good_is_gone(open_table: Open) -> None:
    table = open_table(Simple)
    key = table.add(Simple()).key
    assert table.delete(key, hard=True).key == key
    assert table.get(key) is None
    assert table.get(key, include_deleted=True) is None
