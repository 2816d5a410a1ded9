"""The demo's fourth part: the store is served over AMQP and HTTP, killed, and backed up while it runs."""

import contextlib
import json
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import holdfast
from holdfast.amqp.client import Address, Client
from holdfast.base.errors import HoldfastError
from holdfast.base.units import format_count, format_duration, format_size, plural
from holdfast.broker.basic_properties import Properties, encode_properties
from holdfast.broker.definitions import open_definitions
from holdfast.cli.demo.orders import orders
from holdfast.cli.demo.output import Stage
from holdfast.cli.demo.results import Figures
from holdfast.cli.demo.shipping import QUEUE
from holdfast.cli.demo.table_part import TABLE

__all__ = ["Serving", "run_server_part", "serving"]

_PAYMENTS, _DEAD, _REMINDERS = "payments", "payments.dead", "reminders"
_MESSAGES = 2000
_REJECTED = 12
_PORT = 15672
_LISTENERS = 3
_OPERATOR = "operator"


class Serving:
    """`holdfast serve` on the demo's folder, as a process that is killed and started again."""

    def __init__(self, data: Path, *, watched: bool) -> None:
        """Add an administrator and start the server; if `watched`, at the page's default port, if that is free."""
        self._data = data
        self.password = secrets.token_urlsafe()
        """Password of the administrator, who may start a backup over HTTP; the default guest may not."""
        self._backups = tempfile.TemporaryDirectory(prefix="holdfast-demo-backup-")
        _add_administrator(data, self.password)
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
        command = [sys.executable, "-m", "holdfast", "serve", "--json", "--data", str(self._data), "--rpc-port", "0"]
        command += ["--http-port", str(self._ports["http"]), "--amqp-port", str(self._ports["amqp"])]
        command += ["--host", "127.0.0.1", "--set", f"allowed_paths={self.backups}"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            self._listen()
        except BaseException:  # also a signal: no other code can stop this process yet
            self.kill()
            raise

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for _ in range(_LISTENERS):
            line = self.process.stdout.readline()
            if not line:
                raise HoldfastError(f"the server did not start: its exit code is {self.process.wait()}")
            listener = json.loads(line)
            self._ports[listener["protocol"]] = listener["port"]

    @property
    def backups(self) -> Path:
        """The folder that the server may write backups to; deleted when the server is stopped."""
        return Path(self._backups.name)

    @property
    def url(self) -> str:
        """The URL of the page."""
        return f"http://127.0.0.1:{self._ports['http']}/"

    @property
    def amqp(self) -> Address:
        """The address of the AMQP listener."""
        return Address.parse(f"amqp://guest:guest@127.0.0.1:{self._ports['amqp']}")

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self.process.kill()
        self._end()

    def stop(self) -> None:
        """Stop the server by SIGTERM, after 30 s by SIGKILL, and delete its backups."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(30)
        if self.process.poll() is None:
            self.process.kill()
        self._end()
        self._backups.cleanup()

    def payments_on_disk(self) -> int:
        """Return how many payments are ready, as a read-only process sees them: what a kill would leave."""
        with holdfast.open(self._data, read_only=True) as store:
            return store.queue(_PAYMENTS).stats().ready

    def _end(self) -> None:
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextlib.contextmanager
def serving(data: Path, *, watched: bool) -> Iterator[Serving]:
    """Run a server that is stopped when the block is left."""
    server = Serving(data, watched=watched)
    try:
        yield server
    finally:
        server.stop()


def run_server_part(data: Path, server: Serving, figures: Figures, stage: Stage) -> None:
    """Publish over AMQP, kill the server, use HTTP, and back up the store while it is served."""
    stage.chapter("The same folder is served: AMQP, an HTTP API and a page")
    stage.say(f"the page: {server.url} (user guest, password guest)")
    _publish(server, figures, stage)
    _kill(server, figures, stage)
    _act(server, figures, stage)
    _back_up(data, server, figures, stage)


def _publish(server: Serving, figures: Figures, stage: Stage) -> None:
    with Client(server.amqp) as client:
        client.open_channel()
        client.declare(_DEAD)
        client.declare(_PAYMENTS, {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": _DEAD})
        raw = encode_properties(Properties(delivery_mode=2, content_type="application/json", type="payment"))
        began = time.perf_counter()
        figures.published = client.publish(_PAYMENTS, list(orders(0, _MESSAGES)), raw)
        figures.published_seconds = time.perf_counter() - began
        client.ask(_PAYMENTS, _REJECTED)
        for got in list(client.answers(_REJECTED)):
            if got is not None:
                client.reject(got.tag)
        # Dead letters are moved in the background; the kill must come after that.
        _eventually(lambda: client.look(_DEAD)[0], _REJECTED)
        _eventually(lambda: client.look(_PAYMENTS)[0], _MESSAGES - _REJECTED)
        _eventually(server.payments_on_disk, _MESSAGES - _REJECTED)
    pace = format_count(figures.published / figures.published_seconds)
    stage.say(f"{format_count(figures.published)} payments published over AMQP and confirmed, {pace} per second")
    stage.say(f"{_REJECTED} of them rejected, and thereby dead-lettered")


def _kill(server: Serving, figures: Figures, stage: Stage) -> None:
    stage.chapter(f"kill -9 {server.process.pid}: this time the server")
    server.kill()
    began = time.perf_counter()
    server.start()
    figures.restart_seconds = time.perf_counter() - began
    with holdfast.connect(server.url) as remote:
        found = remote.queue(_PAYMENTS).counts().ready
        dead = _eventually(lambda: remote.queue(_DEAD).counts().ready, _REJECTED)
    stage.say(f"served again after {format_duration(figures.restart_seconds)}: {format_count(found)} payments ready")
    figures.promise("every payment confirmed over AMQP survived the kill", found + dead == figures.published)


def _act(server: Serving, figures: Figures, stage: Stage) -> None:
    stage.chapter("The same queues over HTTP, from Python or a browser")
    with holdfast.connect(server.url) as remote:
        reminders = remote.queue(_REMINDERS)
        for minutes in range(1, 61):
            reminders.put(f'{{"remind": {minutes}}}'.encode(), delay=60 * minutes)
        remote.queue(_PAYMENTS).pause()
        taken = remote.queue(_PAYMENTS).lease(10)
        remote.queue(_PAYMENTS).resume()
        dead = remote.queue(_DEAD).dead_letters()
        redriven = remote.queue(_DEAD).redrive([one.id for one in dead[: _REJECTED // 2]])
        tables, logs = remote.tables(), remote.logs()
    stage.say("60 reminders put, due a minute apart; one queue paused and resumed")
    stage.say(f"{plural(redriven, 'dead letter')} of {len(dead)} redriven with one call; the others stay for the page")
    figures.promise("a paused queue delivered nothing", taken == [])
    figures.promise(
        "HTTP shows the queues, logs and tables of programs and AMQP clients",
        TABLE in tables and QUEUE in logs and redriven == _REJECTED // 2,
    )


def _back_up(data: Path, server: Serving, figures: Figures, stage: Stage) -> None:
    stage.chapter("A backup, while the server runs")
    folder = server.backups
    with holdfast.connect(server.url, user=_OPERATOR, password=server.password) as remote:
        remote.authority.permit(_OPERATOR, "/", "", "", ".*")  # to read the counts that the backup must contain
        began = time.perf_counter()
        made: dict[str, Any] = remote.backup(folder / "backups")
        figures.backup_seconds = time.perf_counter() - began
        figures.backup_bytes = int(made["bytes"])
        before = remote.queue(_PAYMENTS).counts().ready
        holdfast.restore_backup(Path(made["path"]), folder / "again")
        with holdfast.open(folder / "again", read_only=True) as restored:
            found = restored.queue(_PAYMENTS).counts().ready
            customers = restored.table(TABLE).count()
    took = format_duration(figures.backup_seconds)
    stage.say(f"{format_size(figures.backup_bytes)} in {took}; restored into another folder and compared")
    figures.promise(
        "the backup contains every payment and every customer", (found, customers) == (before, figures.customers)
    )


def _add_administrator(data: Path, password: str) -> None:
    """Add an administrator before the first start, as `holdfast user add` does."""
    with holdfast.open(data) as store:
        definitions = open_definitions(store)
        if definitions.is_new:
            definitions.begin()
        definitions.users().add(_OPERATOR, password, tags=("administrator",))


def _eventually(look: Any, wanted: int) -> int:
    """Call `look` until it returns `wanted`, or a timeout passes; return the last result."""
    deadline = time.monotonic() + 60
    while (found := int(look())) != wanted and time.monotonic() < deadline:
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
