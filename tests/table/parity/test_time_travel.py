"""The suite's case of soft deletions in the past."""

from tests.table.parity.asking import Open, past_of
from tests.table.parity.models import Simple


def test_a_softly_deleted_record_is_there_before_its_deletion_and_hidden_from_it_on(open_table: Open) -> None:
    table = open_table(Simple)
    added = table.add(Simple())
    deleted = table.delete(added.key)
    assert list(table.scan()) == []
    assert [record.deleted for record in table.scan(include_deleted=True)] == [True]
    with past_of(table):
        assert [record.deleted for record in table.scan(as_of=added.version)] == [False]
        assert list(table.scan(as_of=deleted.version)) == []
        assert [record.deleted for record in table.scan(as_of=deleted.version, include_deleted=True)] == [True]
