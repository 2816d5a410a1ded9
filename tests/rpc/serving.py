"""A process that serves a store by RPC until its standard input ends: `python -m tests.rpc.serving <folder>`.

It prints its port. Queues are made when they are asked for; the user is `u` with the password `p`.
"""

import sys

import holdfast
from holdfast import Flush, Queue
from holdfast.broker.errors import AccessRefused
from holdfast.rpc import Access, RpcServer, RpcSettings


def login(user: str, password: str, is_loopback: bool) -> str:
    if (user, password) != ("u", "p"):
        raise AccessRefused("wrong user or password")
    return user


def serve(folder: str, flush: Flush) -> None:
    with holdfast.open(folder) as store:

        def find(vhost: str, name: str) -> Queue:
            return store.queue(name, flush=flush, max_attempts=None, dead_letter=None)

        server = RpcServer(RpcSettings(), find=find, access=Access(login=login, check=lambda *_: None))
        server.start()
        print(server.address[1], flush=True)
        sys.stdin.read()
        server.stop()


if __name__ == "__main__":
    serve(sys.argv[1], Flush.async_() if sys.argv[2:] == ["async"] else Flush.sync())
