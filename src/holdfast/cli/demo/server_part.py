"""The demo's fourth part: the store is served over AMQP and HTTP, killed, and backed up while it runs."""

import contextlib
import json
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import holdfast
from holdfast.amqp.client import Address, Client
from holdfast.base.errors import HoldfastError
from holdfast.base.units import format_count, format_duration, format_size, plural
from holdfast.broker.basic_properties import Properties, encode_properties
from holdfast.broker.definitions import open_definitions
from holdfast.cli.demo.orders import QUEUE, orders
from holdfast.cli.demo.stage import Stage, pace
from holdfast.cli.demo.table_part import CUSTOMERS, TABLE

__all__ = ["Serving", "run_server_part", "serving"]

_PAYMENTS, _DEAD, _REMINDERS = "payments", "payments.dead", "reminders"
_MESSAGES = 2000
_REJECTED = 12
_PORT = 15672
_LISTENERS = 3
_OPERATOR = "operator"


class Serving:
    """`holdfast serve` on the demo's folder, as a process that is killed and started again."""

    def __init__(self, data: Path, backups: Path, *, watched: bool) -> None:
        """Start the server; if `watched`, at the page's default port, if that is free. It may write to `backups`."""
        self.data = data
        self.backups = backups
        self.password = secrets.token_urlsafe()
        """Password of the administrator, who may start a backup over HTTP; the default guest may not."""
        with holdfast.open(data) as store:  # as `holdfast user add` does
            definitions = open_definitions(store)
            if definitions.is_new:
                definitions.begin()
            definitions.users().add(_OPERATOR, self.password, tags=("administrator",))
        self._ports = {"http": _PORT if watched and _is_free(_PORT) else 0, "amqp": 0}
        self.start()

    def start(self) -> None:
        """Start the server; returns when everything listens."""
        try:
            self._start()
        except HoldfastError:
            if not any(self._ports.values()):
                raise
            self._ports = {"http": 0, "amqp": 0}  # another process has taken a port meanwhile
            self._start()

    def _start(self) -> None:
        command = [sys.executable, "-m", "holdfast", "serve", "--json", "--data", str(self.data), "--rpc-port", "0"]
        command += ["--http-port", str(self._ports["http"]), "--amqp-port", str(self._ports["amqp"])]
        command += ["--host", "127.0.0.1", "--set", f"allowed_paths={self.backups}"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            assert self.process.stdout is not None
            for _ in range(_LISTENERS):
                line = self.process.stdout.readline()
                if not line:
                    raise HoldfastError(f"the server did not start: its exit code is {self.process.wait()}")
                listener = json.loads(line)
                self._ports[listener["protocol"]] = listener["port"]
        except BaseException:  # also a signal: no other code can stop this process yet
            self.kill()
            raise

    @property
    def url(self) -> str:
        """The URL of the page."""
        return f"http://127.0.0.1:{self._ports['http']}/"

    @property
    def amqp(self) -> Address:
        """The address of the AMQP listener."""
        return Address.parse(f"amqp://guest:guest@127.0.0.1:{self._ports['amqp']}")

    def kill(self) -> None:
        """Kill the process with SIGKILL, if it has not ended."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def stop(self) -> None:
        """Stop the server by SIGTERM, after 30 s by SIGKILL."""
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(30)
        self.kill()


@contextlib.contextmanager
def serving(data: Path, *, watched: bool) -> Iterator[Serving]:
    """Run a server that is stopped when the block is left; its backups are deleted then."""
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-backup-") as backups:
        server = Serving(data, Path(backups), watched=watched)
        try:
            yield server
        finally:
            server.stop()


def run_server_part(server: Serving, stage: Stage) -> None:
    """Publish over AMQP, kill the server, use HTTP, and back up the store while it is served."""
    stage.chapter("The same folder is served: AMQP, an HTTP API and a page")
    stage.say(f"the page: {server.url} (user guest, password guest)")
    published = _publish(server, stage)
    _kill(server, published, stage)
    _act(server, stage)
    _back_up(server, stage)


def _publish(server: Serving, stage: Stage) -> int:
    """Return how many messages were confirmed."""

    def on_disk() -> int:
        """Return how many payments are ready, as a read-only process sees them: what a kill would leave."""
        with holdfast.open(server.data, read_only=True) as store:
            return store.queue(_PAYMENTS).counts().ready

    with Client(server.amqp) as client:
        client.open_channel()
        client.declare(_DEAD)
        client.declare(_PAYMENTS, {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": _DEAD})
        raw = encode_properties(Properties(delivery_mode=2, content_type="application/json", type="payment"))
        began = time.perf_counter()
        published = client.publish(_PAYMENTS, list(orders(0, _MESSAGES)), raw)
        seconds = time.perf_counter() - began
        client.ask(_PAYMENTS, _REJECTED)
        for got in list(client.answers(_REJECTED)):
            if got is not None:
                client.reject(got.tag)
        # Dead letters are moved in the background; the kill must come after that.
        _eventually(lambda: client.look(_DEAD)[0], _REJECTED)
        _eventually(lambda: client.look(_PAYMENTS)[0], _MESSAGES - _REJECTED)
        _eventually(on_disk, _MESSAGES - _REJECTED)
    rate = format_count(published / seconds)
    stage.say(f"{format_count(published)} payments published over AMQP and confirmed, {rate} per second")
    stage.say(f"{_REJECTED} of them rejected, and thereby dead-lettered")
    stage.note(published=published, published_seconds=seconds)
    stage.line("confirmed over AMQP", format_count(published), pace(published, seconds, "messages"))
    return published


def _kill(server: Serving, published: int, stage: Stage) -> None:
    stage.chapter(f"kill -9 {server.process.pid}: this time the server")
    server.kill()
    began = time.perf_counter()
    server.start()
    seconds = time.perf_counter() - began
    with holdfast.connect(server.url) as remote:
        found = remote.queue(_PAYMENTS).counts().ready
        dead = _eventually(lambda: remote.queue(_DEAD).counts().ready, _REJECTED)
    stage.say(f"served again after {format_duration(seconds)}: {format_count(found)} payments ready")
    stage.promise("every payment confirmed over AMQP survived the kill", found + dead == published)
    stage.note(restart_seconds=seconds)
    stage.line("served again after kill -9", format_duration(seconds))


def _act(server: Serving, stage: Stage) -> None:
    stage.chapter("The same queues over HTTP, from Python or a browser")
    with holdfast.connect(server.url) as remote:
        reminders, payments, dead = (remote.queue(name) for name in (_REMINDERS, _PAYMENTS, _DEAD))
        for minutes in range(1, 61):
            reminders.put(f'{{"remind": {minutes}}}'.encode(), delay=60 * minutes)
        payments.pause()
        taken = payments.lease(10)
        payments.resume()
        letters = dead.dead_letters()
        redriven = dead.redrive([one.id for one in letters[: _REJECTED // 2]])
        tables, logs = remote.tables(), remote.logs()
    stage.say("60 reminders put, due a minute apart; one queue paused and resumed")
    stage.say(
        f"{plural(redriven, 'dead letter')} of {len(letters)} redriven with one call; the others stay for the page"
    )
    stage.promise("a paused queue delivered nothing", taken == [])
    stage.promise(
        "HTTP shows the queues, logs and tables of programs and AMQP clients",
        TABLE in tables and QUEUE in logs and redriven == _REJECTED // 2,
    )


def _back_up(server: Serving, stage: Stage) -> None:
    stage.chapter("A backup, while the server runs")
    again = server.backups / "again"
    with holdfast.connect(server.url, user=_OPERATOR, password=server.password) as remote:
        remote.authority.permit(_OPERATOR, "/", "", "", ".*")  # to read the counts that the backup must contain
        began = time.perf_counter()
        made = remote.backup(server.backups / "backups")
        seconds = time.perf_counter() - began
        before = remote.queue(_PAYMENTS).counts().ready
    holdfast.restore_backup(made.path, again)
    with holdfast.open(again, read_only=True) as restored:
        found, customers = restored.queue(_PAYMENTS).counts().ready, restored.table(TABLE).count()
    size, took = format_size(made.bytes), format_duration(seconds)
    stage.say(f"{size} in {took}; restored into another folder and compared")
    kept = (found, customers) == (before, CUSTOMERS)
    stage.promise("the backup contains every payment and every customer", kept)
    stage.note(backup_seconds=seconds, backup_bytes=made.bytes)
    stage.line("backed up while served", size, f"in {took}")


def _eventually(look: Callable[[], int], wanted: int) -> int:
    """Call `look` until it returns `wanted`, or a timeout passes; return the last result."""
    deadline = time.monotonic() + 60
    while (found := look()) != wanted and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
