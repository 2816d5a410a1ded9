"""Public names that were replaced still work, with a warning that names the new one."""

import pytest

import holdfast
import holdfast.queue

OLD = {"Waiting": holdfast.PeekedMessage}


@pytest.mark.parametrize("name", OLD)
def test_an_old_name_works_and_warns(name: str) -> None:
    for module in (holdfast, holdfast.queue):
        with pytest.warns(DeprecationWarning, match=f"holdfast.{name} is now holdfast.{OLD[name].__name__}"):
            assert getattr(module, name) is OLD[name]
        assert name not in module.__all__


def test_a_name_that_never_was_is_an_error() -> None:
    for module in (holdfast, holdfast.queue):
        with pytest.raises(AttributeError, match="no_such_name"):
            module.no_such_name  # noqa: B018
