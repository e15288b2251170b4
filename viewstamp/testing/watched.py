"""State machines of members that report each command, and each query that changes the state."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any, Protocol

from viewstamp.actors.replicated import ActorHost, ReplicatedActor
from viewstamp.actors.replicated.host import Prepared
from viewstamp.actors.replicated.hosted import Hosted, Instance
from viewstamp.errors import RequestError, ViewstampError
from viewstamp.streams.machine import Streams

__all__ = ["Watch", "WatchedHost", "WatchedStreams"]

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = 60


class Watch(Protocol):
    """The receiver of the reports."""

    def commanded(self, index: int, call: str, end: str) -> None:
        """A command was applied: ``call`` is ``bank.transfer('a', 3)``, ``end`` is `` -> 7`` or `` raised ...``."""
        ...

    def changed_by_query(self, call: str) -> None:
        """A query has changed the state that it should only read."""
        ...


class WatchedHost(ActorHost):
    """An ``ActorHost`` whose methods are reported. The users' classes are not changed."""

    def __init__(self, classes: Mapping[str, type[ReplicatedActor]], watch: Watch) -> None:
        self._watch = watch
        super().__init__(classes)

    def instance(self, name: str, key: str) -> ReplicatedActor:
        """Return the present instance; if no command has created one, a new one."""
        hosted = self._named(name)
        instance = hosted.instances.get(key)
        return self._imagine(hosted, key) if instance is None else hosted.wake(instance)

    def instances(self, name: str) -> dict[str, ReplicatedActor]:
        """Return all instances by their keys, in the order of their creation."""
        hosted = self._named(name)
        return {instance.key: hosted.wake(instance) for instance in hosted.order}

    def lost_in_snapshots(self) -> Iterator[str]:
        """Yield a sentence for each instance that a snapshot would change."""
        for name, hosted in self._hosted.items():
            for instance in hosted.order:
                try:
                    version, packed = hosted.packed_state(instance)
                    revived = hosted.pack_state(hosted.revive(Instance(instance.key, None, packed, version)))
                except ViewstampError as error:
                    yield f"{_place(name, instance.key)}: {error}"
                else:
                    if revived != packed:
                        yield f"{_place(name, instance.key)}: set_state() makes another state than get_state() returned"

    def _prepare_empty(self) -> Prepared:
        prepared = super()._prepare_empty()
        for hosted in prepared.hosted.values():
            for method, function in hosted.commands.items():
                hosted.commands[method] = self._watched_command(hosted, method, function)
            for method, function in hosted.queries.items():
                hosted.queries[method] = self._watched_query(hosted, method, function)
        return prepared

    def _watched_command(self, hosted: Hosted, method: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def command(actor: ReplicatedActor, *arguments: Any, **named: Any) -> Any:
            call, index = _describe(hosted, actor, method, arguments, named), hosted.moment.index
            result = failure = None
            try:
                result = function(actor, *arguments, **named)
            except Exception as error:
                failure = error
            # Not in the `except`, so that an error of an invariant is not chained to the command's.
            if failure is None:
                self._watch.commanded(index, call, "" if result is None else f" -> {_REPR.repr(result)}")
                return result
            self._watch.commanded(index, call, f" raised {_REPR.repr(failure)}")
            try:
                raise failure
            finally:
                failure = None  # Its traceback refers to this frame.

        return command

    def _watched_query(self, hosted: Hosted, method: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def query(actor: ReplicatedActor, *arguments: Any, **named: Any) -> Any:
            before = _packed(hosted, actor)
            try:
                return function(actor, *arguments, **named)
            finally:
                if _packed(hosted, actor) != before:
                    self._watch.changed_by_query(_describe(hosted, actor, method, arguments, named))

        return query


class WatchedStreams(Streams):
    """The real state machine, with a ``WatchedHost`` in it."""

    def __init__(self, classes: Mapping[str, type[ReplicatedActor]], watch: Watch) -> None:
        super().__init__()
        self.host = self._actors = WatchedHost(classes, watch)


def _packed(hosted: Hosted, actor: ReplicatedActor) -> bytes:
    try:
        return hosted.pack_state(actor)
    except RequestError:
        return b""


def _describe(
    hosted: Hosted, actor: ReplicatedActor, method: str, arguments: tuple[Any, ...], named: dict[str, Any]
) -> str:
    shown = [*map(_REPR.repr, arguments), *(f"{name}={_REPR.repr(value)}" for name, value in named.items())]
    return f"{_place(hosted.name, actor.key)}.{method}({', '.join(shown)})"


def _place(name: str, key: str) -> str:
    return f"{name}[{key!r}]" if key else name
