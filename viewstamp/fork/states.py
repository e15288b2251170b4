"""The state at the end of a judged log, computed with the actors' code as a node computes it at its start. Blocking."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from viewstamp.actors.replicated import ReplicatedActor
from viewstamp.errors import CorruptionError, RequestError
from viewstamp.fork.judge import ForkSource
from viewstamp.host.interfaces import Disk
from viewstamp.ids import GROUP_0, GroupId
from viewstamp.node.snapshots.file import read_header, read_pieces
from viewstamp.replay.read import ExtentReader
from viewstamp.streams.machine import Streams

__all__ = ["state_at_end"]


def state_at_end(
    disk: Disk,
    source: ForkSource,
    group: GroupId,
    home: Streams | None,
    classes: Mapping[str, type[ReplicatedActor]],
    on_bytes: Callable[[int], None] = lambda _: None,
) -> Streams:
    """Return the state after the last record of ``source``.

    Args:
      disk: the disk with the files.
      source: the log, with its snapshots.
      group: the group whose log it is.
      home: the state of group 0, if ``group`` is another one.
      classes: the actors, by their names.
      on_bytes: called now and then with the bytes of the log that were applied since the last call.

    Raises:
      CorruptionError: the files are damaged, or a record contradicts the state.
      OutdatedCodeError: the code lacks an actor, a command or a version of it.
    """
    machine = Streams(classes)
    if group != GROUP_0:
        assert home is not None, "group 0 comes first"
        machine.follow(group, home)
    begin = _begin(disk, source, machine)
    with ExtentReader(disk) as reader:
        for batch in source.batches(reader):
            if batch.first_index >= begin:
                with suppress(RequestError):  # A replicated refusal, as each member decided.
                    machine.apply(batch)
            on_bytes(batch.size)
    return machine


def _begin(disk: Disk, source: ForkSource, machine: Streams) -> int:
    """Adopt the newest intact snapshot; return the index from which the log has to be applied."""
    damage: CorruptionError | None = None
    for snapshot in source.snapshots:
        file = disk.open_read(snapshot.path)
        try:
            prepared = machine.prepare(read_pieces(file, read_header(file)))
        except CorruptionError as error:
            damage = error
            continue
        finally:
            file.close()
        machine.adopt(prepared)
        return int(snapshot.meta.end)
    if source.start > 1:
        assert damage is not None, "a log that begins above index 1 is judged with its snapshot"
        raise damage
    return 1
