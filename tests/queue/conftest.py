"""What tests of queues share: they run in each flush mode, because the ways through the code differ."""

import pytest

from holdfast import Flush
from tests.queue.calls import ALL_MODES


@pytest.fixture(params=ALL_MODES, ids=lambda flush: str(flush.mode))
def flush(request: pytest.FixtureRequest) -> Flush:
    found: Flush = request.param
    return found
