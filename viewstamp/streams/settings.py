"""The records of CREATE_TOPIC, CONFIGURE_TOPIC and TRIM_TOPIC: one msgpack map each."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgpack

from viewstamp.errors import RequestError
from viewstamp.ids import Position
from viewstamp.wire.batch import Batch
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.names import check_topic

__all__ = ["RETAIN_BYTES_MAX", "RETAIN_SECONDS_MAX", "TopicSettings", "decode_settings", "decode_trim"]

RETAIN_BYTES_MAX = 1 << 60
RETAIN_SECONDS_MAX = 1e10


class TopicSettings(NamedTuple):
    """A topic's name and retention; None = unspecified, 0 = keep everything."""

    name: str
    retain_bytes: int | None
    retain_seconds: float | None


def decode_settings(batch: Batch) -> TopicSettings:
    """Read the record of a CREATE_TOPIC or CONFIGURE_TOPIC batch: {"name", "retain_bytes", "retain_seconds"}.

    Raises:
      RequestError: it is not such a map, or a value is out of range.
    """
    settings = _decode_map(batch)
    retain_bytes, retain_seconds = settings.get("retain_bytes"), settings.get("retain_seconds")
    if retain_bytes is not None and not (type(retain_bytes) is int and 0 <= retain_bytes <= RETAIN_BYTES_MAX):
        raise RequestError(
            f"a topic cannot keep {brief_repr(retain_bytes)} bytes", remedy="give a number of bytes, 0 = all"
        )
    if retain_seconds is not None:
        if type(retain_seconds) not in (int, float) or not 0 <= retain_seconds <= RETAIN_SECONDS_MAX:
            raise RequestError(
                f"a topic cannot keep records for {brief_repr(retain_seconds)} seconds",
                remedy="give seconds, 0 = for ever",
            )
        retain_seconds = float(retain_seconds)
    return TopicSettings(check_topic(settings["name"]), retain_bytes, retain_seconds)


def decode_trim(batch: Batch) -> tuple[str, Position]:
    """Read the record of a TRIM_TOPIC batch, {"name", "position"}: the topic and the first position to keep.

    Raises:
      RequestError: it is not such a map, or the position is not one.
    """
    settings = _decode_map(batch)
    position = settings.get("position")
    if type(position) is not int or position < 1:
        raise RequestError(
            f"a topic cannot be trimmed to {brief_repr(position)}", remedy="give the first position to keep"
        )
    return check_topic(settings["name"]), Position(position)


def _decode_map(batch: Batch) -> dict[str, Any]:
    try:
        settings = msgpack.unpackb(batch.values()[0])
    except (ValueError, msgpack.exceptions.UnpackException) as error:
        raise RequestError(f"a topic's settings cannot be read: {error!r}", remedy="send {'name': ...}") from error
    if type(settings) is not dict or "name" not in settings:
        raise RequestError(f"no topic is named in {brief_repr(settings)}", remedy="send {'name': ...}")
    return settings
