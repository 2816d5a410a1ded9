"""A queue that version 1 wrote stands where it stood, from its log and journal alone."""

import json

import holdfast
from holdfast.testing import SimClock, SimFiles
from tests.golden.files import V1
from tests.queue.internals import state_of


def test_a_version_1_queue_stands_where_it_stood() -> None:
    expected = json.loads((V1 / "expected_queue.json").read_text())
    stored = {str(path.relative_to(V1)): path.read_bytes() for path in (V1 / "queues").rglob("*") if path.is_file()}
    clock = SimClock(expected["time"])
    with holdfast.open("queues", files=SimFiles.holding(stored), clock=clock, background=False) as store:
        queue = store.queue("work")
        state_of(queue).check()
        assert json.loads(json.dumps(state_of(queue).describe())) == expected["standing"]
        dead = [[letter.payload.decode(), letter.reason, letter.attempts] for letter in queue.dead_letters()]
        assert dead == expected["dead"]
        assert queue.put(b"once more", dedup="id-1") == store.log("work").end - 1  # its window is long over
        assert queue.settings.max_attempts == 2
