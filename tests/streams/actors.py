"""Actors for tests, and batches of commands to them."""

from __future__ import annotations

from typing import Any

from viewstamp.actors.replicated import ReplicatedActor, command, query
from viewstamp.errors import CommandError
from viewstamp.ids import Sequence, SessionId
from viewstamp.wire.batch import Batch, Kind, build_batch
from viewstamp.wire.commands import decode_arguments, decode_result, encode_arguments, encode_command

__all__ = ["CLASSES", "Counter", "EmptyError", "Journal", "arguments", "call", "commands", "decoded", "result_of"]


class EmptyError(CommandError):
    """Fewer are left than the call asks for."""


class Counter(ReplicatedActor):
    def __init__(self) -> None:
        self.total = 0

    @command
    def add(self, amount: int) -> int:
        self.total += amount
        return self.total

    @command
    def take(self, amount: int) -> int:
        if amount > self.total:
            raise EmptyError(f"{self.total} left")
        self.total -= amount
        return self.total

    @command
    def lose_disk(self) -> None:
        raise OSError("this machine's own trouble")

    @command
    def pad(self, size: int) -> bytes:
        return b"x" * size

    @query
    def read(self) -> int:
        return self.total


class Journal(ReplicatedActor):
    def __init__(self) -> None:
        self.lines: list[str] = []

    @command
    def write(self, line: str) -> str:
        self.lines.append(f"{self.now:%S.%f} {self.random.random()} {self.new_id()} {line}")
        return self.lines[-1]


CLASSES: dict[str, type[ReplicatedActor]] = {"counter": Counter, "journal": Journal}


def call(method: str, *args: Any, actor: str = "counter", key: str = "", version: int = 1) -> bytes:
    """Return the record of one command."""
    return encode_command(actor, key, version, method, args, {})


def commands(session: int, sequence: int, *calls: bytes) -> Batch:
    return build_batch(list(calls), kind=Kind.COMMANDS, session=SessionId(session), sequence=Sequence(sequence))


def arguments(*args: Any) -> bytes:
    packed = encode_arguments(args, {})
    assert decode_arguments(packed) == (list(args), {})
    return packed


def decoded(results: list[bytes] | None) -> list[Any]:
    """Return the results of commands, as values and exceptions."""
    assert results is not None
    return [result_of(each) for each in results]


def result_of(result: bytes) -> Any:
    try:
        return decode_result(result, Counter.__viewstamp__.errors)
    except CommandError as error:
        return error
