"""Planted mistakes in what keeps a node whole when its surroundings fail: log streams, results, connections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from tests.mutants.mutants import Mutant, patched
from viewstamp.actors import Failure
from viewstamp.host.log import SafeLog
from viewstamp.node.node import Node

__all__ = ["RESOURCE_MUTANTS"]


def log_that_raises() -> AbstractContextManager[None]:
    def write(self: SafeLog, write: Callable[..., object], event: str, values: Mapping[str, Any]) -> None:
        write(event, **values)

    return patched(SafeLog, _write=write)


def log_before_failed() -> AbstractContextManager[None]:
    original = Node._on_failed

    def on_failed(self: Node, failure: Failure) -> None:
        self._log.error("! node failed", part=failure.actor, error=repr(failure.error))
        original(self, failure)

    return patched(Node, _on_failed=on_failed)


RESOURCE_MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        Mutant("log-that-raises", "a line that cannot be logged raises", log_that_raises, rule="§10"),
        Mutant("log-before-failed", "a failure is logged before it is final", log_before_failed, rule="§10"),
    )
}
"""By name."""
