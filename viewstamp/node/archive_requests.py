"""The handlers of the requests about the archive."""

from __future__ import annotations

import msgpack

from viewstamp.node.answers import result_fields
from viewstamp.node.archive_queries import ArchiveQuery, IsArchivingQuery, RunsQuery
from viewstamp.node.audit_notes import note_before
from viewstamp.node.group_0 import check_group_0
from viewstamp.node.keyed_queries import KeyRunsQuery
from viewstamp.node.order_queries import FirstFromQuery
from viewstamp.node.service import Caller, in_a_task, name_of_caller
from viewstamp.wire.archive_requests import ArchiveTopic, CheckRun, ConfigureArchive, FindOrphans, ListRuns
from viewstamp.wire.batch import Kind, build_batch
from viewstamp.wire.token_requests import ARCHIVE_RUN, REMOVE_ORPHANS

__all__: list[str] = []


@in_a_task(ConfigureArchive)
async def _configure_archive(caller: Caller, request: int, asked: ConfigureArchive) -> None:
    """Propose the record, after a probe of the members if it is the first one.

    The record has the known fields only, because a member stops at a field that it does not know. The leader checks
    the caller again when it admits the record.
    """
    check_group_0(caller, "topics are archived")
    is_archiving, _ = await caller.group.reading.query(IsArchivingQuery(), stale=False)
    if not is_archiving:
        await caller.service.archivist.probe_settings()
    fields = {name: value for name, value in asked.to_map().items() if value is not None}
    if by := name_of_caller(caller):
        fields["by"] = by
    caller.propose(request, build_batch([msgpack.packb(fields)], kind=Kind.CONFIGURE_ARCHIVE), result_fields)


@in_a_task(ArchiveTopic)
async def _archive_topic(caller: Caller, request: int, asked: ArchiveTopic) -> None:
    archivist = caller.service.archivist_of(caller.group.id)
    delay = None if asked.delay is None else round(asked.delay * 1e6)
    end, order = asked.end, {}
    if caller.group is not caller.service.group:
        reading = caller.group.reading
        topic = reading.query_now(ArchiveQuery(asked.name))
        order = {"mapped_end": topic.archivable_end}
        if topic.archivable_end < end:  # The records get into one run when all have their global positions.
            await archivist.check_usable()
            caller.ok(request, {"archived_end": topic.next_first, "is_running": False, **order})
            return
        if asked.before:
            end = min(end, reading.query_now(FirstFromQuery(asked.name, asked.before)))
    if not archivist.is_begun(asked.name, end, delay):
        await note_before(caller, ARCHIVE_RUN, asked.name, noted=asked.noted, detail=f"{asked.name} to {end}")
        caller.check(asked)
    archived_end, is_running = await archivist.archive(asked.name, end, delay)
    caller.ok(request, {"archived_end": archived_end, "is_running": is_running, **order})


@in_a_task(CheckRun)
async def _check_run(caller: Caller, request: int, asked: CheckRun) -> None:
    damage = await caller.service.archivist_of(caller.group.id).check(asked.run)
    caller.check(asked)
    caller.ok(request, {"is_running": damage is None, "damage": damage or ""})


@in_a_task(FindOrphans)
async def _find_orphans(caller: Caller, request: int, asked: FindOrphans) -> None:
    if asked.remove:
        await note_before(caller, REMOVE_ORPHANS, "remove", noted=asked.noted)
    caller.check(asked)
    found = await caller.service.archivist_of(caller.group.id).find_orphans(remove=asked.remove)
    caller.ok(request, {"is_running": found is None, "orphans": [list(item) for item in (found or {}).items()]})


@in_a_task(ListRuns)
async def _list_runs(caller: Caller, request: int, asked: ListRuns) -> None:
    runs, _ = await caller.group.reading.query(RunsQuery(), stale=False)
    key_runs, _ = await caller.group.reading.query(KeyRunsQuery(), stale=False)
    caller.check(asked)

    def seen(found: list[dict[str, object]]) -> list[dict[str, object]]:
        return [run for run in found if caller.gate.sees(caller.credentials, ListRuns, str(run["topic"]))]

    caller.ok(request, {"runs": seen(runs), "key_runs": seen(key_runs)})
