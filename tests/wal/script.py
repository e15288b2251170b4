"""The commands of the scripts in ``tests/scripts/wal``: a log on a simulated disk, one disk call at a time.

The output lists each call that changes or syncs the disk, in order::

    option segment_bytes=N ...         settings of the log from here on
    open [first_index=N] [scan_from=N] [commit_hint=N]  recover or create the log
    append N [batches=N] [count=N] [size=N] [term=N]    one group, of records from index N on
    trim N / truncate N / reset N term=N
    close                              a clean stop
    kill / cut [seed=N]                the process dies; the power fails
    wait SECONDS                       for the interval mode
    die CALLS                          the power fails at disk call number CALLS from here on
    flip SEGMENT BYTE / zero SEGMENT BYTE LENGTH / copy SEGMENT SEGMENT / remove NAME / mark
    files / describe / status / verify
    assess                             list the intact parts of a damaged log
    repair [end=N]                     rewrite the log from the appended batches, as if from peers; N = the end
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

from tests.datadriven import Command
from tests.wal.logs import DIRECTORY, make_batches, swallow
from tests.wal.test_repair import mend
from viewstamp.errors import ViewstampError
from viewstamp.ids import Index, Term
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.sim.loop import SimulatedCrash
from viewstamp.wal.assessment import Assessment, assess
from viewstamp.wal.budget import WalOptions
from viewstamp.wal.format import segment_name
from viewstamp.wal.log import Wal
from viewstamp.wal.offline import inspect, verify
from viewstamp.wal.truncation import MARK_NAME
from viewstamp.wire.batch import Batch

_CHANGES = {"create", "write", "sync", "sync_data", "truncate", "rename", "remove", "sync_directory"}


class _TracedDisk(SimulatedDisk):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.make_directory(DIRECTORY)

    def note(self, operation: str, text: str, glyph: str = "=") -> None:
        super().note(operation, text, glyph)
        if operation in _CHANGES:
            self.lines.append(f"{glyph} {operation} {text.replace(DIRECTORY, 'wal').replace('wal/', '')}")


class Script:
    """One log, its disk and its clock."""

    def __init__(self) -> None:
        self._disk = _TracedDisk()
        self._options = WalOptions(segment_bytes=4096, reserve_bytes=0)
        self._wal: Wal | None = None
        self._now = 0.0
        self._appended: list[Batch] = []

    def run(self, command: Command) -> list[str]:
        """Run a command; return its output."""
        self._disk.lines = []
        try:
            lines = getattr(self, f"_{command.name}")(command)
        except SimulatedCrash:
            lines = ["! the power fails"]
            self._disk.kill()
            self._disk.crash(random.Random(1))
        except ViewstampError as error:
            lines = [f"! {type(error).__name__}: {error.message}".replace(f"{DIRECTORY}/", "")]
        return [*self._disk.lines, *(lines or [])]

    @property
    def _log(self) -> Wal:
        assert self._wal is not None, "open comes first"
        return self._wal

    def _option(self, command: Command) -> None:
        fields = {name: type(getattr(self._options, name))(value) for name, value in command.options.items()}
        self._options = replace(self._options, **fields)

    def _open(self, command: Command) -> list[str]:
        batches: list[str] = []
        self._wal = Wal.open(
            self._disk,
            DIRECTORY,
            self._options,
            on_batch=lambda batch, _: batches.append(f"{batch.term}.{batch.first_index}"),
            first_index=Index(command.number("first_index", 1)),
            scan_from=Index(command.number("scan_from", 1)),
            commit_hint=command.number("commit_hint", 0),
        )
        if self._options.sync_seconds:
            self._wal._writer.now = lambda: self._now
            self._wal._watch_sync = lambda unsynced_since: None  # type: ignore[method-assign]
        found = self._wal.recovery
        return [
            f"{found.verdict} first_index={found.first_index} end={found.end} previous_term={found.previous_term}"
            f" torn_bytes={found.torn_bytes} read={','.join(batches) or '-'}"
        ]

    def _append(self, command: Command) -> None:
        batches = make_batches(
            int(command.word()),
            command.number("batches", 1),
            count=command.number("count", 1),
            term=command.number("term", 1),
            size=command.number("size", 100),
        )
        self._appended += batches
        self._log.append_now(batches)

    def _trim(self, command: Command) -> None:
        self._log.trim(Index(int(command.word())), swallow)
        self._log._work_now()

    def _truncate(self, command: Command) -> None:
        self._log.truncate(Index(int(command.word())), swallow)
        self._log._work_now()

    def _reset(self, command: Command) -> None:
        self._log.reset_now(Index(int(command.word())), Term(command.number("term", 1)))

    def _close(self, command: Command) -> None:
        asyncio.run(self._log.close())

    def _kill(self, command: Command) -> None:
        self._disk.kill()

    def _cut(self, command: Command) -> None:
        self._disk.crash(random.Random(command.number("seed", 1)))

    def _die(self, command: Command) -> None:
        self._disk.crash_at(self._disk.calls + int(command.word()))

    def _wait(self, command: Command) -> None:
        self._now += float(command.word())

    def _flip(self, command: Command) -> None:
        self._disk.flip(f"{DIRECTORY}/{segment_name(int(command.word()))}", int(command.word(1)))

    def _zero(self, command: Command) -> None:
        path = f"{DIRECTORY}/{segment_name(int(command.word()))}"
        data = bytearray(self._disk.volume.find(path).data)
        at, length = int(command.word(1)), int(command.word(2))
        data[at : at + length] = bytes(length)
        self._disk.volume.adopt(path, bytes(data))

    def _copy(self, command: Command) -> None:
        source, target = (f"{DIRECTORY}/{segment_name(int(command.word(at)))}" for at in (0, 1))
        self._disk.volume.adopt(target, bytes(self._disk.volume.find(source).data))

    def _remove(self, command: Command) -> None:
        self._disk.remove(f"{DIRECTORY}/{command.word()}")
        self._disk.lines.clear()

    def _mark(self, command: Command) -> None:
        self._disk.volume.adopt(f"{DIRECTORY}/{MARK_NAME}", b"not a mark")

    def _files(self, command: Command) -> list[str]:
        names = self._disk.list_directory(DIRECTORY)
        return [f"{name} {len(self._disk.volume.find(f'{DIRECTORY}/{name}').data)}" for name in names]

    def _describe(self, command: Command) -> list[str]:
        return [str(entry) for entry in inspect(self._disk, DIRECTORY)]

    def _verify(self, command: Command) -> list[str]:
        found = verify(self._disk, DIRECTORY)
        lines = [f"{found.verdict} {found.first_index}..{found.last_index} torn_bytes={found.torn_bytes}"]
        for damage in found.damage:
            lines.append(f"! {damage.segment} @{damage.location}: expected {damage.expected}, found {damage.found}")
        return lines

    def _assess(self, command: Command) -> list[str]:
        return _shown(assess(self._disk, DIRECTORY))

    def _repair(self, command: Command) -> None:
        mend(self._disk, self._appended, end=command.number("end", 0) or None)

    def _status(self, command: Command) -> list[str]:
        wal = self._log
        return [
            f"first_index={wal.first_index} end={wal.end} used={wal.bytes_used} allocated={wal.bytes_allocated}"
            f" max={wal.bytes_max} left={wal.bytes_left if wal.bytes_max else '-'}"
        ]


def _shown(found: Assessment) -> list[str]:
    end = "unknown" if found.end is None else found.end
    lines = [f"= from {found.begin} to {end}, committed at least up to {found.commit_hint}"]
    lines += ["! the mark is lost"] * found.mark_is_lost
    lines += [f"! {found.contradiction}"] * bool(found.contradiction)
    for region in found.regions:
        gaps = ", ".join(f"{gap.start}..{'unknown' if gap.end is None else gap.end}" for gap in region.gaps)
        names = ", ".join(str(part.number) for part in region.parts)
        lines.append(f"! segment {names}: not readable: {gaps or 'its closing group'}, some {region.bytes_lost} bytes")
    return lines
