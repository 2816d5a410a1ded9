"""The same promises of each bucket: SeaweedFS through obstore, a folder, and the simulated one."""

import itertools
import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.base.bucket import Bucket, ListedObject, ObjectMissing
from holdfast.base.errors import ReplicaError, ReplicaUnavailable
from holdfast.replica.bucket import open_bucket
from holdfast.testing import SimBucket
from tests.replica.seaweed import SECRET, Seaweed

pytestmark = pytest.mark.xdist_group("seaweed")  # one server for all
_numbers = itertools.count()


@pytest.fixture(params=["simulated", "folder", "s3"])
def bucket(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    if request.param == "simulated":
        return SimBucket()
    if request.param == "folder":
        return open_bucket((tmp_path / "a folder").as_uri())
    for name, value in request.getfixturevalue("seaweed").environment().items():
        monkeypatch.setenv(name, value)
    return open_bucket(f"s3://tests/prefix {next(_numbers)}/deep")


def test_an_object_is_written_read_replaced_and_deleted(bucket: Bucket) -> None:
    with pytest.raises(ObjectMissing):
        bucket.get("logs/a%2Fb/1.0-10.1")
    bucket.put("logs/a%2Fb/1.0-10.1", b"0123456789")
    bucket.put("logs/c", b"")
    assert bucket.get("logs/a%2Fb/1.0-10.1").content == b"0123456789"
    assert bucket.get_range("logs/a%2Fb/1.0-10.1", 2, 5) == b"234"
    assert bucket.get_range("logs/a%2Fb/1.0-10.1", 8, 50) == b"89"
    assert bucket.list("") == [ListedObject("logs/a%2Fb/1.0-10.1", 10), ListedObject("logs/c", 0)]
    assert bucket.list("manifest/") == []
    bucket.put("logs/c", b"longer")
    bucket.delete(["logs/a%2Fb/1.0-10.1", "logs/never"])
    assert bucket.list("logs/") == [ListedObject("logs/c", 6)]
    with pytest.raises(ObjectMissing):
        bucket.get_range("logs/a%2Fb/1.0-10.1", 0, 1)


def test_conditional_writes(bucket: Bucket) -> None:
    etag = bucket.put_if_absent("owner.json", b"one")
    assert etag == bucket.get("owner.json").etag
    assert bucket.put_if_absent("owner.json", b"two") is None
    assert etag is not None
    second = bucket.compare_and_swap("owner.json", b"two", etag)
    assert second is not None
    assert second != etag
    assert bucket.compare_and_swap("owner.json", b"three", etag) is None
    assert bucket.compare_and_swap("gone.json", b"three", etag) is None
    found = bucket.get("owner.json")
    assert (found.content, found.etag) == (b"two", second)


def race(bucket: Bucket, claim: Callable[[bytes], str | None]) -> list[bytes]:
    """Let eight threads claim at once; return who thinks that it has won."""
    barrier, winners = threading.Barrier(8), []

    def run(name: bytes) -> None:
        barrier.wait()
        while True:
            try:
                if claim(name) is not None:
                    winners.append(name)
                return
            except ReplicaUnavailable:  # the lock of the folder
                continue

    threads = [threading.Thread(target=run, args=(b"%d" % number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return winners


def test_of_eight_that_write_at_once_one_wins(bucket: Bucket) -> None:
    winners = race(bucket, lambda name: bucket.put_if_absent("owner.json", name))
    assert [bucket.get("owner.json").content] == winners
    for _ in range(5):
        etag = bucket.get("owner.json").etag
        before = bucket.get("owner.json").content
        winners = race(
            bucket,
            lambda name, etag=etag, before=before: bucket.compare_and_swap(  # type: ignore[misc]
                "owner.json", before + name, etag
            ),
        )
        assert len(winners) == 1
        assert bucket.get("owner.json").content == before + winners[0]


def test_errors_say_what_to_do_and_have_no_credentials(seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(url: str, environment: dict[str, str], call: Callable[[Bucket], object]) -> str:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(ReplicaError) as failed:
            call(open_bucket(url))
        chain = f"{failed.value!r} {failed.value.__cause__!r} {failed.value.__context__!r}"
        assert SECRET not in chain
        assert "wrong-secret" not in chain
        return f"{type(failed.value).__name__}: {failed.value}"

    def put(bucket: Bucket) -> None:
        bucket.put("x", b"x")

    mine = seaweed.environment()
    assert "s3://nobody/x: there is no such bucket (HTTP 404 NoSuchBucket)" in failing(
        "s3://nobody/x", mine, lambda bucket: bucket.list("")
    )
    assert "there is no such bucket" in failing("s3://nobody/x", mine, lambda bucket: bucket.get("owner.json"))
    assert "refused access (HTTP 403 AccessDenied). Check the credentials" in failing(
        "s3://tests/x", seaweed.environment(reader=True), put
    )
    assert "refused access" in failing("s3://tests/x", seaweed.environment(secret="wrong-secret"), put)
    away = {**mine, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    assert failing("s3://tests/x", away, put).startswith("ReplicaUnavailable: s3://tests/x/x: S3 is not available")
    for name, value in mine.items():
        monkeypatch.setenv(name, value)
    assert SECRET not in repr(open_bucket("s3://tests/x"))


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("status code: 503 Slow Down <Code>SlowDown</Code>", ReplicaUnavailable, "HTTP 503 SlowDown"),
        ("status code: 400 <Code>ExpiredToken</Code>", ReplicaError, "credentials have expired"),
        ("status code: 400 <Code>AuthorizationHeaderMalformed</Code>", ReplicaError, "another region"),
        ("status code: 403 <Code>RequestTimeTooSkewed</Code>", ReplicaError, "the clock of this machine is wrong"),
        ("HTTP error: operation timed out", ReplicaUnavailable, "no answer"),
        ("the credential provider was not enabled", ReplicaError, "no credentials were found"),
    ],
)
def test_answers_that_no_server_here_gives(text: str, kind: type[ReplicaError], said: str) -> None:
    from holdfast.replica.bucket import error_of

    error = error_of(RuntimeError(f"{text} https://x/?X-Amz-Signature=abc"), "s3://bucket/prefix", "key", "S3")
    assert type(error) is kind
    assert said in str(error)
    assert "Signature" not in str(error)


def test_a_conditional_write_is_sent_to_google(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused before it is sent unless it names a generation."""
    pytest.importorskip("obstore")
    account = {"private_key": "x", "private_key_id": "x", "client_email": "x", "disable_oauth": True}
    account["gcs_base_url"] = "https://127.0.0.1:9"
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", json.dumps(account))
    monkeypatch.setattr("holdfast.replica.bucket.RETRY_S", 0)
    with pytest.raises(ReplicaUnavailable):
        open_bucket("gs://bucket/prefix").compare_and_swap("owner.json", b"x", "17")


def test_without_obstore_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(ReplicaError, match=r'pip install "holdfast\[replica\]"'):
        open_bucket("s3://bucket/prefix")


def test_a_folder_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(ReplicaError, match="Not a directory"):
        open_bucket((tmp_path / "file").as_uri()).put("a", b"x")
