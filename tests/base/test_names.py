"""Names become folders and come back; none is ever a path."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.base.names import NAME_BYTES_MAX, escape_name, name_of

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(
    lambda n: len(n.encode()) <= NAME_BYTES_MAX
)


@given(NAMES)
def test_a_folder_is_one_plain_component(name: str) -> None:
    folder = escape_name(name)
    assert folder not in ("", ".", "..")
    assert not folder.startswith(".")
    assert not set(folder) & set("/\\\0\n ")
    assert len(folder) <= 180
    assert folder.isascii()


@given(NAMES)
def test_a_folder_leads_back_to_its_name_unless_it_was_shortened(name: str) -> None:
    assert name_of(escape_name(name)) in (name, None)
    if len(name.encode()) <= 60:
        assert name_of(escape_name(name)) == name


@given(NAMES, NAMES)
def test_two_names_never_share_a_folder(one: str, other: str) -> None:
    assert (escape_name(one) == escape_name(other)) == (one == other)


@given(st.text(max_size=50))
def test_a_folder_that_is_not_ours_has_no_name(folder: str) -> None:
    name = name_of(folder)
    assert name is None or escape_name(name) == folder
