"""The store of runs in a bucket of S3, or of a store with its protocol. Needs the extra ``viewstamp[s3]``.

An object is created by a conditional request (``If-None-Match: *``), which the store refuses if the name is in use. A
store that ignores the condition would let a deposed leader replace an object. So before the first object is created,
``prove`` tries it with an object of its own, in both ways in which objects are created.

Small objects are sent in one request, others in parts of 8 MiB, each of which is in memory while it is sent:

| the process dies in | the bucket then has |
| --- | --- |
| ``begin``, ``write`` | nothing, or parts that nobody can read: ``list_sizes`` has their name with size 0 |
| ``finish`` | the same, or the object |
| ``remove`` | parts, or the object, or both; a second ``remove`` removes them |
| ``prove`` | an object or parts below ``viewstamp-probe/``, which nothing reads |

| the answer is lost to | the next attempt |
| --- | --- |
| the request that creates the object | is refused. Then the object is read back and compared with what was sent |
| the request that begins an upload | begins another one; the first ends with the object's creation, or by ``remove`` |
| the request with a part | sends the part again, in place of the first |
| a list, a read, a removal | has the same effect |

If no attempt has an answer, the object may be there, or appear later: the caller must not use the name for other bytes.

Credentials, region and endpoint come from where the AWS tools have them (environment variables, ``~/.aws``, the
machine's role); ``AWS_ENDPOINT_URL_S3`` names a store other than Amazon's.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from viewstamp.archive.s3_client import S3Client, load_s3
from viewstamp.archive.store import ObjectCreation
from viewstamp.archive.store_watch import StoreWatch
from viewstamp.errors import StorageError, UnavailableError, ViewstampError
from viewstamp.host.attempts import Attempts
from viewstamp.host.interfaces import Buffer
from viewstamp.host.object_url import ObjectUrl

__all__ = ["S3Objects"]

ResultT = TypeVar("ResultT")

PART_BYTES: Final = 8 * 1024 * 1024
"""Bytes of one part; S3 takes at least 5 MiB and at most 10,000 parts."""
_ATTEMPTS: Final = 3
_PAUSE_SECONDS: Final = 0.5
_TIMEOUT_SECONDS: Final = 30.0
_REST_SECONDS: Final = 10.0
_PAGE: Final = 1000
_PROBES: Final = "viewstamp-probe/"
_RANGES: Final = "use a store that reads ranges of objects, without a proxy that changes them"


class S3Objects:
    """A folder of a bucket. It has the calls of :class:`~viewstamp.archive.store.ObjectStore`; for several threads."""

    def __init__(
        self,
        url: ObjectUrl,
        *,
        options: Mapping[str, Any] | None = None,
        attempts: Attempts | None = None,
        part_bytes: int = PART_BYTES,
        page: int = _PAGE,
        on_change: Callable[[str, str], None] = lambda _trouble, _remedy: None,
    ) -> None:
        """Use a folder; nothing is sent.

        Args:
          url: the folder.
          options: arguments of the client of botocore, for example ``endpoint_url``; None = from the environment.
          attempts: makes the calls; None = with limits for a store in a network.
          part_bytes: objects that are longer are sent in parts of this size.
          page: names in one answer to a list.
          on_change: as that of ``StoreWatch``.

        Raises:
          ConfigError: botocore is not installed.
        """
        load_s3()
        self.where = url.text
        self._bucket = url.bucket
        self._root = f"{url.folder}/" if url.folder else ""
        self._options = dict(options or {})
        self._attempts = attempts or Attempts(
            self.where,
            remedy="try again when the store answers; until then the log keeps the records",
            timeout=_TIMEOUT_SECONDS,
            attempts=_ATTEMPTS,
            pause=_PAUSE_SECONDS,
            rest=_REST_SECONDS,
        )
        self._part_bytes = part_bytes
        self._page = page
        self._opening = threading.Lock()
        self._client: S3Client | None = None
        self._proving = threading.Lock()
        self._is_proven = False
        self._watch = StoreWatch(self.where, self._look, on_change)

    def prepare(self, folder: str) -> None:
        """Check that the bucket answers, because it has no folders; as ``ObjectStore``."""
        self.prove()
        with suppress(FileNotFoundError):
            self._call(f"look for {folder}", "head_object", **self._at(folder))

    def begin(self, name: str) -> ObjectCreation:
        """Begin to create an object; as ``ObjectStore``. A name that comes into use later is found by ``finish``."""
        self.prove()
        try:
            self._call(f"look for {name}", "head_object", **self._at(name))
        except FileNotFoundError:
            return _S3Creation(self, name, self._part_bytes)
        raise FileExistsError(f"{self.where} has an object {name} already")

    def create(self, name: str, pieces: Iterable[Buffer]) -> None:
        """Store an object if its name is not in use; as ``ObjectStore``."""
        _fill(self.begin(name), pieces)

    def read_part(self, name: str, offset: int, size: int) -> bytes:
        """Return bytes of an object; as ``ObjectStore``."""
        action = f"read {name}"
        if size <= 0:
            return b""

        def work(client: S3Client) -> bytes:
            try:
                placed, data = client.read(action, size, **self._at(name), Range=f"bytes={offset}-{offset + size - 1}")
            except EOFError:
                return b""
            if not placed.startswith(f"bytes {offset}-") or len(data) > size:
                raise StorageError(
                    f"{self.where} answered a request for bytes {offset} to {offset + size - 1} of {name} with others",
                    remedy=_RANGES,
                )
            return data

        return self._attempt(action, work)

    def list_sizes(self, folder: str) -> dict[str, int]:
        """Return the size of each object in a folder; as ``ObjectStore``. Parts that were not finished have size 0."""
        prefix = f"{self._root}{folder}"
        found = {key: 0 for key, _ in self._uploads(prefix)}
        found |= {each["Key"]: int(each["Size"]) for each in self._objects(prefix)}
        names = ((key.removeprefix(self._root), size) for key, size in sorted(found.items()))
        return {name: size for name, size in names if "/" not in name.removeprefix(folder)}

    def remove(self, name: str) -> None:
        """Remove an object; as ``ObjectStore``.

        Its parts go first, so that a process that still sends them cannot finish the object behind the removal.
        """
        self.end_uploads(name)
        self._call(f"remove {name}", "delete_object", **self._at(name))

    def check_usable(self) -> None:
        """Begin :meth:`prove` in the background, and wait for its result for a moment; as ``ObjectStore``."""
        self._watch.check()

    def status(self) -> dict[str, object]:
        """Return what is wrong with the store; as ``ObjectStore``."""
        return self._watch.status()

    def _look(self) -> None:
        self.prove()
        self.list_sizes(_PROBES)

    def prove(self) -> None:
        """Check once that the store refuses to replace an object, reads ranges, and lists what it has.

        Raises:
          StorageError: the store ignores the condition, or refuses a call that the archive needs. No object may be
            created there.
          UnavailableError: the store does not answer; the next call checks again.
        """
        with self._proving:
            if not self._is_proven:
                self._prove()
                self._is_proven = True

    def _prove(self) -> None:
        name, first, second = f"{_PROBES}{secrets.token_hex(16)}", b"the first object", b"the second object"
        try:
            _fill(_S3Creation(self, name, self._part_bytes), [first])
            for way, part_bytes in (("in one request", self._part_bytes), ("in parts", len(second))):
                with suppress(FileExistsError):
                    _fill(_S3Creation(self, name, part_bytes), [second])
                    raise StorageError(
                        f"{self.where} replaced an object that was sent {way}, although the request forbids it"
                        " (If-None-Match): a leader that was deposed could replace a run, so nothing is archived there",
                        remedy="use a store with conditional writes, or a newer release of this one",
                    )
            if self.read_part(name, 0, 100) != first or self.read_part(name, 4, 5) != first[4:9]:
                raise StorageError(f"{self.where} returned other bytes than those that were written", remedy=_RANGES)
            if self.list_sizes(_PROBES).get(name) != len(first):
                raise StorageError(
                    f"{self.where} does not list an object that it has just stored",
                    remedy="use a store whose lists are consistent",
                )
        finally:
            with suppress(ViewstampError):
                self.remove(name)

    # For the creation of an object.

    def put(self, name: str, data: bytes) -> None:
        """Send an object in one request. Raises FileExistsError: another process has used the name."""
        self._create(name, hashlib.blake2b(data), len(data), "put_object", Body=data)

    def begin_upload(self, name: str) -> str:
        """Return the id of a new upload of parts."""
        return str(self._call(f"begin {name}", "create_multipart_upload", **self._at(name))["UploadId"])

    def send_part(self, name: str, upload: str, number: int, data: bytes) -> str:
        """Send a part, and return its tag. Raises UnavailableError: another process has ended the upload."""
        found = {**self._at(name), "UploadId": upload, "PartNumber": number, "Body": data}
        try:
            return str(self._call(f"write {name}", "upload_part", **found)["ETag"])
        except FileNotFoundError as error:
            raise UnavailableError(
                f"another process has removed {name} from {self.where} while it was written", remedy="try again"
            ) from error

    def complete_upload(self, name: str, upload: str, tags: list[str], size: int, digest: hashlib.blake2b) -> None:
        """Make an object of its parts. Raises as :meth:`put`, and FileNotFoundError: another process has ended it."""
        parts = [{"PartNumber": number, "ETag": tag} for number, tag in enumerate(tags, 1)]
        found = {"UploadId": upload, "MultipartUpload": {"Parts": parts}}
        self._create(name, digest, size, "complete_multipart_upload", **found)

    def end_uploads(self, name: str, upload: str = "", *, attempts: int = 0) -> None:
        """Remove the parts of all uploads of an object, or of one upload."""
        key = f"{self._root}{name}"
        found = [(key, upload)] if upload else list(self._uploads(key))
        for each, number in found:
            if each == key:
                with suppress(FileNotFoundError):
                    action = f"remove the parts of {name}"
                    end = partial(self._request, action, "abort_multipart_upload", **self._at(name), UploadId=number)
                    self._attempt(action, end, attempts=attempts)

    def _create(self, name: str, digest: hashlib.blake2b, size: int, request: str, **arguments: Any) -> None:
        """Create an object with one request.

        If an attempt has had no answer, and the next one finds the name taken, this client or another one may have
        created the object. So it is compared then, outside the limits of one attempt, because it is large.
        """
        count = 0

        def work(client: S3Client) -> Exception | None:
            nonlocal count
            count += 1
            try:
                client.call(f"create {name}", request, **self._at(name), **arguments, IfNoneMatch="*")
            except (FileExistsError, FileNotFoundError) as error:
                return error
            return None

        refusal = self._attempt(f"create {name}", work)
        if refusal is None or (count > 1 and self._holds(name, size, digest)):
            return
        if isinstance(refusal, FileExistsError):
            raise FileExistsError(f"{self.where} has an object {name} already")
        raise FileNotFoundError(f"another process has ended the upload of {name} to {self.where}")

    def _holds(self, name: str, size: int, digest: hashlib.blake2b) -> bool:
        """Return whether an object has these bytes. Reads it whole."""
        found, at = hashlib.blake2b(), 0
        with suppress(FileNotFoundError):
            while at <= size and (piece := self.read_part(name, at, self._part_bytes)):
                found.update(piece)
                at += len(piece)
        return at == size and found.digest() == digest.digest()

    # Requests.

    def _objects(self, prefix: str) -> Iterator[Mapping[str, Any]]:
        """Yield the description of each object whose key begins with ``prefix``."""
        more: dict[str, Any] = {"MaxKeys": self._page}
        while True:
            answer = self._call(f"list {prefix}", "list_objects_v2", Bucket=self._bucket, Prefix=prefix, **more)
            yield from answer.get("Contents", ())
            if not answer.get("IsTruncated"):
                return
            more["ContinuationToken"] = answer["NextContinuationToken"]

    def _uploads(self, prefix: str) -> Iterator[tuple[str, str]]:
        """Yield key and id of each upload of parts that was not finished."""
        more: dict[str, Any] = {"MaxUploads": self._page}
        while True:
            answer = self._call(f"list {prefix}", "list_multipart_uploads", Bucket=self._bucket, Prefix=prefix, **more)
            for each in answer.get("Uploads", ()):
                yield str(each["Key"]), str(each["UploadId"])
            if not answer.get("IsTruncated"):
                return
            more |= {"KeyMarker": answer["NextKeyMarker"], "UploadIdMarker": answer.get("NextUploadIdMarker", "")}

    def _at(self, name: str) -> dict[str, Any]:
        return {"Bucket": self._bucket, "Key": f"{self._root}{name}"}

    def _call(self, action: str, request: str, **arguments: Any) -> dict[str, Any]:
        return self._attempt(action, partial(self._request, action, request, **arguments))

    @staticmethod
    def _request(action: str, request: str, client: S3Client, **arguments: Any) -> dict[str, Any]:
        return client.call(action, request, **arguments)

    def _attempt(self, action: str, work: Callable[[S3Client], ResultT], *, attempts: int = 0) -> ResultT:
        return self._attempts.call(action, lambda: work(self._opened()), _judge, attempts=attempts)

    def _opened(self) -> S3Client:
        """Return the client, which the first call opens, because the search for credentials may take seconds."""
        with self._opening:
            if self._client is None:
                self._client = S3Client(self.where, self._options)
            return self._client


class _S3Creation:
    """An object of a bucket that is being created; as ``ObjectCreation``."""

    def __init__(self, objects: S3Objects, name: str, part_bytes: int) -> None:
        self._objects = objects
        self._name = name
        self._part_bytes = part_bytes
        self._part = bytearray()
        self._upload = ""
        self._tags: list[str] = []
        self._size = 0
        self._digest = hashlib.blake2b()

    def write(self, piece: Buffer) -> None:
        view = memoryview(piece).cast("B")
        self._digest.update(view)
        self._size += len(view)
        while view:
            room = self._part_bytes - len(self._part)
            self._part += view[:room]
            view = view[room:]
            if len(self._part) == self._part_bytes:
                self._send()

    def finish(self) -> None:
        if not self._upload:
            self._objects.put(self._name, bytes(self._part))
            return
        if self._part:
            self._send()
        self._objects.complete_upload(self._name, self._upload, self._tags, self._size, self._digest)
        with suppress(ViewstampError):  # Of a begin whose answer was lost.
            self._objects.end_uploads(self._name)

    def abandon(self) -> None:
        """Remove the parts; as ``ObjectCreation``. The name is not touched, because its object may be another's."""
        if self._upload:
            with suppress(ViewstampError):
                self._objects.end_uploads(self._name, self._upload, attempts=1)

    def _send(self) -> None:
        if not self._upload:
            self._upload = self._objects.begin_upload(self._name)
        data = bytes(self._part)
        self._tags.append(self._objects.send_part(self._name, self._upload, len(self._tags) + 1, data))
        self._part.clear()


def _fill(creation: ObjectCreation, pieces: Iterable[Buffer]) -> None:
    """Write and finish an object; if that fails, what was written is removed."""
    try:
        for piece in pieces:
            creation.write(piece)
        creation.finish()
    except BaseException:
        creation.abandon()
        raise


def _judge(_action: str, error: Exception) -> Exception | None:
    """Return the error of the caller, as ``Attempts`` needs it; None = try again."""
    return None if isinstance(error, ConnectionError | TimeoutError) else error
