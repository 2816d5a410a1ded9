"""Any file of a closed store damaged in any way: no wrong payload, no foreign error, nothing lost in silence.

`HOLDFAST_DAMAGE_CASES=2000` runs more cases than the usual ones, and `HOLDFAST_DAMAGE_SEED=17` only that one.
"""

import logging
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.cli.app import main
from tests.crash.every_file import Seen, copy_of, damage, make_store, observe

CASES = int(os.environ.get("HOLDFAST_DAMAGE_CASES", "150"))
ONE = os.environ.get("HOLDFAST_DAMAGE_SEED")
PER_TEST = 15
SEEDS = [int(ONE)] if ONE else list(range(CASES))
GROUPS = [SEEDS[at : at + PER_TEST] for at in range(0, len(SEEDS), PER_TEST)]


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """What is found is logged; captured by pytest that would take longer than the test."""
    caplog.set_level(logging.CRITICAL)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Seen]]:
    """A store, and what a user sees of it."""
    folder = tmp_path_factory.mktemp("pristine") / "store"
    make_store(folder)
    whole = copy_of(folder, folder.parent / "copy")
    yield folder, observe(whole)
    shutil.rmtree(folder.parent)


def test_a_whole_store_is_whole(pristine: tuple[Path, Seen]) -> None:
    folder, expected = pristine
    found = holdfast.verify(folder)
    assert not found.problems
    assert not found.notes
    assert not expected.wrong
    assert not [fact for fact in expected.facts.values() if isinstance(fact, str)]
    assert len(expected.facts["clicks"]) == 60  # of 100: what all tailers had read is dropped
    assert expected.facts["orders"][0] == (23, 6, 6, 5)


@pytest.mark.parametrize("seeds", GROUPS, ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_damage_to_any_file_is_told_or_does_no_harm(
    pristine: tuple[Path, Seen], tmp_path: Path, seeds: list[int]
) -> None:
    folder, expected = pristine
    for seed in seeds:
        store = copy_of(folder, tmp_path / str(seed))
        hit = damage(store, random.Random(seed))
        case = f"seed {seed}: {hit}"
        verified = holdfast.verify(store)
        if seed % PER_TEST == 0:  # commands end with an exit code and a line, too
            assert main(["verify", "--data", str(store)]) == (0 if verified.ok else 1), case
            assert main(["queues", "--data", str(store)]) in (0, 1), case
            assert main(["log", "stats", "clicks", "--data", str(store)]) in (0, 1), case
        seen = observe(store)
        assert not seen.wrong, f"{case}: {seen.wrong}"
        different = {what: fact for what, fact in expected.facts.items() if seen.facts.get(what) != fact}
        if different:
            shown = {what: (seen.facts.get(what), fact) for what, fact in different.items()}
            assert verified.problems, f"{case}: verify told nothing, and there differ: {shown}"
        shutil.rmtree(store)
