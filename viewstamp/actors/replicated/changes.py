"""The newest commands with their results, for watchers and for naming a command by its index."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from viewstamp.errors import TrimmedError
from viewstamp.wire.batch import Batch
from viewstamp.wire.commands import Command, decode_command, encode_arguments

__all__ = ["CHANGES_BYTES_MAX", "Change", "Changes", "describe_command"]

CHANGES_BYTES_MAX = 16 << 20
_ANSWER_ROWS_MAX = 1000
_ANSWER_BYTES_MAX = 256 << 10
_RESULT_OVERHEAD = 64

Change = list[object]
"""[index, log time, actor, key, method, arguments (packed), result (packed)], as in the response to WATCH."""


class _Applied:
    """One applied batch of commands. Its ``changes`` are decoded when a watcher first asks for them."""

    __slots__ = ("buffer", "changes", "first_index", "results", "size")

    def __init__(self, batch: Batch, results: list[bytes]) -> None:
        self.first_index = int(batch.first_index)
        self.buffer = bytes(batch.buffer)  # A copy, because the batch's buffer may be a small part of a large one.
        self.results = results
        self.size = len(self.buffer) + sum(map(len, results)) + _RESULT_OVERHEAD * len(results)
        self.changes: list[Change] | None = None

    def batch(self) -> Batch:
        return Batch.decode(self.buffer, verify=False)


class Changes:
    """The newest batches of commands, bounded in bytes.

    Adding costs one copy a batch. A batch is decoded only if a watcher asks for it, and then once for all watchers.

    Invariants:
      * ``first <= end``; every command that was applied in between is here
      * ``bytes_used <= bytes_max`` after :meth:`add`
    """

    def __init__(self, bytes_max: int = CHANGES_BYTES_MAX, *, end: int = 1) -> None:
        self._bytes_max = bytes_max
        self._kept: list[_Applied] = []
        self._start = 0
        """The place of the first kept batch in ``_kept``. Dropping a batch increases it, so that the others stay."""
        self.bytes_used = 0
        self.first = end
        self.end = end

    def add(self, batch: Batch, results: list[bytes]) -> None:
        """Keep an applied batch, and drop the oldest batches above the limit."""
        applied = _Applied(batch, results)
        self._kept.append(applied)
        self.bytes_used += applied.size
        self.end = int(batch.end)
        self._drop()

    def _drop(self) -> None:
        kept = self._kept
        while self.bytes_used > self._bytes_max and self._start < len(kept):
            self.bytes_used -= kept[self._start].size
            self._start += 1
            self.first = kept[self._start].first_index if self._start < len(kept) else self.end
        if self._start > 64 and self._start > len(kept) // 2:
            del kept[: self._start]
            self._start = 0

    def read(self, index: int, actor: str, key: str | None = None) -> tuple[list[Change], int]:
        """Return changes of ``actor`` from ``index`` on, oldest first, and the index to ask from next.

        One call looks at no more than 1,000 changes, because it must not block the caller's loop. So an empty list does
        not mean that there are no more changes, unless the next index is ``end``.

        Args:
          index: 0 = from now on: returns only the index to ask from.
          actor: the actor's name.
          key: None = changes of every instance.

        Raises:
          TrimmedError: the changes from ``index`` on are no longer kept.
        """
        if index == 0 or index >= self.end:
            return [], max(index, self.end)
        if index < self.first:
            raise TrimmedError(
                f"the changes from index {index} on are no longer kept, the oldest kept one is {self.first}",
                first=self.first,
                remedy="read the state with a query, then watch from now on",
            )
        found: list[Change] = []
        size = 0
        for looked_at, change in enumerate(self._from(index), 1):
            if change[2] == actor and (key is None or change[3] == key):
                found.append(change)
                size += len(change[5]) + len(change[6])  # type: ignore[arg-type]
            if looked_at == _ANSWER_ROWS_MAX or size >= _ANSWER_BYTES_MAX:
                return found, int(change[0]) + 1  # type: ignore[call-overload]
        return found, self.end

    def describe(self, index: int) -> str:
        """Return the command at ``index`` as text; "" = it is no longer kept."""
        if not self.first <= index < self.end:
            return ""
        applied = self._kept[self._position(index)]
        values = applied.batch().values()
        place = index - applied.first_index
        return describe_command(decode_command(values[place])) if 0 <= place < len(values) else ""

    def _position(self, index: int) -> int:
        """Return the place in ``_kept`` of the last batch that begins at or before ``index``."""
        after = bisect_right(self._kept, index, self._start, key=lambda applied: applied.first_index)
        return max(after - 1, self._start)

    def _from(self, index: int) -> Iterator[Change]:
        for position in range(self._position(index), len(self._kept)):
            for change in self._decoded(self._kept[position]):
                if change[0] >= index:  # type: ignore[operator]
                    yield change

    def _decoded(self, applied: _Applied) -> list[Change]:
        if applied.changes is None:
            batch = applied.batch()
            applied.changes = [
                _change(index, batch.log_time, decode_command(value), result)
                for index, (value, result) in enumerate(
                    zip(batch.values(), applied.results, strict=True), batch.first_index
                )
            ]
            applied.size += len(applied.buffer)
            self.bytes_used += len(applied.buffer)
        return applied.changes


def _change(index: int, log_time: int, command: Command, result: bytes) -> Change:
    arguments = encode_arguments(command.arguments, command.named)
    return [index, log_time, command.actor, command.key, command.method, arguments, result]


def describe_command(command: Command) -> str:
    """Return a command as Python code: ``inventory['k'].reserve('A-17', 2)``; long arguments are cut."""
    instance = f"{command.actor}[{command.key!r}]" if command.key else command.actor
    named = [f"{name}={value!r}" for name, value in command.named.items()]
    arguments = ", ".join([*map(repr, command.arguments), *named])
    return f"{instance}.{command.method}({arguments if len(arguments) <= 200 else arguments[:200] + '...'})"
