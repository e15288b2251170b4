"""A client's calls about the schema of a topic, and appends of rows. ``wire/row_schema.py`` has schemas and rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from viewstamp.client.admin import Admin
from viewstamp.client.results import Receipt, SpreadTopicInfo, TopicInfo, spread_topic_info, topic_info
from viewstamp.client.router import Router
from viewstamp.client.spread_topics import SpreadTopicCalls
from viewstamp.client.topic_appends import TopicAppends
from viewstamp.client.topic_calls import TopicCalls
from viewstamp.errors import RequestError, UnknownTopicError
from viewstamp.wire.names import check_topic
from viewstamp.wire.row_schema import RowSchema
from viewstamp.wire.schema_requests import ConfigureSchema, ConfigureSpreadSchema

__all__ = ["RowCalls"]


class RowCalls:
    """Sets the schemas of topics, and appends rows.

    Invariants:
      * ``_schemas`` has schemas that the topics had at some time. Rows of these are rows of the present ones too,
        because a schema only becomes wider
    """

    def __init__(
        self, router: Router, admin: Admin, topics: TopicCalls, spread_topics: SpreadTopicCalls, appends: TopicAppends
    ) -> None:
        self._router = router
        self._admin = admin
        self._topics = topics
        self._spread_topics = spread_topics
        self._appends = appends
        self._schemas: dict[str, RowSchema] = {}

    async def set_schema(
        self, name: str, schema: str | RowSchema, *, timeout: float | None = None
    ) -> TopicInfo | SpreadTopicInfo:
        """Set the schema of a topic, or replace it by a wider one. Cancelled: it may be set all the same.

        A field may be added if it is nullable. One may become nullable, int32 may become int64, and float32 float64.

        Example::

            await client.set_schema("payments", "id: int64, name: string?")

        Args:
          name: the topic, without streams or with them.
          schema: as the guide about topics explains it. Records that the topic has already are not looked at.
          timeout: seconds from now; None = the client's default.

        Raises:
          UnknownTopicError: no topic has this name.
          RequestError: it is no schema, or rows of the schema before would not be rows of it; or a member runs an older
            release, or acknowledges before it syncs. Nothing was changed.
          AccessDeniedError: access control is on, and the client is no administrator.
          UnavailableError: not changed; try again. OutcomeUnknownError: the same call again is harmless.
        """
        text = RowSchema.parse(schema).text if isinstance(schema, str) else schema.text
        deadline, failed = self._router.deadline(timeout), "the topic was not changed"
        request = ConfigureSchema(name=check_topic(name), schema=text)
        try:
            frame = await self._admin.ask_leader(request, failed, deadline=deadline)
        except UnknownTopicError as error:
            spread = ConfigureSpreadSchema(name=name, schema=text)
            try:
                frame = await self._admin.ask_leader(spread, failed, deadline=deadline)
            except UnknownTopicError:
                raise error from None
            return spread_topic_info(frame.body["topic"])
        return topic_info(frame.body["topic"])

    async def get_schema(self, name: str, *, timeout: float | None = None) -> RowSchema:
        """Return the schema of a topic, to read its rows: ``schema.decode(record.value)``.

        Raises:
          RequestError: the topic has none.
          UnknownTopicError, UnavailableError: as ``describe_topic``.
        """
        deadline = self._router.deadline(timeout)
        try:
            text = (await self._topics.describe_topic(name, timeout=timeout)).schema
        except UnknownTopicError as error:
            try:
                left = max(self._router.left(deadline), 1e-3)
                text = (await self._spread_topics.describe_spread_topic(name, timeout=left)).schema
            except UnknownTopicError:
                raise error from None
        if not text:
            raise RequestError(
                f"topic {name!r} has no schema",
                remedy=f"set one: viewstamp topic configure {name} --schema 'id: int64, name: string?'",
            )
        self._schemas[name] = schema = RowSchema.parse(text)
        return schema

    async def append_rows(
        self,
        topic: str,
        rows: Sequence[Mapping[str, object]],
        *,
        keys: Sequence[bytes | None] | None = None,
        stream: int | None = None,
        ordered: bool = False,
        timeout: float | None = None,
    ) -> list[Receipt]:
        """Append rows to a topic with a schema, in order. Returns their receipts, as ``append_many``.

        All rows are checked before the first one is sent. The schema is asked for once for each topic, and again if a
        row does not fit.

        Example::

            await client.append_rows("payments", [{"id": 7, "name": "Ada"}, {"id": 8}])

        Args:
          topic: its name.
          rows: maps from names to values; a nullable field may be missing, or None.
          keys: the keys of the records; None = none. Of a topic with streams they belong to one stream, because
            either all rows are appended or none.
          stream: as for :meth:`append_many`.
          ordered: the same.
          timeout: seconds from now; None = the client's default.

        Raises:
          RequestError: the topic has no schema, or a row does not fit it. Nothing was appended.
          Others: as ``append_many``.
        """
        schema = self._schemas.get(topic)
        if schema is not None:
            try:
                values = _encode(schema, rows)
            except RequestError:
                schema = None  # It may have become wider since.
        if schema is None:
            values = _encode(await self.get_schema(topic, timeout=timeout), rows)
        return await self._appends.append_many(
            topic, values, keys=keys, stream=stream, ordered=ordered, timeout=timeout
        )


def _encode(schema: RowSchema, rows: Sequence[Mapping[str, Any]]) -> list[bytes]:
    """Return rows as values. Raises RequestError with the number of the row."""
    values: list[bytes] = []
    for number, row in enumerate(rows, 1):
        try:
            values.append(schema.encode(row))
        except RequestError as error:
            raise RequestError(
                f"row {number} of {len(rows)}: {error.message}; nothing was appended", remedy=error.remedy
            ) from None
    return values
