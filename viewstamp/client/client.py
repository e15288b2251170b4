"""What a client does for its callers, whichever library runs it."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, cast, overload

from viewstamp.client.actors import ActorProxy, ActorT, RemoteMethod, interface_of
from viewstamp.client.admin import Administrator
from viewstamp.client.batches import COMMANDS, RECORD_COST, OpenBatch, record_size
from viewstamp.client.checks import (
    as_bytes,
    as_headers,
    as_seconds,
    as_staleness,
    as_whole,
    check_topic,
    read_receipt,
    read_results,
)
from viewstamp.client.reader import TopicReader
from viewstamp.client.results import (
    DURABILITY,
    ActorInfo,
    Change,
    Decided,
    Outcome,
    Receipt,
    actor_info,
    receipts_of,
    result_or_error,
)
from viewstamp.client.runtime import Future
from viewstamp.client.send_queue import Ticket
from viewstamp.client.sender import Waiter, actor_place
from viewstamp.client.sinks import Sink
from viewstamp.client.watcher import Watcher
from viewstamp.errors import (
    ClosedError,
    OutcomeToken,
    OutcomeUnknownError,
    RequestError,
    StaleSessionError,
    StorageError,
    TrimmedError,
    UnavailableError,
    UnknownActorError,
)
from viewstamp.wire.batch import Batch, Record
from viewstamp.wire.commands import Interface, Stale, decode_result, encode_arguments
from viewstamp.wire.requests import AskOutcome, ListActors, QueryActor

__all__ = ["BaseClient"]


class BaseClient(Administrator):
    """One session with a cluster, shared by all tasks of an event loop.

    Not thread-safe. Nothing is connected before the first call. Made by a runtime's own class.
    """

    @property
    def record_bytes_max(self) -> int:
        """The largest record that the cluster takes; the default limit until a node has told its own."""
        return self._batches.record_bytes_max

    @property
    def batches_retried(self) -> int:
        """How often a batch was sent again, because a connection or a leader was lost or refused it for the moment."""
        return self._session.batches_retried

    # Appending.

    async def append(
        self,
        topic: str,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        expected_position: int | None = None,
        timeout: float | None = None,
    ) -> Receipt:
        """Append one record; return once it is on the disks of a majority.

        Concurrent calls share a batch. Within a topic, records stand in the order of the calls. Waits while too many
        bytes are held. Cancelled: the record may still be committed, unless it was not sent yet.

        Args:
          topic: its name.
          value: the record; bytes, any length up to the cluster's limit.
          key: bytes, or None.
          headers: names and bytes.
          expected_position: append it there or not at all; None = wherever the topic goes on. Shares no batch.
          timeout: seconds from now; None = the client's default.

        Raises:
          PositionMismatchError: the topic's next position is ``actual``, not the expected one. Final, and written is
            nothing; it is told only once the record that took the position, or the lack of one, is committed.
          UnavailableError: nothing was written; append again.
          OutcomeUnknownError: it may have been written, or may still be; ask with ``outcome(error.token)``.
          UnknownTopicError, RecordTooLargeError, RequestError: this record is wrong; others are not concerned.
          StorageFullError: refused for lack of space.
        """
        topic_id = self._topics.get(topic)
        if (
            topic_id is not None
            and timeout is None
            and key is None
            and headers is None
            and expected_position is None
            and type(value) is bytes
            and not self._queue.places
        ):
            batches = self._batches
            size = len(value) + RECORD_COST
            if size - RECORD_COST <= batches.record_bytes_max and batches.held_bytes + size <= self._held_max:
                future: Future[Receipt] = self._runtime.create_future()
                batch = batches.add(topic_id, value, size, future)
                try:
                    return await future
                except BaseException:
                    if future.cancelled():
                        self._gone(batch)
                    raise
        receipt: Receipt = await self._append(
            topic, [value], [key], [headers], timeout, atomic=False, expected_position=expected_position
        )
        return receipt

    async def append_many(
        self,
        topic: str,
        values: Sequence[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Mapping[str, bytes] | None] | None = None,
        expected_position: int | None = None,
        timeout: float | None = None,
    ) -> list[Receipt]:
        """Append records atomically: all or none, at consecutive positions, the first at ``expected_position``.

        As :meth:`append` otherwise.

        Raises:
          RecordTooLargeError: one record, or all of them together, are over the cluster's limits.
        """
        values = list(values)
        for name, column in (("keys", keys), ("headers", headers)):
            if column is not None and len(column) != len(values):
                raise RequestError(f"{len(column)} {name} for {len(values)} values", remedy="give one for each value")
        if not values:
            await self._runtime.sleep(0)
            return []
        receipts: list[Receipt] = await self._append(
            topic,
            values,
            list(keys) if keys is not None else [None] * len(values),
            list(headers) if headers is not None else [None] * len(values),
            timeout,
            atomic=True,
            expected_position=expected_position,
        )
        return receipts

    async def _append(
        self,
        topic: str,
        values: list[bytes],
        keys: list[bytes | None],
        headers: list[Mapping[str, bytes] | None],
        timeout: float | None,
        *,
        atomic: bool,
        expected_position: int | None,
    ) -> Any:
        """Append by the long way: with checks, a place in the line, and a timer where one is needed."""
        self._start()
        check_topic(topic)
        if expected_position is not None and as_whole(expected_position, "a position") < 1:
            raise RequestError("nothing is appended at position 0", remedy="positions begin at 1")
        values = [as_bytes(value, "a value") for value in values]
        keys = [None if key is None else as_bytes(key, "a key") for key in keys]
        headers = [as_headers(each) for each in headers]
        sizes = list(map(record_size, values, keys, headers))
        size = sum(sizes)
        future: Waiter = self._runtime.create_future()
        some_keys = keys if any(key is not None for key in keys) else None
        some_headers = headers if any(headers) else None

        def act() -> OpenBatch[Waiter]:
            self._batches.check_sizes(sizes)
            return self._batches.add_group(
                self._topics[topic],
                values,
                some_keys,
                some_headers,
                size,
                future,
                atomic=atomic,
                expected_position=expected_position or 0,
            )

        return await self._enter(Ticket(topic, size, future, act), timeout)

    async def outcome(self, token: OutcomeToken, *, timeout: float | None = None) -> Outcome:
        """Say what became of an append, or a command, whose outcome was unknown: one of three answers, each final.

        "applied", with its receipts; "not applied", fenced so that it stays so; or "expired": its session has ended, or
        the batch is too old, and nobody can tell any more. Where this client still sends that batch, its answer is
        awaited; else the leader is asked, and fences it.

        Raises:
          OutcomeUnknownError: no answer in time; ask again with the same token.
        """
        self._start()
        seconds = as_seconds(timeout, self._options.timeout)
        try:
            decided = await self._decided(token, seconds)
        except StaleSessionError:
            return Outcome(answer="expired")
        except (UnavailableError, OutcomeUnknownError, StorageError, TimeoutError) as error:
            if isinstance(error, ClosedError) and self._is_closed:
                raise
            raise OutcomeUnknownError(
                f"still unknown: {error}" if str(error) else f"still unknown after {seconds:g} s",
                token=token,
                remedy="ask again with the same token",
            ) from error
        receipt, results, durability = decided
        if receipt is None:
            return Outcome(answer="not applied")
        end = token.offset + token.count
        if end > receipt.count or (results is not None and end > len(results)):
            raise RequestError(
                f"the token names records {token.offset}..{end} of a batch of {receipt.count}",
                remedy="pass the token of an OutcomeUnknownError as it is",
            )
        return Outcome(
            answer="applied",
            receipts=receipts_of(receipt, token.offset, token.count, durability),
            results=None if results is None else list(map(result_or_error, results[token.offset : end])),
        )

    async def _decided(self, token: OutcomeToken, seconds: float) -> Decided:
        deadline = self._runtime.time() + seconds
        batch = self._session.find(token.session, token.sequence)
        if batch is not None:
            watcher: Future[Decided] = self._runtime.create_future()
            batch.watchers.append(watcher)
            try:
                return await self._runtime.within(seconds, watcher)
            except OutcomeUnknownError:
                if self._is_closed:
                    raise
                # The session ended meanwhile, and with it what this client knows: the leader has the last word.
        ask = AskOutcome(session=token.session, sequence=token.sequence)
        frame = await self._leading.ask(ask, deadline=deadline)
        durability = self._leading.link.durability if self._leading.link is not None else DURABILITY
        return Decided(read_receipt(frame.body["receipt"]), read_results(frame.body.get("results")), durability)

    # Replicated actors.

    @overload
    def actor(
        self,
        name: str,
        cls: type[ActorT],
        *,
        key: str = "",
        timeout: float | None = None,
        node: str | None = None,
        max_staleness: float | None = None,
    ) -> type[ActorT]: ...

    @overload
    def actor(
        self,
        name: str,
        cls: None = None,
        *,
        key: str = "",
        timeout: float | None = None,
        node: str | None = None,
        max_staleness: float | None = None,
    ) -> ActorProxy: ...

    def actor(
        self,
        name: str,
        cls: type[ActorT] | None = None,
        *,
        key: str = "",
        timeout: float | None = None,
        node: str | None = None,
        max_staleness: float | None = None,
    ) -> type[ActorT] | ActorProxy:
        """Return a proxy of one instance of an actor: ``await client.actor("inventory", Inventory).reserve("A", 2)``.

        With ``cls`` it is typed as that class: a type checker knows arguments and results, and errors that a command
        raises come back as its own classes. Each method of the proxy, awaited, is :meth:`call`, or :meth:`query`; a
        query's ``.stale(...)`` is answered by a node as it stands. Nothing is asked before the first call.

        Args:
          name: under which the nodes run the actor.
          cls: its class, a ``ReplicatedActor``; None = the nodes are asked what it understands.
          key: which instance; "" is one like any other.
          timeout: seconds for each call; None = the client's default.
          node: the member that queries ask; None = any.
          max_staleness: how stale the answer to ``.stale(...)`` may be, in seconds; None = as stale as it is.

        Raises:
          RequestError: ``cls`` is no class of replicated actors.
        """
        interface = interface_of(cls) if cls is not None else None
        proxy = ActorProxy(self, name, interface, key=key, timeout=timeout, node=node, max_staleness=max_staleness)
        return cast("ActorProxy | type[ActorT]", proxy)

    async def call(
        self, name: str, method: str, /, *arguments: Any, key: str = "", timeout: float | None = None, **named: Any
    ) -> Any:
        """Call a command of an actor; return its result once it was applied. It is applied exactly once.

        Concurrent calls, of whatever actors, share a batch. Cancelled: the command may still be applied, unless it was
        not sent yet. For arguments named ``key`` or ``timeout`` take a proxy: :meth:`actor`.

        Args:
          name: of the actor.
          method: the command.
          arguments: of the command; values that ``wire/values.py`` lists.
          key: which instance.
          timeout: seconds from now; None = the client's default.
          named: further arguments of the command.

        Raises:
          CommandError: the command was applied and raised this; that is its result, on every member.
          UnknownActorError: no such actor or command, or it takes other arguments; nothing was sent.
          RequestError: an argument cannot be packed.
          UnavailableError: nothing was applied; call again.
          OutcomeUnknownError: it may have been applied, or may still be; ask with ``outcome(error.token)``.
          StaleSessionError: it was applied, but so late that its result is not kept any more.
          StorageFullError: refused for lack of space.
        """
        remote = RemoteMethod(self, name, method, key=key, is_query=False, timeout=timeout)
        return await self.invoke(remote, arguments, named)

    async def query(
        self,
        name: str,
        method: str,
        /,
        *arguments: Any,
        key: str = "",
        stale: bool = False,
        max_staleness: float | None = None,
        node: str | None = None,
        timeout: float | None = None,
        **named: Any,
    ) -> Any:
        """Ask an actor; return what the query returned.

        Linearizable: it sees every command that was acknowledged before it began. ``stale``: as the node that is asked
        has it, be it cut off from the others; then a :class:`Stale` comes back, which says how far behind that may be.

        Args:
          name: of the actor.
          method: the query.
          arguments: of the query.
          key: which instance.
          stale: see above.
          max_staleness: stale, and at most so many seconds; see :meth:`describe_topic`.
          node: the member to ask; None = any.
          timeout: seconds from now; None = the client's default.
          named: further arguments of the query.

        Raises:
          CommandError: the query raised this.
          UnknownActorError: no such actor or query, or it takes other arguments.
          UnavailableError: nobody answered in time.
        """
        remote = RemoteMethod(
            self, name, method, key=key, is_query=True, timeout=timeout, node=node, max_staleness=max_staleness
        )
        if stale or max_staleness is not None:
            return await self.invoke_stale(remote, arguments, named)
        return await self.invoke(remote, arguments, named)

    async def invoke(self, method: RemoteMethod, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Call a method of a proxy; see :meth:`call` and :meth:`query`. The hot path of commands."""
        if (
            method.found is not None
            and not method.is_query
            and method.timeout is None
            and not self._queue.places
            and not self._is_closed
            and method.accepts(arguments, named)
        ):
            batches = self._batches
            value = method.encode(arguments, named)
            size = len(value) + RECORD_COST
            if size - RECORD_COST <= batches.record_bytes_max and batches.held_bytes + size <= self._held_max:
                future: Future[bytes] = self._runtime.create_future()
                batch = batches.add(COMMANDS, value, size, future)
                try:
                    packed = await future
                except BaseException:
                    if future.cancelled():
                        self._gone(batch)
                    raise
                return decode_result(packed, method.errors)
        if not method.is_query and (result := await self._command(method, arguments, named)) is not None:
            return decode_result(result, method.errors)
        return (await self._query(method, arguments, named, stale=False)).value

    async def invoke_stale(self, method: RemoteMethod, arguments: tuple[Any, ...], named: dict[str, Any]) -> Stale[Any]:
        """Ask a query of a proxy without asking other nodes; see :meth:`query`."""
        return await self._query(method, arguments, named, stale=True)

    async def _command(self, method: RemoteMethod, arguments: tuple[Any, ...], named: dict[str, Any]) -> bytes | None:
        """Call by the long way; None = it is a query, as the nodes say, and was not asked."""
        self._start()
        if method.is_query is not None:
            method.check(arguments, named, query=False)
        value = method.encode(arguments, named)
        size = len(value) + RECORD_COST
        name = actor_place(method.actor)
        future: Waiter = self._runtime.create_future()

        def act() -> OpenBatch[Waiter] | None:
            method.meet(self._interfaces[name], arguments, named)
            if method.is_query:
                future.set_result(None)
                return None
            self._batches.check_sizes([size])
            return self._batches.add(COMMANDS, value, size, future)

        described = self._interfaces.get(name)
        if described is not None:
            try:
                method.meet(described, arguments, named)
            except UnknownActorError:
                # The nodes may run newer code by now.
                del self._interfaces[name]
        packed: bytes | None = await self._enter(Ticket(name, size, future, act), method.timeout)
        return packed

    async def _query(
        self, method: RemoteMethod, arguments: tuple[Any, ...], named: dict[str, Any], *, stale: bool
    ) -> Stale[Any]:
        self._start()
        method.check(arguments, named, query=True)
        stale, max_staleness = as_staleness(stale, method.max_staleness if stale else None)
        query = QueryActor(
            actor=method.actor,
            key=method.key,
            method=method.name,
            arguments=encode_arguments(arguments, named, f"the query {method.actor}.{method.name}"),
            stale=stale,
            max_staleness=max_staleness,
            applied_index=0 if stale else self._session.applied_index,
        )
        seconds = as_seconds(method.timeout, self._options.timeout)
        _, frame = await self._pool.ask_any(query, seconds=seconds, node=method.node)
        answer = frame.body
        return Stale(decode_result(answer["result"], method.errors), answer["applied_index"], answer["age"])

    def watch(
        self, name: str, cls: type[Any] | None = None, *, key: str | None = None, index: int = 0
    ) -> AsyncGenerator[Change, None]:
        """Yield the commands that are applied to an actor, with what came of them, in order, each once; never ends.

        A connection that is lost is replaced, and watching goes on after the last change. Nodes keep the newest
        changes only, bounded in bytes: whoever is too slow is told, and nothing is left out silently.

        Args:
          name: of the actor.
          cls: its class, so that errors come as its own classes; None = as plain CommandError.
          key: which instance; None = all.
          index: the first log index of interest; 0 = from now on. After ``change``: ``change.index + 1``.

        Raises:
          TrimmedError: those changes are not kept any more: read the present state by a query, then watch again.
          UnknownActorError, RequestError: no such actor, or an index below 0.
          UnavailableError: nobody answered for as long as the default timeout.
        """
        self._start()
        if index < 0:
            raise RequestError(f"indices begin at 1, so nobody can watch from {index}", remedy="0 = from now on")
        watcher = Watcher(
            name,
            key,
            index,
            floor=self._session.applied_index + 1,
            errors=interface_of(cls).errors if cls is not None else {},
            wait=self._options.follow_wait,
        )
        return self._changes(watcher)

    async def _changes(self, watcher: Watcher) -> AsyncGenerator[Change, None]:
        while True:
            for change in await self._next_changes(watcher):
                yield change

    async def _next_changes(self, watcher: Watcher) -> list[Change]:
        """Return the next changes; [] = none yet. Cancelled, it may be called again and nothing is left out."""
        wait = watcher.wait
        try:
            _, frame = await self._pool.ask_any(
                watcher.request(), seconds=self._options.timeout + wait, wait=wait, node=watcher.node
            )
        except TrimmedError as error:
            watcher.on_trimmed(error, await self._members())
            return []
        except UnavailableError:
            if self._is_closed or not watcher.on_away():
                raise
            return []
        return watcher.on_answer(frame.body)

    async def list_actors(self, *, stale: bool = False, timeout: float | None = None) -> list[ActorInfo]:
        """List the actors that the nodes run. As :meth:`describe_topic` otherwise."""
        frame = await self._ask_any(ListActors(stale=stale), timeout)
        return [actor_info(actor) for actor in frame.body["actors"]]

    async def describe_actor(self, name: str, *, timeout: float | None = None) -> Interface:
        """Return the commands and queries of an actor, as the node that is asked has them in its code.

        Raises:
          UnknownActorError: no actor has this name there.
          UnavailableError: nobody answered in time.
        """
        self._start()
        return await self._ask_interface(name, as_seconds(timeout, self._options.timeout))

    # Sinks.

    def sink(
        self,
        name: str,
        *,
        owner: str = "",
        run: str = "",
        reset: bool = False,
        keep_seconds: float = 3600.0,
        forget_seconds: float = math.inf,
    ) -> Sink:
        """Return a sink to write whole batches to, each exactly once. Nothing is asked before the first call.

        Args:
          name: of the sink; it comes into being with its first attempt.
          owner: who numbers the batches; another one than the sink has is refused.
          run: one execution of the owner's program; all writers of a batch name the same. "" = a random one.
          reset: take the sink over from another owner, for good; its batches are numbered anew.
          keep_seconds: what is staged goes after so long without activity, in whole seconds of the log's time; earlier
            where a limited log needs the room.
          forget_seconds: whole seconds of log time after the latest attempt or commit until the cluster forgets the
            sink; ``math.inf`` = it is kept until ``forget_sink``. For sinks that write only one batch each. A batch
            that is written again after this time is there twice.

        Raises:
          RequestError: a name is no text, or the seconds are not above 0.
        """
        return Sink(
            self,
            self._runtime,
            self._options,
            self._entropy,
            name,
            owner=owner,
            run=run,
            reset=reset,
            keep_seconds=keep_seconds,
            forget_seconds=forget_seconds,
        )

    # Reading.

    def read(
        self,
        topic: str,
        start: int | None = None,
        *,
        end: int | None = None,
        follow: bool = False,
        node: str | None = None,
    ) -> AsyncGenerator[Record, None]:
        """Read a topic's records in order, from position ``start`` up to ``end`` (half-open).

        Without ``end`` and ``follow`` it ends at the last record that was committed when it began. Linearizable: it
        sees every append that was acknowledged before it began. A connection that is lost is replaced, and reading
        goes on with the next record.

        Args:
          topic: its name.
          start: the first position, from 1; None = the first that is kept, where the topic has been trimmed.
          end: the position after the last one; None = see above.
          follow: wait for records that are not there yet, for ever or up to ``end``.
          node: read what this member alone has applied, be it behind or cut off.

        Raises:
          UnknownTopicError, RequestError: no such topic, no such node, or a start below 1.
          TrimmedError: what comes next has been trimmed; ``first`` is the first position that is left.
          UnavailableError: nobody answered for as long as the default timeout.
        """
        return self._records(self._reader(topic, start, end=end, follow=follow, node=node))

    async def read_stale(
        self,
        topic: str,
        start: int | None = None,
        *,
        end: int | None = None,
        max_staleness: float | None = None,
        node: str | None = None,
    ) -> Stale[AsyncGenerator[Record, None]]:
        """Read a topic's records up to where one node has applied them, and say how stale that end is.

        ``value`` of the answer yields the records, as :meth:`read` does; nothing is missing before the end.

        Args:
          topic: its name.
          start: the first position, from 1; None = the first that is kept.
          end: the position after the last one; None = all that the node has.
          max_staleness: the end is at most so many seconds old; see :meth:`describe_topic`. None = however old it is.
          node: the member to read from; None = any.

        Raises:
          UnknownTopicError, RequestError: no such topic there, no such node, or a start below 1.
          UnavailableError: nobody answered within the default timeout, or nobody who is that fresh.
        """
        reader = self._reader(topic, start, end=end, node=node, staleness=as_staleness(True, max_staleness))
        await reader.begin()
        return Stale(self._records(reader), reader.applied_index, reader.age_seconds)

    def _reader(
        self,
        topic: str,
        start: int | None,
        *,
        end: int | None,
        follow: bool = False,
        node: str | None,
        staleness: tuple[bool, float | None] | None = None,
    ) -> TopicReader:
        self._start()
        return TopicReader(
            *(self._runtime, self._pool, self._options, topic, start),
            end=end,
            follow=follow,
            node=node,
            staleness=staleness,
        )

    def _records(self, reader: TopicReader) -> AsyncGenerator[Record, None]:
        return reader.records()

    def read_batches(
        self,
        topic: str,
        start: int | None = None,
        *,
        end: int | None = None,
        follow: bool = False,
        node: str | None = None,
    ) -> AsyncGenerator[Batch, None]:
        """Read whole batches: all that hold a position of the range, unopened. As :meth:`read` otherwise.

        The first and the last may hold records outside the range. A batch is a view of what was received: keep the
        values that you copy out of it, not the batch.
        """
        return self._reader(topic, start, end=end, follow=follow, node=node).batches()
