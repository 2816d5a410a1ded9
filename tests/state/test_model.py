"""Does a state do what a dictionary would? Hypothesis makes the changes; both must agree after each."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.state import State
from tests.state.places import KINDS, Place, content
from tests.tiers import examples

Model = dict[str, dict[bytes, bytes]]
Step = tuple[str, str, bytes, bytes]

families = st.sampled_from(["available", "dedup"])
keys = st.binary(max_size=2) | st.sampled_from([b"", b"a", b"b", b"\xff", b"\xff\xff"])
changes = st.tuples(st.sampled_from(["put", "put", "delete", "delete_range", "get"]), families, keys, keys)
commits = st.tuples(st.just("commit"), st.lists(changes, max_size=12))
looks = st.tuples(st.just("scan"), st.tuples(families, keys, st.none() | keys))
others: st.SearchStrategy[tuple[str, Any]] = st.tuples(st.sampled_from(["reopen", "drop"]), st.just([]))


def change(state: State, model: Model, steps: list[Step], *, commit: bool) -> None:
    transaction = state.transaction()
    after = {family: dict(values) for family, values in model.items()}
    for kind, family, key, other in steps:
        values = after[family]
        if kind == "put":
            transaction.put(family, key, other)
            values[key] = other
        elif kind == "delete":
            transaction.delete(family, key)
            values.pop(key, None)
        elif kind == "delete_range":
            transaction.delete_range(family, key, other)
            after[family] = {name: value for name, value in values.items() if not key <= name < other}
        else:
            assert transaction.get(family, key) == values.get(key)
    if commit:
        transaction.commit()
        model.update(after)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(60))
@given(plan=st.lists(commits | looks | others, max_size=10))
def test_a_state_agrees_with_a_dictionary(kind: str, plan: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Place(kind, Path(folder) / "state")
        state = place.open()
        model: Model = {"available": {}, "dedup": {}}
        steps: list[Step] = []
        for action, detail in plan:
            if action in ("commit", "drop"):
                steps = detail or steps  # a dropped one repeats the last, and must not count
                change(state, model, steps, commit=action == "commit")
            elif action == "scan":
                family, start, stop = detail
                wanted = [
                    (key, value)
                    for key, value in sorted(model[family].items())
                    if start <= key and (stop is None or key < stop)
                ]
                assert list(state.scan(family, start, stop)) == wanted
            else:
                state.close()
                state = place.open()
            for family, values in model.items():
                assert content(state, family) == values
                assert all(state.get(family, key) == value for key, value in values.items())
        place.close()
