"""The records that the logs of a fork, or of a recovered cluster, have."""

from __future__ import annotations

from viewstamp.fork import ForkSource
from viewstamp.fork.recovery import OldGroupReader, OldHomeReader, read_log
from viewstamp.ids import GroupId, Stream
from viewstamp.replay.read import ExtentReader
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.streams.joint_cut import contradictions
from viewstamp.streams.state import State
from viewstamp.wire.batch import Kind, Record

__all__ = ["kept_records"]


def kept_records(
    disk: SimulatedDisk, source: ForkSource
) -> tuple[State, dict[GroupId, State], dict[Stream, dict[int, Record]]]:
    """Return the states of group 0 and of the others, which must agree, and the records of each stream by position."""
    home = read_log(disk, source, OldHomeReader).state
    groups = {each.placed.id: read_log(disk, each.source, OldGroupReader).state for each in source.groups}
    assert contradictions(home, groups) == []
    records: dict[Stream, dict[int, Record]] = {}
    for each in source.groups:
        with ExtentReader(disk) as reader:
            for batch in each.source.batches(reader):
                if batch.kind is Kind.RECORDS:
                    stream = Stream(each.placed.id, groups[each.placed.id].topics[batch.topic].name)
                    for record in batch.records():
                        records.setdefault(stream, {})[int(record.position)] = record
    return home, groups, records
