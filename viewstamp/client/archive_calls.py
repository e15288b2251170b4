"""A client's calls about the archive: runs of archived records. ``topic_calls.py`` has the settings of topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from viewstamp.client.admin import Admin
from viewstamp.client.checks import as_whole
from viewstamp.client.router import Router
from viewstamp.client.runs import KeyRunInfo, RunInfo, key_run_info, run_info
from viewstamp.client.topic_calls import TopicCalls
from viewstamp.errors import UnavailableError
from viewstamp.wire.archive_requests import (
    ArchiveTopic,
    CheckRun,
    FindOrphans,
    ListRuns,
)
from viewstamp.wire.names import check_topic
from viewstamp.wire.schema import RequestBody

__all__ = ["ANSWER_SECONDS", "ArchiveCalls", "done_part"]

ANSWER_SECONDS = 1.0
"""A leader answers a request about its work within this time, so a copy that is sent later may have no answer."""


class ArchiveCalls:
    """Archives topics on request, and describes their runs, in group 0."""

    def __init__(self, router: Router, admin: Admin, topics: TopicCalls) -> None:
        self._router = router
        self._admin = admin
        self._topics = topics

    async def archive_topic(
        self, name: str, before: int | None = None, *, delay: float | None = None, timeout: float | None = None
    ) -> int:
        """Write the records of a topic into the archive. Returns the archived end, when they are archived.

        All kept records before the archived end are in committed runs then. Readers get them from there when the logs
        have deleted their copies. The same call again goes on where the last one ended. Cancelled or timed out: the
        leader goes on.

        Example::

            archived_end = await client.archive_topic("orders", timeout=600)

        Args:
          name: the topic.
          before: archive the records before this position; None = all records that the topic has now.
          delay: seconds of log time, from the commit of a run on, in which the logs of the nodes keep their copy of its
            records too; at most 100 years. Afterwards only the archive has them. None = the archive delay of the topic,
            which is one day if it has no archive settings.
          timeout: seconds from now; None = the client's default. On two busy processors a leader wrote 20 MB/s.

        Raises:
          RequestError: the leader has no directory for the archive, or no pyarrow; the store is read-only, full, or
            refuses the credentials; a member runs an older release, or acknowledges before it syncs.
            UnknownTopicError: there is no such topic.
          AccessDeniedError: access control is on, and the client is no administrator.
          UnavailableError: not all is archived; there is no leader, the time is over, a member does not answer, or the
            store does not answer. The log has the records.
          OutcomeUnknownError: it may go on (``token`` is None); call again, which is harmless.
        """
        check_topic(name)
        deadline = self._router.deadline(timeout)
        if before is None:
            before = (await self._topics.describe_topic(name, timeout=self._router.left(deadline))).last_position + 1
        request = ArchiveTopic(
            name=name, end=as_whole(before, "a position"), delay=None if delay is None else float(delay)
        )
        body = await self._await_job(request, deadline, f"topic {name!r} is not archived yet")
        return int(body["archived_end"])

    async def list_runs(self, *, timeout: float | None = None) -> list[RunInfo]:
        """List the runs of archived records that are known, in the order of their ids; linearizable.

        If access control is on, these are the runs of the topics that the client may read.

        Raises:
          AccessDeniedError: access control is on, and the client may read nothing.
          UnavailableError: no node that has a leader answered in time.
          RequestError: the node runs a release without runs.
        """
        return [run_info(each) for each in (await self._router.ask(ListRuns(), timeout)).body["runs"]]

    async def list_key_runs(self, *, timeout: float | None = None) -> list[KeyRunInfo]:
        """List the runs of keys of keyed topics that are known, in the order of their ids; linearizable.

        Example::

            for run in await client.list_key_runs():
                print(run.topic, run.first_position, run.last_position, run.records)

        If access control is on, these are the runs of the topics that the client may read.

        Raises: as :meth:`list_runs`.
        """
        body = (await self._router.ask(ListRuns(), timeout)).body
        return [key_run_info(each) for each in body.get("key_runs", ())]

    async def check_run(self, run: int, *, timeout: float | None = None) -> str:
        """Read the file of a committed run and compare it with the catalogue; return its damage, "" = it is intact.

        ``run`` is the id of a :class:`RunInfo` or a :class:`KeyRunInfo`.

        Raises: as :meth:`archive_topic`; RequestError: there is no committed run of this id.
        """
        deadline = self._router.deadline(timeout)
        request = CheckRun(run=as_whole(run, "the id of a run"))
        return str((await self._await_job(request, deadline, f"run {run} is not checked yet"))["damage"])

    async def find_orphans(self, *, remove: bool = False, timeout: float | None = None) -> dict[int, int]:
        """Return the files of this cluster in the archive that belong to no run: the size in bytes, by id.

        A leader that was stopped leaves them. They are never read. ``remove`` removes them.

        Raises: as :meth:`archive_topic`.
        """
        deadline = self._router.deadline(timeout)
        body = await self._await_job(FindOrphans(remove=remove), deadline, "the archive is not listed yet")
        return dict(body["orphans"])

    async def _await_job(self, request: RequestBody, deadline: float, late: str) -> Mapping[str, Any]:
        """Send a request again until the leader has done its work. Raises UnavailableError ``late`` at the deadline."""
        while True:
            frame = await self._admin.ask_leader(request, late, deadline=deadline)
            body: Mapping[str, Any] = frame.body
            if not body["is_running"]:
                return body
            if self._router.left(deadline) <= ANSWER_SECONDS:
                raise UnavailableError(
                    f"{late}{done_part(body)}; the leader goes on", remedy="call again, with a longer timeout"
                )


def done_part(body: Mapping[str, Any]) -> str:
    """Return how far the archiving of a topic is, by the leader's answer, for an error; "" = unknown, or nothing."""
    return f", only up to position {end - 1}" if (end := body.get("archived_end", 0)) > 1 else ""
