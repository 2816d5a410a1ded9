"""The recorded sessions are what they say: whole frames that the codec can read, but for one that breaks off."""

import pytest

from holdfast.amqp.frames import HEADER, METHOD, PROTOCOL_HEADER, decode_content_header, read_frame
from holdfast.amqp.methods import decode_method
from holdfast.broker.basic_properties import decode_properties
from tests.amqp.recorded import FRAME_MAX, SESSIONS

INCOMPLETE = {"breaks off within a message"}
WHOLE = [name for name, session in SESSIONS.items() if session.startswith(PROTOCOL_HEADER)]


@pytest.mark.parametrize("name", WHOLE)
def test_a_recorded_session_is_made_of_frames(name: str) -> None:
    session = SESSIONS[name]
    offset = len(PROTOCOL_HEADER)
    while (found := read_frame(session, offset, FRAME_MAX)) is not None:
        kind, _, start, stop, offset = found
        if kind == METHOD:
            decode_method(session[start:stop])
        elif kind == HEADER:
            decode_properties(decode_content_header(session[start:stop])[2])
    assert (offset < len(session)) == (name in INCOMPLETE)
