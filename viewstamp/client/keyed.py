"""A client's calls about keyed topics: the last record of a key, and those of a range of keys. All are for group 0."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import msgpack

from viewstamp.client.admin import Admin
from viewstamp.client.results import TopicInfo, topic_info
from viewstamp.client.router import Router
from viewstamp.errors import CorruptionError, OutcomeUnknownError, RequestError, UnavailableError
from viewstamp.ids import Index, Position, Term
from viewstamp.wire.batch import Record
from viewstamp.wire.keyed_requests import ConfigureKeyed, GetKey, ScanKeys
from viewstamp.wire.names import check_topic
from viewstamp.wire.schema import RequestBody

__all__ = ["KeyScanner", "KeyedCalls", "prefix_end"]

_KEY_BYTES_MAX = 1024 * 1024
"""No key is longer, because no record is by default. A longer one would be refused by the limit of a frame."""


class KeyedCalls:
    """Finds records by their keys, and makes topics keyed."""

    def __init__(self, router: Router, admin: Admin) -> None:
        self._router = router
        self._admin = admin

    async def configure_keyed(self, topic: str, keyed: bool = True, *, timeout: float | None = None) -> TopicInfo:
        """Make a topic keyed: the cluster keeps the last record of each of its keys, in the archive.

        Records with a key and an empty value delete the key. Records without a key do not count. The view begins with
        the records that the topic keeps now. From then on a trim and the retention delete only records that are in the
        view. Cancelled: it may be done all the same. The same call again changes nothing.

        Example::

            await client.create_topic("prices")
            await client.configure_keyed("prices")
            await client.append("prices", b"17.35", key=b"ACME")

        Args:
          topic: the name of a topic without streams.
          keyed: False ends the view, and removes its files; the records that the topic keeps stay.
          timeout: seconds from now; None = the client's default.

        Raises:
          UnknownTopicError: there is no such topic.
          RequestError: the leader has no archive or no pyarrow; a member runs an older release, or acknowledges before
            it syncs.
          AccessDeniedError: access control is on, and the client is no administrator.
          UnavailableError, OutcomeUnknownError: as for :meth:`create_topic`; the same call again is harmless.
        """
        request = ConfigureKeyed(name=check_topic(topic), is_on=bool(keyed))
        frame = await self._admin.ask_leader(request, "the topic was not changed", timeout=timeout)
        return topic_info(frame.body["topic"])

    async def get(self, topic: str, key: bytes | str, *, timeout: float | None = None) -> Record | None:
        """Return the last record of a key of a keyed topic; None = there is none, or the key was deleted.

        The read is linearizable: it includes every record that was acknowledged before the call.

        Example::

            await client.configure_keyed("orders")
            record = await client.get("orders", "A-17")
            print(record.value if record else "no order")

        Args:
          topic: the name of a keyed topic.
          key: the key; text is its UTF-8.
          timeout: seconds from now; None = the client's default.

        Raises:
          UnknownTopicError: there is no such topic.
          RequestError: the topic is not keyed, or the key is longer than 1 MiB.
          CorruptionError: a file of the view is damaged; the message names it.
          UnavailableError: no leader answered in time, the archive does not answer, or the leader has no archive.
        """
        packed = _as_key(key)
        body = await self._ask(GetKey(topic=check_topic(topic), key=packed), timeout)
        return None if body["record"] is None else _record(packed, body["record"])

    async def _ask(self, request: RequestBody, timeout: float | None) -> Mapping[str, Any]:
        try:
            frame = await self._admin.ask_leader(request, "nothing was read", timeout=timeout)
        except OutcomeUnknownError as error:  # A read changes nothing.
            raise UnavailableError("the leader did not answer in time; nothing was read", remedy="try again") from error
        body: Mapping[str, Any] = frame.body
        if damage := body.get("damage"):
            path = str(body.get("path", ""))
            raise CorruptionError(
                str(damage),
                path=path,
                expected="the run of keys of the catalogue",
                found=str(damage),
                remedy="put an intact copy in its place, or build the view again: --no-keyed, then --keyed",
            )
        return body

    def scanner(
        self, topic: str, start: bytes | str, end: bytes | str | None, prefix: bytes | str | None
    ) -> KeyScanner:
        """Return the reader of a scan; see ``Client.scan``. Raises RequestError."""
        low, high = _as_key(start), None if end is None else _as_key(end)
        if prefix is not None:
            first = _as_key(prefix)
            if low or high is not None:
                raise RequestError("a scan has a prefix and a range; nothing was read", remedy="give one of them")
            low, high = first, prefix_end(first)
        return KeyScanner(self, check_topic(topic), low, high)

    async def page(self, topic: str, start: bytes, end: bytes | None) -> tuple[list[Record], bytes | None]:
        """Return the next records of a scan, and the key to go on from; None = that is all. Raises as :meth:`get`."""
        body = await self._ask(ScanKeys(topic=topic, start=start, end=end), None)
        return [_record(key, rest) for key, *rest in body["records"]], body["next"]


class KeyScanner:
    """A scan: its records come page by page."""

    def __init__(self, calls: KeyedCalls, topic: str, start: bytes, end: bytes | None) -> None:
        self._calls = calls
        self._topic = topic
        self._start: bytes | None = start
        self._end = end

    async def next_records(self) -> list[Record] | None:
        """Return the next records, perhaps none yet; None = the end. A failed call can be repeated."""
        if self._start is None or (self._end is not None and self._start >= self._end):
            return None
        records, self._start = await self._calls.page(self._topic, self._start, self._end)
        return records

    async def records(self) -> AsyncGenerator[Record, None]:
        """Yield all records."""
        while (found := await self.next_records()) is not None:
            for record in found:
                yield record


def prefix_end(prefix: bytes) -> bytes | None:
    """Return the first key behind all keys with a prefix; None = there is no such key."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None


def _as_key(key: object) -> bytes:
    packed = key.encode() if isinstance(key, str) else key
    if not isinstance(packed, bytes):
        raise RequestError(f"a key is bytes or text, not {type(key).__name__}; nothing was read")
    if len(packed) > _KEY_BYTES_MAX:
        raise RequestError(
            f"a key of {len(packed)} bytes is over the limit of {_KEY_BYTES_MAX}; nothing was read",
            remedy="no record has such a key: look for the key that was appended",
        )
    return packed


def _record(key: bytes, fields: Sequence[Any]) -> Record:
    position, term, index, timestamp, value, packed = fields
    headers = None if packed is None else msgpack.unpackb(packed)
    return Record(Position(position), Term(term), Index(index), timestamp, value, key, headers)
