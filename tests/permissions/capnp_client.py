"""What users may do over Cap'n Proto: `python -m tests.permissions.capnp_client <port> <user>...` prints it as JSON."""

import asyncio
import json
import sys
from collections.abc import Awaitable
from typing import Any

import capnp

from holdfast.rpc.schema import HOLDFAST


async def _may(call: Awaitable[Any]) -> bool:
    try:
        await call
    except capnp.KjException as error:
        if "access" not in str(error).lower():
            raise
        return False
    return True


async def _calls(port: int, user: str) -> dict[str, bool]:
    stream = await capnp.AsyncIoStream.create_connection("127.0.0.1", port)
    door = capnp.TwoPartyClient(stream).bootstrap().cast_as(HOLDFAST.Holdfast)
    session = (await door.login(user=user, password=user)).session
    held = [{"id": 0, "lease": 1}]
    # A queue that one may do nothing with is not handed out: then no call on it gets through.
    queue = session.queue(vhost="/", queueName="orders").queue
    return {
        "put": await _may(queue.put(messages=[{"payload": b"x"}])),
        "lease": await _may(queue.lease(count=1)),
        "ack": await _may(queue.ack(held=held)),
        "nack": await _may(queue.nack(held=held)),
        "extend": await _may(queue.extend(held=held)),
        "release": await _may(queue.release(held=held)),
        "peek": await _may(queue.peek()),
        "stats": await _may(queue.stats()),
    }


async def main() -> None:
    async with capnp.kj_loop():
        print(json.dumps({user: await _calls(int(sys.argv[1]), user) for user in sys.argv[2:]}))


if __name__ == "__main__":
    asyncio.run(main())
