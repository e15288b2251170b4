"""The store of runs in S3: objects that appear whole and once, whatever the network and the store do."""

from __future__ import annotations

import io
import logging
import os
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.archive.s3_server import Fault, Proxy, Request, answer, running_proxy, running_server
from viewstamp.archive.s3_store import S3Objects
from viewstamp.archive.store import ObjectFile
from viewstamp.errors import CorruptionError, StorageError, StorageFullError, UnavailableError, ViewstampError
from viewstamp.host.attempts import Attempts
from viewstamp.host.object_url import ObjectUrl

pytest.importorskip("botocore", reason="botocore is not installed")
pytest.importorskip("moto.server", reason="moto is not installed")

pytestmark = pytest.mark.slow

PART = 5 * 1024 * 1024
SMALL = [b"one", b"", b"two" * 1000]
LARGE = [b"one" * 1_000_000, b"two" * 1_500_000, b"three" * 700_000]
NAME = "c1/00000000000000000007.parquet"
KEY, SECRET, TOKEN = "the-access-key", "the-secret-key", "the-session-token"


@pytest.fixture(scope="module", name="server")
def _server() -> Iterator[str]:
    with running_server() as url:
        yield url


@pytest.fixture
def proxy(server: str) -> Iterator[Proxy]:
    with running_proxy(server) as found:
        yield found


Make = Callable[..., S3Objects]


@pytest.fixture
def make(proxy: Proxy) -> Make:
    """Return a function that opens a new bucket, or one by its name, with quick pauses."""

    def make(
        bucket: str = "", *, timeout: float = 60.0, attempts: int = 3, rest: float = 0.0, **more: Any
    ) -> S3Objects:
        name = bucket or f"bucket-{os.urandom(6).hex()}"
        url = ObjectUrl(name, "a/folder")
        objects = S3Objects(
            url,
            options={
                "endpoint_url": proxy.url,
                "region_name": "us-east-1",
                "aws_access_key_id": KEY,
                "aws_secret_access_key": SECRET,
                "aws_session_token": TOKEN,
            },
            attempts=Attempts(url.text, remedy="wait", timeout=timeout, attempts=attempts, pause=0.01, rest=rest),
            part_bytes=PART,
            **more,
        )
        if not bucket:
            objects._call("create the bucket", "create_bucket", Bucket=name)
        return objects

    return make


@pytest.fixture
def store(make: Make) -> S3Objects:
    return make()


def whole(store: S3Objects, name: str = NAME) -> bytes:
    return store.read_part(name, 0, 1 << 30)


@pytest.mark.parametrize("pieces", [SMALL, LARGE], ids=["whole", "in parts"])
def test_an_object_is_created_once_and_read_in_parts(store: S3Objects, pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    assert store.list_sizes("c1/") == {}
    with pytest.raises(FileNotFoundError):
        store.read_part(NAME, 0, 1)
    store.create(NAME, pieces)
    assert store.list_sizes("c1/") == {NAME: len(data)}
    assert whole(store) == data
    assert store.read_part(NAME, 2, 3) == data[2:5]
    assert store.read_part(NAME, len(data) - 2, 9) == data[-2:]
    assert store.read_part(NAME, len(data), 9) == store.read_part(NAME, len(data) + 5, 9) == b""
    assert store.read_part(NAME, 5, 0) == b""
    with pytest.raises(FileExistsError):
        store.create(NAME, [b"other"])
    assert whole(store) == data
    store.remove(NAME)
    store.remove(NAME)
    assert store.list_sizes("c1/") == {}


@pytest.mark.parametrize("pieces", [SMALL, LARGE], ids=["whole", "in parts"])
def test_of_two_writers_the_first_to_finish_has_the_name(store: S3Objects, pieces: list[bytes]) -> None:
    first, second = store.begin(NAME), store.begin(NAME)
    first.write(b"the first")
    for piece in pieces:
        second.write(piece)
    first.finish()
    with pytest.raises(FileExistsError):
        second.finish()
    second.abandon()
    assert whole(store) == b"the first"
    assert store.list_sizes("c1/") == {NAME: 9}


def test_parts_of_a_dead_writer_are_listed_and_removed(store: S3Objects, proxy: Proxy) -> None:
    dead = store.begin(NAME)
    dead.write(b"x" * PART)
    assert store.list_sizes("c1/") == {NAME: 0}
    store.remove(NAME)
    assert store.list_sizes("c1/") == {}
    proxy.first("PUT", "partNumber=2", answer(404, "NoSuchUpload"))  # moto itself answers with 500.
    with pytest.raises(UnavailableError, match="another process has removed"):
        dead.write(b"x" * PART)


def test_a_writer_whose_parts_were_removed_cannot_finish(store: S3Objects, proxy: Proxy) -> None:
    deposed = store.begin(NAME)
    deposed.write(b"x" * PART)
    store.remove(NAME)
    proxy.first("POST", "uploadId", answer(404, "NoSuchUpload"))  # moto itself answers with 500.
    with pytest.raises(FileNotFoundError):
        deposed.finish()
    assert store.list_sizes("c1/") == {}


def test_an_abandoned_object_leaves_nothing_and_keeps_that_of_another(store: S3Objects) -> None:
    creation, other = store.begin(NAME), store.begin(NAME)
    creation.write(b"x" * (PART + 1))
    other.write(b"other")
    other.finish()
    creation.abandon()
    assert store.list_sizes("c1/") == {NAME: 5}


def test_lists_of_many_pages_are_whole(make: Make) -> None:
    store = make(page=2)
    names = [f"c1/{number}" for number in range(7)]
    for name in names:
        store.create(name, [b"x"])
    uploads = [f"c1/u{number}" for number in range(3)]
    for name in uploads:
        store.begin_upload(name)
    store.create("c2/other", [b"x"])
    assert store.list_sizes("c1/") == {**dict.fromkeys(names, 1), **dict.fromkeys(uploads, 0)}


# The store is away, slow, or answers with errors.


@pytest.mark.parametrize(
    "fault",
    [Fault(is_lost=True), answer(503, "SlowDown"), answer(500, "InternalError"), answer(429, "TooManyRequests")],
    ids=["lost", "slow down", "500", "429"],
)
def test_a_store_that_fails_for_a_moment_is_asked_again(store: S3Objects, proxy: Proxy, fault: Fault) -> None:
    store.create("c1/other", SMALL)
    for method, part in (("PUT", NAME), ("GET", NAME), ("GET", "list-type"), ("DELETE", NAME)):
        proxy.first(method, part, fault, times=2)
        {
            "PUT": lambda: store.create(NAME, SMALL),
            "GET": lambda: (whole(store), store.list_sizes("c1/")),
            "DELETE": lambda: store.remove(NAME),
        }[method]()
    assert store.list_sizes("c1/") == {"c1/other": 3003}


def test_a_store_that_is_away_is_an_error_after_a_bounded_number_of_attempts(make: Make, proxy: Proxy) -> None:
    store = make()
    store.create(NAME, SMALL)
    proxy.requests.clear()
    proxy.fault = lambda _: Fault(is_lost=True)
    with pytest.raises(UnavailableError, match=r"did not read .* in 3 attempts of 60 s"):
        whole(store)
    assert len(proxy.requests) == 3


def test_a_store_that_hangs_is_an_error_after_a_bounded_time(make: Make, proxy: Proxy) -> None:
    store = make()
    store.create(NAME, SMALL)
    store._attempts.timeout = 0.05
    release = threading.Event()
    proxy.fault = lambda _: Fault(waits_for=release)
    with pytest.raises(UnavailableError, match=r"no answer within 0\.05 s"):
        whole(store)
    release.set()


def test_after_a_call_without_an_answer_the_store_is_left_alone_until_one_call_succeeds(
    make: Make, proxy: Proxy
) -> None:
    now = [100.0]
    store = make()
    store.create(NAME, SMALL)
    store._attempts = Attempts(
        store.where, remedy="wait", timeout=60, attempts=2, pause=0.01, rest=10.0, monotonic=lambda: now[0]
    )
    proxy.fault = lambda _: answer(503, "SlowDown")
    with pytest.raises(UnavailableError, match="2 attempts"):
        whole(store)
    proxy.requests.clear()
    with pytest.raises(UnavailableError, match="the next call may try in 10 s"):
        whole(store)
    assert proxy.requests == []
    now[0] += 10
    with pytest.raises(UnavailableError, match="1 attempts"):
        whole(store)
    assert len(proxy.requests) == 1
    with pytest.raises(UnavailableError, match="the next call may try"):
        whole(store)
    proxy.fault = lambda _: None
    now[0] += 10
    assert whole(store) == whole(store) == b"".join(SMALL)


def test_a_refusal_is_an_answer_and_closes_the_breaker(make: Make, proxy: Proxy) -> None:
    store = make(rest=1000.0, attempts=1)
    store.create(NAME, SMALL)
    for _ in range(2):
        proxy.fault = lambda _: answer(403, "AccessDenied")
        with pytest.raises(StorageError, match="AccessDenied"):
            whole(store)
    proxy.fault = lambda _: None
    assert whole(store) == b"".join(SMALL)


@pytest.mark.parametrize(
    ("fault", "error", "text", "remedy"),
    [
        (answer(403, "AccessDenied"), StorageError, "refuses to create", "give these credentials"),
        (answer(403, "InvalidAccessKeyId"), StorageError, "InvalidAccessKeyId", "give these credentials"),
        (answer(405, "MethodNotAllowed"), StorageError, "refuses to create", "give these credentials"),
        (answer(403, "RequestTimeTooSkewed"), StorageError, "clock of this machine differs", "NTP"),
        (answer(507, "InsufficientStorage"), StorageFullError, "is full: it cannot create", "the log keeps"),
        (answer(403, "QuotaExceeded"), StorageFullError, "is full: it cannot create", "raise its quota"),
        (answer(404, "NoSuchBucket"), StorageError, "NoSuchBucket", "create the bucket"),
        (answer(301, "PermanentRedirect"), StorageError, "PermanentRedirect", "AWS_REGION"),
    ],
)
def test_a_refusal_is_reported_at_once(
    store: S3Objects, proxy: Proxy, fault: Fault, error: type[ViewstampError], text: str, remedy: str
) -> None:
    store.prove()
    proxy.requests.clear()
    proxy.first("PUT", NAME, fault, times=9)
    with pytest.raises(error, match=text) as raised:
        store.create(NAME, SMALL)
    assert remedy in raised.value.remedy
    assert type(raised.value) is error
    assert len(proxy.of("PUT", NAME)) <= 1 + (text == "PermanentRedirect"), "botocore follows redirections"
    proxy.fault = lambda _: None
    assert store.list_sizes("c1/") == {}


def test_a_full_store_leaves_no_parts(store: S3Objects, proxy: Proxy) -> None:
    store.prove()
    proxy.first("PUT", "partNumber=2", answer(507, "InsufficientStorage"))
    with pytest.raises(StorageFullError):
        store.create(NAME, LARGE)
    assert store.list_sizes("c1/") == {}


# Answers that are lost.


@pytest.mark.parametrize(
    ("pieces", "method", "part"),
    [(SMALL, "PUT", NAME), (LARGE, "POST", "uploadId"), (LARGE, "PUT", "partNumber=2"), (LARGE, "POST", "uploads")],
    ids=["whole", "completion of parts", "a part", "begin of parts"],
)
def test_an_object_is_there_once_if_the_answer_of_a_request_is_lost(
    store: S3Objects, proxy: Proxy, pieces: list[bytes], method: str, part: str
) -> None:
    store.prove()
    proxy.first(method, part, Fault(is_answer_lost=True))
    store.create(NAME, pieces)
    assert whole(store) == b"".join(pieces)
    assert list(store._uploads("")) == []


@pytest.mark.parametrize("pieces", [SMALL, LARGE], ids=["whole", "in parts"])
def test_the_object_of_another_writer_is_never_taken_for_the_own_one(
    store: S3Objects, proxy: Proxy, pieces: list[bytes]
) -> None:
    """The first attempt did not reach the store, and another process created an object of this name and size."""
    other = [b"other".join(pieces)[: len(b"".join(pieces))]]
    creation, winner = store.begin(NAME), store.begin(NAME)
    for piece in pieces:
        creation.write(piece)
    winner.write(other[0])
    left = [1]

    def fault(request: Request) -> Fault | None:
        is_last = request.method == "PUT" if pieces is SMALL else request.method == "POST"
        if is_last and NAME in request.path and left[0]:
            left[0] = 0
            winner.finish()
            return Fault(is_lost=True)
        return None

    proxy.fault = fault
    with pytest.raises(FileExistsError):
        creation.finish()
    creation.abandon()
    assert whole(store) == other[0]


def test_if_no_attempt_has_an_answer_nothing_is_claimed(store: S3Objects, proxy: Proxy) -> None:
    store.prove()
    proxy.first("PUT", NAME, Fault(is_answer_lost=True), times=3)
    with pytest.raises(UnavailableError, match="did not create"):
        store.create(NAME, SMALL)
    assert whole(store) == b"".join(SMALL), "it may be there"
    store.remove(NAME)
    assert store.list_sizes("c1/") == {}


# Stores that are not what they should be.


@pytest.mark.parametrize(("method", "way"), [("PUT", "in one request"), ("POST", "in parts")], ids=["PUT", "POST"])
def test_a_store_that_ignores_the_condition_is_refused_before_the_first_object(
    make: Make, proxy: Proxy, method: str, way: str
) -> None:
    store = make()
    ignoring = Fault(without=("If-None-Match",))
    proxy.fault = lambda request: ignoring if request.method == method else None
    for _ in range(2):
        with pytest.raises(StorageError, match=f"replaced an object that was sent {way}"):
            store.create(NAME, SMALL)
    assert store.list_sizes("c1/") == store.list_sizes("viewstamp-probe/") == {}
    proxy.fault = lambda _: None
    store.create(NAME, SMALL)


def test_a_store_that_ignores_ranges_is_refused(make: Make, proxy: Proxy) -> None:
    store = make()
    proxy.fault = lambda _: Fault(without=("Range",))
    with pytest.raises(StorageError, match="with others"):
        store.create(NAME, SMALL)


def test_of_an_answer_that_is_longer_than_asked_for_only_one_byte_more_is_read(store: S3Objects, proxy: Proxy) -> None:
    store.create(NAME, SMALL)
    surplus = 64 * 1024 * 1024
    proxy.first("GET", NAME, Fault(surplus=surplus))
    with pytest.raises(StorageError, match=r"answered a request for bytes 0 to 99 of .* with others"):
        store.read_part(NAME, 0, 100)
    assert proxy.surplus_bytes < surplus  # What the sockets hold was sent.


def test_the_store_is_proven_once(store: S3Objects, proxy: Proxy) -> None:
    store.create(NAME, SMALL)
    proxy.requests.clear()
    store.create("c1/other", SMALL)
    assert proxy.of("PUT", "viewstamp-probe") == []
    assert store.list_sizes("viewstamp-probe/") == {}


def test_a_check_does_not_wait_for_a_store_that_hangs_and_tells_its_trouble(make: Make, proxy: Proxy) -> None:
    store = make()
    release = threading.Event()
    proxy.fault = lambda _: Fault(waits_for=release)
    with pytest.raises(UnavailableError, match="has not answered yet"):
        store.check_usable()
    release.set()
    proxy.fault = lambda _: None
    while True:
        try:
            store.check_usable()
            break
        except UnavailableError:
            continue
    assert store.status() == {"where": store.where, "trouble": "", "remedy": "", "is_current": True}


def test_the_answer_to_a_read_that_ends_early_is_asked_for_again(store: S3Objects, proxy: Proxy) -> None:
    store.create(NAME, SMALL)
    proxy.first("GET", NAME, Fault(is_cut=True))
    assert whole(store) == b"".join(SMALL)


def test_an_object_that_is_shorter_than_the_catalogue_says_is_damage(store: S3Objects) -> None:
    store.create(NAME, SMALL)
    file = ObjectFile(store, NAME, 5000)
    file.seek(2900)
    with pytest.raises(CorruptionError, match="ends at byte 3003 instead of 5000"):
        file.read(200)
    store.remove(NAME)
    file.seek(0)
    with pytest.raises(CorruptionError, match="it is not there"):
        file.read(1)


# Secrets.


def test_no_secret_is_in_an_error_a_log_line_or_a_repr(
    make: Make, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    """Stores may repeat what they got, and libraries log the headers of requests at the level DEBUG."""
    for name in ("botocore", "urllib3"):
        logging.getLogger(name).setLevel(logging.NOTSET)
    caplog.set_level(logging.DEBUG)
    store = make()
    texts = [repr(store), repr(store._client)]
    said = f"the key {KEY} with the secret {SECRET} and the token {TOKEN} of //user:password@host is wrong"
    for fault in (answer(403, "SignatureDoesNotMatch", said), answer(503, "SlowDown", said), Fault(is_lost=True)):
        proxy.fault = lambda _, fault=fault: fault  # type: ignore[misc]
        with pytest.raises(ViewstampError) as raised:
            whole(store)
        trace = io.StringIO()
        traceback.print_exception(raised.value, file=trace)
        texts += [trace.getvalue(), repr(raised.value), raised.value.remedy]
    texts.append(caplog.text)
    found = [secret for secret in (SECRET, TOKEN, "user:password") for text in texts if secret in text]
    assert found == []


def test_missing_credentials_are_named(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.url)
    store = S3Objects(ObjectUrl("bucket", ""))
    with pytest.raises(StorageError, match="Unable to locate credentials") as raised:
        whole(store)
    assert "AWS_ACCESS_KEY_ID" in raised.value.remedy


def test_credentials_and_endpoint_come_from_the_environment(
    make: Make, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = make()._bucket
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    store = S3Objects(ObjectUrl(bucket, ""))
    proxy.requests.clear()
    store.create(NAME, SMALL)
    assert all(f"{KEY}/" in each.headers["Authorization"] for each in proxy.requests)
