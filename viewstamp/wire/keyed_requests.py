"""The rows of the table of requests about keyed topics; ``requests.py`` has the others."""

from __future__ import annotations

from typing import Annotated

from viewstamp.wire.access import Need, Right
from viewstamp.wire.batch import Kind
from viewstamp.wire.frame import FrameKind
from viewstamp.wire.schema import Range, RequestBody, request

__all__ = ["SCAN_BYTES", "ConfigureKeyed", "GetKey", "ScanKeys"]

SCAN_BYTES = 1024 * 1024
"""About the bytes of keys and values that one answer to SCAN_KEYS has."""
_BYTES = Range(1, remedy="take at least one byte")


@request(FrameKind.CONFIGURE_KEYED, needs=Need(Right.ADMINISTER), record=Kind.CONFIGURE_KEYED)
class ConfigureKeyed(RequestBody):
    """Begin to keep the last record of each key of a topic, or end it and forget them. OK: ``topic`` as CreateTopic.

    Before the first one of a cluster the leader asks every member whether its release knows the record. The same
    request again changes nothing.
    """

    name: str
    is_on: bool


@request(FrameKind.GET_KEY, needs=Need(Right.READ, topic="topic"))
class GetKey(RequestBody):
    """Get the last record of a key of a keyed topic, from the leader; linearizable.

    OK: ``record``: [position, term, index, timestamp, value, headers], with headers as one msgpack map or None; None =
    there is no such key. ``runs`` and ``groups``: the runs whose filter was asked, and the row groups that were read.
    If the object of a run is damaged, ``damage`` says how, and ``path`` has its name.
    """

    topic: str
    key: bytes


@request(FrameKind.SCAN_KEYS, needs=Need(Right.READ, topic="topic"))
class ScanKeys(RequestBody):
    """Get the last records of the keys in ``[start, end)``, in the order of the keys, from the leader.

    ``end`` None = up to the last key. OK: ``records``: a list of [key, position, term, index, timestamp, value,
    headers]; ``next``: the key to go on from, None = there are no more. An answer includes every record that was
    acknowledged before its request; two answers are of two moments. ``damage`` and ``path`` as for GET_KEY.
    """

    topic: str
    start: bytes = b""
    end: bytes | None = None
    bytes_max: Annotated[int, _BYTES] = SCAN_BYTES
