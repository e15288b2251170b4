"""The archive settings of a topic, which its records CONFIGURE_ARCHIVE change, and their rules. Pure.

| setting | is |
| --- | --- |
| is_on | whether the leader archives the topic by itself |
| after_seconds | archive age: records get into a run when they are older than this; 0 = at any age |
| delay_seconds | archive delay of the runs: for how long the log keeps its copy, from the commit of the run on |
| delete_seconds | delete age: a run is deleted when all its records are older than this; 0 = never |

All times are log time. Without the archive a topic has :data:`OFF`, and no age of an earlier time.

| record | fields | refused if |
| --- | --- | --- |
| CONFIGURE_ARCHIVE | name; of retain_bytes, retain_seconds, is_on, after_seconds, delay_seconds, delete_seconds those \
that change; is_new: whether the topic is to be created; by | a value is out of range; an age or a delay is given to a \
topic without the archive; records would be deleted before they are archived; retention would begin to delete archived \
records |

| CONFIGURE_SPREAD_ARCHIVE | the same of a topic with streams, in group 0, without is_new; since: index | \
``spread.py`` |

It is a kind of its own, and not a field of CONFIGURE_TOPIC, because releases before it ignore unknown fields of that
record: their state would differ from those of the other members without an error. At a record of an unknown kind they
stop. A record with a field that this release does not know raises ``OutdatedCodeError`` for the same reason.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgpack

from viewstamp.errors import RequestError
from viewstamp.streams.settings import TopicSettings, decode_settings
from viewstamp.wire.archive_requests import ARCHIVE_DELAY, ARCHIVE_SECONDS_MAX
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.staged import decode_known

__all__ = ["OFF", "ArchiveChange", "ArchiveSettings", "decode_archive"]

_AGES = ("after_seconds", "delay_seconds", "delete_seconds")
_FIELDS = {
    Kind.CONFIGURE_ARCHIVE: frozenset({"name", "retain_bytes", "retain_seconds", "is_on", *_AGES, "is_new", "by"}),
    Kind.CONFIGURE_SPREAD_ARCHIVE: frozenset(
        {"name", "retain_bytes", "retain_seconds", "is_on", *_AGES, "since", "by"}
    ),
}


class ArchiveSettings(NamedTuple):
    """The archive settings of one topic; the table of the module explains them."""

    is_on: bool = False
    after_seconds: float = 0.0
    delay_seconds: float = ARCHIVE_DELAY
    delete_seconds: float = 0.0

    @property
    def after_us(self) -> int:
        """The archive age in microseconds."""
        return round(self.after_seconds * 1e6)

    @property
    def delay_us(self) -> int:
        """The archive delay in microseconds."""
        return round(self.delay_seconds * 1e6)

    @property
    def delete_us(self) -> int:
        """The delete age in microseconds; 0 = never."""
        return round(self.delete_seconds * 1e6)

    @property
    def text(self) -> str:
        """The settings for the audit log."""
        ages = zip(self._fields[1:], self[1:], strict=True)
        return "on, " + ", ".join(f"{name} {value:g}" for name, value in ages) if self.is_on else "off"

    def describe(self) -> dict[str, object]:
        """Return the settings as the wire and users see them."""
        return self._asdict()

    @classmethod
    def from_image(cls, image: list[Any]) -> ArchiveSettings:
        """Rebuild settings from the list of their values. Raises ValueError, TypeError."""
        settings = cls(*image)
        if settings.is_on is not True or not all(_is_age(age) for age in settings[1:]):
            raise ValueError(f"{brief_repr(image)} are no archive settings")
        return settings


OFF = ArchiveSettings()
"""The settings of a topic without the archive."""


class ArchiveChange(NamedTuple):
    """The values that a record changes; None = unchanged."""

    is_on: bool | None
    after_seconds: float | None
    delay_seconds: float | None
    delete_seconds: float | None

    def applied_to(self, name: str, before: ArchiveSettings) -> ArchiveSettings:
        """Return the settings of topic ``name`` after the change. Raises RequestError."""
        is_on = before.is_on if self.is_on is None else self.is_on
        ages = {field: value for field, value in self._asdict().items() if field != "is_on" and value is not None}
        if not is_on:
            if ages:
                raise RequestError(
                    f"topic {name!r} would have no archive, so it cannot have {', '.join(ages)}; nothing was changed",
                    remedy=f"turn its archive on: viewstamp topic configure {name} --archive",
                )
            return OFF
        after = before._replace(is_on=True, **ages)
        if 0 < after.delete_seconds <= after.after_seconds:
            raise RequestError(
                f"records of topic {name!r} cannot be deleted after {after.delete_seconds:g} s, because they are"
                f" archived after {after.after_seconds:g} s; nothing was changed",
                remedy="give a longer --delete-after, or a shorter --archive-after",
            )
        return after


def decode_archive(batch: Batch) -> tuple[TopicSettings, ArchiveChange, bool]:
    """Read a CONFIGURE_ARCHIVE, or the same of a topic with streams.

    Returns name and retention, the archive settings, and whether the topic is to be created.

    Raises:
      RequestError: it is no such map, or a value is out of range.
      OutdatedCodeError: it has a field that this release does not know.
    """
    decode_known(batch, _FIELDS, name=str)
    fields: dict[str, Any] = msgpack.unpackb(batch.values()[0])
    for field in ("is_on", "is_new"):
        if type(fields.get(field, False)) is not bool and (field == "is_new" or fields[field] is not None):
            raise RequestError(
                f"a {batch.kind.name} whose {field} is {brief_repr(fields[field])}", remedy="give true or false"
            )
    for field in _AGES:
        if fields.get(field) is not None and not _is_age(fields[field]):
            raise RequestError(
                f"an archive cannot have {field} {brief_repr(fields[field])}",
                remedy=f"give seconds, from 0 to {ARCHIVE_SECONDS_MAX:g}",
            )
    ages = [None if (value := fields.get(field)) is None else float(value) for field in _AGES]
    return decode_settings(batch), ArchiveChange(fields.get("is_on"), *ages), bool(fields.get("is_new"))


def _is_age(value: object) -> bool:
    return isinstance(value, int | float) and type(value) is not bool and 0 <= value <= ARCHIVE_SECONDS_MAX
