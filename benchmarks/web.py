"""How long does one wait for the page and the metrics with ten thousand queues? `python -m benchmarks.web`.

A real `holdfast serve` process, with its queues declared over HTTP and a message in every second one; a client on the
same machine asks each address ten times, a bit more than a second apart, so that no answer is one that was kept.
Figures are seconds that a client waits. `--transient` takes queues that do not outlive the server, which are
declared without the disk.
"""

import argparse
import http.client
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from pathlib import Path
from typing import Any

from benchmarks.environment import describe

__all__ = ["PATHS", "main"]

PATHS = {
    "the page": "/",
    "metrics": "/metrics",
    "the overview": "/api/holdfast/overview",
    "a page of queues": "/api/holdfast/queues?page=1",
    "... sorted by depth": "/api/holdfast/queues?page=1&sort=ready&sort_reverse=true",
    "... sorted by age": "/api/holdfast/queues?page=1&sort=oldest_age&sort_reverse=true",
    "... sorted by lag": "/api/holdfast/queues?page=1&sort=lag&sort_reverse=true",
    "... of RabbitMQ's API": "/api/queues?page=1&page_size=100",
    "a page of logs": "/api/holdfast/logs?page=1",
    "metrics of each queue": "/metrics/per-object",
}
_RESULTS = Path(__file__).parent / "results" / "web.json"
_TIMES = 10
_PAUSE_S = 1.2


class Server:
    """`holdfast serve` on a folder, and one connection to its web."""

    def __init__(self, data: Path) -> None:
        command = [sys.executable, "-m", "holdfast", "serve", "--data", str(data), "--json"]
        command += ["--amqp-port", "0", "--http-port", "0", "--rpc-port", "0"]
        began = time.perf_counter()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        ports = {}
        for _ in range(3):
            said = json.loads(self.process.stdout.readline())
            ports[said["protocol"]] = said["port"]
        self.start_seconds = time.perf_counter() - began
        self._client = http.client.HTTPConnection("127.0.0.1", ports["http"])
        self._headers = {"Authorization": "Basic " + b64encode(b"guest:guest").decode()}

    def ask(self, method: str, path: str, content: object = None) -> bytes:
        """The answer to a request, which must be a good one."""
        body, headers = None, dict(self._headers)
        if content is not None:
            body, headers["Content-Type"] = json.dumps(content).encode(), "application/json"
        self._client.request(method, path, body, headers)
        answer = self._client.getresponse()
        read = answer.read()
        assert answer.status < 300, (path, answer.status, read[:200])
        return read

    def facts(self) -> dict[str, float]:
        """What the process holds."""
        process = Path(f"/proc/{self.process.pid}")
        resident = next(line for line in (process / "status").read_text().splitlines() if line.startswith("VmRSS"))
        return {"open_files": len(list((process / "fd").iterdir())), "resident_mib": int(resident.split()[1]) >> 10}

    def stop(self) -> float:
        """How long it takes to end."""
        began = time.perf_counter()
        self.process.terminate()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return time.perf_counter() - began


def main() -> None:
    """Measure, print, and keep."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--transient", action="store_true", help="queues that do not outlive the server")
    parser.add_argument("--dry", action="store_true", help="keep no results")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with tempfile.TemporaryDirectory(prefix="holdfast-web-") as folder:
        server = Server(Path(folder) / "data")
        began = time.perf_counter()
        for number in range(options.queues):
            server.ask("PUT", f"/api/queues/%2F/q{number}", {"durable": not options.transient})
            if number % 2:
                server.ask("POST", f"/api/holdfast/queues/%2F/q{number}/messages", {"messages": [{"payload": "x"}]})
        found: dict[str, Any] = {"declare_seconds": time.perf_counter() - began, **server.facts()}
        waits = {name: _waits(server, path) for name, path in PATHS.items()}
        found["stop_seconds"] = server.stop()
        if not options.transient:
            server = Server(Path(folder) / "data")
            found["start_seconds"] = server.start_seconds
            server.stop()
    lines = {name: {"median": statistics.median(one), "worst": max(one)} for name, one in waits.items()}
    for name, one in lines.items():
        print(f"{name:24} median {one['median'] * 1000:7.1f} ms, worst {one['worst'] * 1000:7.1f} ms")
    for name, figure in found.items():
        print(f"{name:24} {figure:,.1f}")
    if not options.dry:
        kept = {
            "benchmark": "web",
            "environment": describe(_RESULTS.parent),
            "queues": options.queues,
            "files_allowed": hard,
        }
        content = {**kept, "durable": not options.transient, "waits": lines, **found}
        _RESULTS.write_text(json.dumps(content, indent=1, default=str) + "\n")


def _waits(server: Server, path: str) -> list[float]:
    waited = []
    for _ in range(_TIMES):
        time.sleep(_PAUSE_S)
        began = time.perf_counter()
        server.ask("GET", path)
        waited.append(time.perf_counter() - began)
    return waited


if __name__ == "__main__":
    main()
