"""Credentials appear nowhere: not in logs, errors, tracebacks, metrics, the API, the doctor, `ps`, reprs or pickles."""

import contextlib
import io
import json
import logging
import os
import pickle
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

import holdfast
from holdfast import HoldfastError
from holdfast.replica import open_bucket, overview, restore, verify_replica
from holdfast.replica.doctor_checks import check_replica
from tests.amqp.serving import eventually
from tests.replica.s3_server import FAULTS, S3Server, running_s3
from tests.web.serving import Served

URL = "s3://tests/prefix"
MARKS = {
    "AWS_ACCESS_KEY_ID": "MARKEDACCESSKEY",
    "AWS_SECRET_ACCESS_KEY": "marked/secret+key",
    "AWS_SESSION_TOKEN": "marked-session-token",
}
USER, PASSWORD = "markeduser", "markedpassword"
SECRETS = (*MARKS.values(), *(quote(one, safe="") for one in MARKS.values()), USER, PASSWORD)


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """A server, and marked credentials for it in the environment, also in the endpoint."""
    pytest.importorskip("obstore")
    monkeypatch.setattr("holdfast.replica.bucket.ANSWER_S", 1)
    monkeypatch.setattr("holdfast.replica.bucket.RETRY_S", 0.1)
    monkeypatch.setattr("holdfast.replica.replica.BACKOFF_S", 1.0)
    with running_s3() as server:
        for name, value in MARKS.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint.replace("http://", f"http://{USER}:{PASSWORD}@"))
        yield server


class Transcript:
    """All that anybody could read."""

    def __init__(self) -> None:
        self.text = io.StringIO()

    def add(self, what: object) -> None:
        self.text.write(f"{what}\n")

    @contextlib.contextmanager
    def failures(self) -> Iterator[None]:
        """Note an error as a program shows it, with all that hangs at it."""
        try:
            yield
        except HoldfastError as error:
            self.add("".join(traceback.format_exception(error)))
            self.add(f"{error!r} {error.args!r} {vars(error)!r} {error.__cause__!r} {error.__context__!r}")
            with contextlib.suppress(TypeError):
                self.add(pickle.dumps(error))

    def check(self, *, at_least: str) -> None:
        text = self.text.getvalue()
        assert at_least in text, "it looked at the wrong place"
        assert [one for one in SECRETS if one in text] == []


@pytest.fixture
def transcript(caplog: pytest.LogCaptureFixture) -> Iterator[Transcript]:
    found = Transcript()
    handler = logging.StreamHandler(found.text)
    handler.setFormatter(logging.Formatter("%(name)s %(message)s %(url)s", defaults={"url": ""}))
    logging.getLogger().addHandler(handler)
    with caplog.at_level(logging.DEBUG):
        yield found
    logging.getLogger().removeHandler(handler)


def test_the_credentials_are_sent_and_so_could_be_shown(s3: S3Server) -> None:
    open_bucket(URL).put("x", b"x")
    assert MARKS["AWS_ACCESS_KEY_ID"] in s3.headers["authorization"]
    assert s3.headers["x-amz-security-token"] == MARKS["AWS_SESSION_TOKEN"]


def test_no_fault_shows_credentials_in_a_served_store(s3: S3Server, tmp_path: Path, transcript: Transcript) -> None:
    with Served(tmp_path / "data", replica_lag_limit=0.1, history_interval=0) as served:
        served.store.ship_to(open_bucket(URL))
        served.site.replica.start()
        served.store.log("events").append(b"before")
        served.store.replica.ship()
        token = served.post("/api/holdfast/login", {"username": "guest", "password": "guest"})["token"]
        for fault in FAULTS:
            s3.fail(fault)
            served.store.log("events").append(b"meanwhile")
            with transcript.failures():
                served.store.replica.ship()
            transcript.add(served.store.replica.status())
            for path in ("/health/ready", "/health/replica", "/metrics"):
                transcript.add(served.ask("GET", path, user=None).body.decode())
            for path in ("replica", "overview", "doctor"):
                transcript.add(served.ask("GET", f"/api/holdfast/{path}", token=token).body.decode())
            transcript.add(served.ask("GET", "/api/health/checks/alarms", token=token).body.decode())
            s3.heal()
            eventually(lambda: served.store.replica.status().ok)
        transcript.add((served.store.path / "transient" / "server.json").read_text())
    transcript.check(at_least="the credentials have expired")


def test_no_fault_shows_credentials_in_what_reads_the_bucket(
    s3: S3Server, tmp_path: Path, transcript: Transcript
) -> None:
    with holdfast.open(tmp_path / "data", replica=URL) as store:
        store.log("events").append(b"before")
        transcript.add(repr(store.replica))
    for fault in FAULTS:
        s3.fail(fault)
        for call in (
            lambda: overview(URL),
            lambda: verify_replica(URL),
            lambda: restore(URL, tmp_path / "restored"),
            lambda: list(check_replica(URL, tmp_path / "data", probe=True)),
            lambda: holdfast.open(tmp_path / "new", replica="s3://tests/new"),
        ):
            with transcript.failures():
                transcript.add(call())
        with transcript.failures(), holdfast.open(tmp_path / "data", replica=URL) as store:
            transcript.add(store.replica.status())
        s3.heal()
    transcript.check(at_least="HTTP 503 SlowDown")


@pytest.mark.parametrize(
    "url",
    [
        f"s3://{USER}:{PASSWORD}@tests/prefix",
        f"s3://tests/prefix?secret={MARKS['AWS_SESSION_TOKEN']}",
        f"https://{USER}:{PASSWORD}@host/bucket",
        f"{USER}:{PASSWORD}@tests",
        f"s3://{USER}:marked/secret+key@tests/prefix",
    ],
)
def test_a_url_with_credentials_is_refused_without_showing_them(
    url: str, tmp_path: Path, transcript: Transcript
) -> None:
    with transcript.failures():
        open_bucket(url)
    with transcript.failures():
        holdfast.open(tmp_path / "data", replica=url)
    transcript.add(list(check_replica(url, tmp_path)))
    transcript.check(at_least="replica")


def test_reprs_and_pickles_have_no_credentials(s3: S3Server, tmp_path: Path, transcript: Transcript) -> None:
    bucket = open_bucket(URL)
    transcript.add(f"{bucket!r} {bucket} {bucket.url}")
    with pytest.raises(TypeError, match="cannot be pickled: open it again by its URL"):
        pickle.dumps(bucket)
    with holdfast.open(tmp_path / "data", replica=URL) as store:
        status = store.replica.status()
        transcript.add(f"{status!r} {pickle.dumps(status)!r} {store.replica!r} {vars(store.replica)!r}")
    transcript.check(at_least="s3://tests/prefix")


@pytest.mark.slow
def test_commands_and_the_list_of_processes_show_no_credentials(
    s3: S3Server, tmp_path: Path, transcript: Transcript
) -> None:
    """The commands as processes of their own: what they print, and what `ps` shows of a server."""
    environment = {**os.environ, "HOLDFAST_REPLICA": URL}
    command = [sys.executable, "-X", "faulthandler", "-m", "holdfast"]
    serve = [*command, "serve", "--data", str(tmp_path / "data"), "--verbose", "--json", "--host", "127.0.0.1"]
    serve += ["--amqp-port", "0", "--http-port", "0", "--rpc-port", "none"]
    output = tmp_path / "output"
    with output.open("w") as file:
        process = subprocess.Popen(serve, stdout=file, stderr=subprocess.STDOUT, env=environment)
    try:
        eventually(lambda: output.read_text().count('"protocol"') >= 2)
        transcript.add(Path(f"/proc/{process.pid}/cmdline").read_bytes())
        for fault in ("refused", "wrong-region", "truncate"):
            s3.fail(fault)
            for arguments in (["replica", "status", URL], ["doctor", "--data", str(tmp_path / "data")]):
                done = subprocess.run(
                    [*command, *arguments], env=environment, capture_output=True, text=True, check=False, timeout=300
                )
                transcript.add(done.stdout + done.stderr)
            s3.heal()
        time.sleep(1)
        s3.fail("expired")
        eventually(lambda: "the credentials have expired" in output.read_text())
        s3.heal()
    finally:
        process.terminate()
        process.wait(120)
    transcript.add(output.read_text())
    for line in output.read_text().splitlines():
        if line.startswith("{"):
            json.loads(line)
    transcript.check(at_least="refused access")
