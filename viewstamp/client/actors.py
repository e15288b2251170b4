"""Calls of replicated actors: proxies, ``await inventory.reserve("A-17", 2)``, and the requests behind them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from viewstamp.client.batches import COMMANDS, RECORD_COST, OpenBatch
from viewstamp.client.checks import as_staleness, as_text
from viewstamp.client.group import GroupParts
from viewstamp.client.groups import Groups
from viewstamp.client.options import ClientOptions
from viewstamp.client.results import ActorInfo, actor_info
from viewstamp.client.runtime import Future, Runtime
from viewstamp.client.send_queue import Ticket, ticket_name
from viewstamp.client.sender import Waiter
from viewstamp.errors import CommandError, RequestError, UnknownActorError, ViewstampError
from viewstamp.ids import GROUP_0, GroupId
from viewstamp.wire.commands import (
    NO_NAMED,
    Interface,
    Method,
    Stale,
    decode_result,
    encode_arguments,
    encode_command,
    encode_head,
)
from viewstamp.wire.requests import ListActors, QueryActor
from viewstamp.wire.spread_actors import ListSpreadActors, SpreadActor
from viewstamp.wire.values import PACK_ERRORS, make_packer

__all__ = ["ActorCalls", "ActorProxy", "ActorT", "Calls", "RemoteMethod", "interface_of"]

_SHAPES_MAX = 64
_NO_ERRORS: Mapping[str, type[CommandError]] = {}


ActorT = TypeVar("ActorT")


class Calls(Protocol):
    """Sends calls to the cluster. A proxy uses the client through it."""

    def invoke(
        self, method: RemoteMethod, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> Coroutine[Any, Any, Any]:
        """Call a command or a query, and return its result."""
        ...

    def invoke_stale(
        self, method: RemoteMethod, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> Coroutine[Any, Any, Stale[Any]]:
        """Query a node that may be behind."""
        ...


class RemoteMethod:
    """One command or query of one instance of an actor.

    Invariants:
      * ``found`` is set once it is certain that the cluster's nodes know the method: from then on a command may share
        a batch with others, if ``found`` accepts its arguments
    """

    __slots__ = (
        "_accepted",
        "_calls",
        "_head",
        "_pack",
        "actor",
        "errors",
        "found",
        "interface",
        "is_query",
        "key",
        "max_staleness",
        "name",
        "node",
        "owner",
        "timeout",
    )

    def __init__(
        self,
        calls: Calls,
        actor: str,
        name: str,
        *,
        key: str = "",
        interface: Interface | None = None,
        is_query: bool | None = None,
        timeout: float | None = None,
        node: str | None = None,
        max_staleness: float | None = None,
    ) -> None:
        self._calls = calls
        self.actor = as_text(actor, "the name of an actor")
        self.name = name
        self.key = as_text(key, f"the key of an instance of {actor}")
        self.interface = interface
        """The method in the caller's class; None = there is no class, and the nodes' description is used."""
        self.errors: Mapping[str, type[CommandError]] = interface.errors if interface is not None else _NO_ERRORS
        """The classes of errors that the caller knows, by name."""
        self.is_query = name in interface.queries if interface is not None and is_query is None else is_query
        """None = not known yet."""
        self.found: Method | None = None
        self._accepted: set[int | tuple[object, ...]] = set()
        """Numbers and names of arguments that ``found`` has accepted, because comparing them again is slower."""
        self._head = b""
        self._pack: Callable[[object], bytes] | None = None
        """Set with ``found``: the common first bytes of its commands, and the packer of the rest."""
        self.owner = GROUP_0
        """The group of the instance, if the actor is spread and it is known."""
        self.timeout = timeout
        self.node = node
        """The member to ask, for queries; None = any."""
        self.max_staleness = max_staleness
        """Limit of the age of a stale answer, in seconds; None = no limit."""

    def __call__(self, *arguments: Any, **named: Any) -> Coroutine[Any, Any, Any]:
        """Call it. Returns when the command was applied, or the query answered."""
        return self._calls.invoke(self, arguments, named)

    def stale(self, *arguments: Any, **named: Any) -> Coroutine[Any, Any, Stale[Any]]:
        """Query a node that may be behind. The answer has an upper bound of its age."""
        return self._calls.invoke_stale(self, arguments, named)

    def __repr__(self) -> str:
        key = f"[{self.key!r}]" if self.key else ""
        return f"<{self.actor}{key}.{self.name}>"

    def accepts(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> bool:
        """Return whether ``found``, which must be set, accepts the arguments."""
        shape = (len(arguments), *named) if named else len(arguments)
        if shape in self._accepted:
            return True
        assert self.found is not None
        if not self.found.accepts(arguments, named):
            return False
        if len(self._accepted) < _SHAPES_MAX:
            self._accepted.add(shape)
        return True

    def check(self, arguments: tuple[Any, ...], named: Mapping[str, Any], *, query: bool) -> None:
        """Check a call against the caller's class, if it has one.

        Raises:
          UnknownActorError: there is no such command, or query, or it takes other arguments.
        """
        if self.interface is not None:
            self.interface.check(self.name, arguments, named, query=query)

    def meet(self, described: Interface, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        """Compare a call with a node's description of the actor, which also decides whether it is a query.

        Raises:
          UnknownActorError: the nodes' code does not know it, or takes other arguments.
        """
        mine = self.interface
        if mine is not None and mine.version > described.version:
            raise UnknownActorError(
                f"this program calls version {mine.version} of the actor {self.actor!r}, but a node runs version"
                f" {described.version}",
                remedy="start the nodes with the new code first",
            )
        is_query = self.is_query
        if is_query is None:
            is_query = self.name in described.queries
        described.check(self.name, arguments, named, query=is_query)
        self.is_query = is_query
        methods = (mine or described).queries if is_query else (mine or described).commands
        self.found = methods[self.name]
        if self._pack is None and not is_query:
            self._head = encode_head(self.actor, self.key, self._version, self.name)
            self._pack = make_packer()

    def encode(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> bytes:
        """Return the command as a record's value. Raises RequestError if an argument cannot be packed."""
        if self._pack is not None:
            try:
                packed = self._pack(list(arguments))
                return self._head + packed + (self._pack(named) if named else NO_NAMED)
            except PACK_ERRORS:
                pass  # The next lines find the wrong argument.
        return encode_command(self.actor, self.key, self._version, self.name, arguments, named)

    @property
    def _version(self) -> int:
        return self.interface.version if self.interface is not None else 0


class ActorProxy:
    """One instance of an actor: each attribute is the command or the query of that name.

    ``client.actor(name, cls)`` has the static type ``cls``, so that a type checker knows arguments and results.
    """

    def __init__(
        self,
        calls: Calls,
        actor: str,
        interface: Interface | None,
        *,
        key: str,
        timeout: float | None,
        node: str | None,
        max_staleness: float | None,
    ) -> None:
        self.__calls = calls
        self.__actor = actor
        self.__interface = interface
        self.__key = key
        self.__timeout = timeout
        self.__node = node
        self.__max_staleness = max_staleness

    def __getattr__(self, name: str) -> RemoteMethod:
        """Return the method of this name. Whether it exists is checked when it is called."""
        if name.startswith("_"):  # Tools that inspect objects look up such names.
            raise AttributeError(f"{self!r} has no {name!r}: commands and queries do not begin with an underscore")
        method = RemoteMethod(
            self.__calls,
            self.__actor,
            name,
            key=self.__key,
            interface=self.__interface,
            timeout=self.__timeout,
            node=self.__node,
            max_staleness=self.__max_staleness,
        )
        # The next access finds it without this function.
        self.__dict__[name] = method
        return method

    def __repr__(self) -> str:
        key = f" key={self.__key!r}" if self.__key else ""
        return f"<actor {self.__actor!r}{key}>"


def interface_of(cls: type[Any]) -> Interface:
    """Return the commands and queries of a class of replicated actors.

    Raises:
      RequestError: it is no such class.
    """
    interface = getattr(cls, "__viewstamp__", None)
    if not isinstance(interface, Interface) or not isinstance(cls, type):
        raise RequestError(
            f"{cls!r} is no class of replicated actors",
            remedy="pass the class itself, derived from viewstamp.ReplicatedActor",
        )
    return interface


class ActorCalls:
    """Sends calls of actors to the group of their instance: commands through a sender, queries to any node.

    | event | effect |
    | --- | --- |
    | the first call of an actor | it is for group 0. The nodes' description of the actor, which a command needs, has \
the owners of its instances if it is spread |
    | group 0 refuses a call, because the actor was spread since, or the node that described it lags | nothing was \
done. The owners are read, and the call is sent to the group of the instance |
    | the owners are known | calls go to the group of the instance. They never change, so this cannot be wrong |
    | a group has no majority | its calls wait until their timeouts; other groups have senders and shares of their own |
    """

    def __init__(self, runtime: Runtime, options: ClientOptions, groups: Groups) -> None:
        self._runtime = runtime
        self._groups = groups
        self._home = groups.group_0
        self._router = self._home.router
        self._queue = self._home.sender.queue
        self._list_seconds = options.connect_timeout + options.silence
        self._spread: dict[str, SpreadActor] = {}
        """The spread actors that are known, by name."""

    async def call(
        self, name: str, method: str, /, *arguments: Any, key: str = "", timeout: float | None = None, **named: Any
    ) -> Any:
        """Call a command of an actor. Returns its result once it was applied; it is applied exactly once.

        Example::

            reserved = await client.call("inventory", "reserve", "A-17", 2)

        Concurrent calls, of any actors, share a batch. If the call is cancelled, the command may still be applied,
        unless it was not sent yet. A command with an argument named ``key`` or ``timeout`` needs a proxy, see
        :meth:`actor`.

        Args:
          name: the actor's name.
          method: the command's name.
          arguments: the command's arguments: values of the types that ``wire/values.py`` lists.
          key: the key of the instance.
          timeout: seconds from now; None = the client's default.
          named: the command's keyword arguments.

        Raises:
          CommandError: the command was applied and raised this; it is the result on every member.
          UnknownActorError: nothing was sent; no such actor or command, or it takes other arguments.
          RequestError: nothing was sent; an argument cannot be packed.
          UnavailableError: nothing was applied; call again.
          OutcomeUnknownError: it may have been applied, or may still be; ask with ``outcome(error.token)``.
          StaleSessionError: it was applied, but so long ago that its result is no longer kept.
          StorageFullError: nothing was applied; the disk or the log of the leader is full.
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
        """Query an actor. Returns the query's result, or a :class:`Stale` with it if ``stale`` or ``max_staleness``.

        Example::

            available = await client.query("inventory", "available", "A-17")
            stale = await client.query("inventory", "available", "A-17", stale=True)
            print(available, stale.value, stale.age_seconds)

        By default the query is linearizable: it sees every command that was acknowledged before the call. A stale query
        is answered from one member's state, even if that member is cut off from the others.

        Args:
          name: the actor's name.
          method: the query's name.
          arguments: the query's arguments.
          key: the key of the instance.
          stale: accept an answer of any age.
          max_staleness: accept an answer of at most this age in seconds; see :meth:`describe_topic`.
          node: the member to ask; None = any.
          timeout: seconds from now; None = the client's default.
          named: the query's keyword arguments.

        Raises:
          CommandError: the query raised this.
          UnknownActorError: no such actor or query, or it takes other arguments.
          UnavailableError: no node answered in time.
        """
        remote = RemoteMethod(
            self, name, method, key=key, is_query=True, timeout=timeout, node=node, max_staleness=max_staleness
        )
        if stale or max_staleness is not None:
            return await self.invoke_stale(remote, arguments, named)
        return await self.invoke(remote, arguments, named)

    async def invoke(self, method: RemoteMethod, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Call a method of a proxy; see :meth:`call` and :meth:`query`. Most commands take the short path here."""
        parts = self._home if method.actor not in self._spread else self._at_hand(method)
        if (
            method.found is not None
            and parts is not None
            and not method.is_query
            and method.timeout is None
            and not parts.sender.queue.tickets
            and not parts.router.is_closed
            and method.accepts(arguments, named)
        ):
            sender = parts.sender
            batches = sender.batches
            value = method.encode(arguments, named)
            size = len(value) + RECORD_COST
            if size - RECORD_COST <= batches.record_bytes_max and batches.held_bytes + size <= sender.held_max:
                future: Future[bytes] = self._runtime.create_future()
                batch = batches.add(COMMANDS, value, size, future)
                try:
                    packed = await future
                except UnknownActorError as error:
                    if not error.is_spread:
                        raise
                except BaseException:
                    if future.cancelled():
                        sender.gone(batch)
                    raise
                else:
                    return decode_result(packed, method.errors)
        return (await self._call(method, arguments, named, stale=False)).value

    def _at_hand(self, method: RemoteMethod) -> GroupParts | None:
        """Return the parts for the group of a method's instance, of a spread actor; None = there are none yet."""
        if not method.owner:
            method.owner = self._spread[method.actor].group_of(method.key)
        return self._groups.at_hand(method.owner)

    async def invoke_stale(self, method: RemoteMethod, arguments: tuple[Any, ...], named: dict[str, Any]) -> Stale[Any]:
        """Send a stale query of a proxy; see :meth:`query`."""
        return await self._call(method, arguments, named, stale=True)

    async def _call(
        self, method: RemoteMethod, arguments: tuple[Any, ...], named: dict[str, Any], *, stale: bool
    ) -> Stale[Any]:
        """Call with all checks in the group that owns the instance, which a refusal of group 0 may reveal."""
        deadline, timeout = self._router.deadline(method.timeout), method.timeout
        while True:
            spread = self._spread.get(method.actor)
            with self._groups.call(GROUP_0 if spread is None else spread.group_of(method.key)) as parts:
                parts.router.start()
                try:
                    if not stale and not method.is_query:
                        packed = await self._command(parts, method, arguments, named, timeout)
                        if packed is not None:
                            return Stale(decode_result(packed, method.errors), 0, 0.0)
                    return await self._query(parts, method, arguments, named, timeout, stale=stale)
                except UnknownActorError as error:
                    if not error.is_spread or spread is not None:
                        raise
                    refusal = error
            if method.actor not in self._spread and await self.find_owners(method.actor, deadline) is None:
                raise refusal
            timeout = self._router.left(deadline)

    async def find_owners(self, actor: str, deadline: float) -> SpreadActor | None:
        """Return the owners of an actor's instances; None = it is not spread. Raises UnavailableError."""
        for is_stale in (True, False):  # A node that lags may not know them yet.
            frame = await self._router.ask(ListSpreadActors(stale=is_stale), deadline=deadline)
            self._spread |= {each["name"]: SpreadActor.read(each) for each in frame.body["actors"]}
            if actor in self._spread:
                break
        return self._spread.get(actor)

    async def _command(
        self,
        parts: GroupParts,
        method: RemoteMethod,
        arguments: tuple[Any, ...],
        named: dict[str, Any],
        timeout: float | None,
    ) -> bytes | None:
        """Call with all checks; None = the nodes describe a query, and nothing was sent."""
        queue, batches = parts.sender.queue, parts.sender.batches
        if method.is_query is not None:
            method.check(arguments, named, query=False)
        value = method.encode(arguments, named)
        size = len(value) + RECORD_COST
        name = ticket_name(method.actor)
        future: Waiter = self._runtime.create_future()

        def act(_: Ticket) -> OpenBatch[Waiter] | None:
            described = queue.interfaces[name]
            if described.spread is not None and parts.group == GROUP_0:
                self._spread[method.actor] = described.spread
                raise UnknownActorError(f"actor {method.actor!r} is spread over groups", is_spread=True)
            method.meet(described, arguments, named)
            if method.is_query:
                future.set_result(None)
                return None
            batches.check_sizes([size])
            return batches.add(COMMANDS, value, size, future)

        described = queue.interfaces.get(name)
        if described is not None:
            try:
                method.meet(described, arguments, named)
            except UnknownActorError:
                # The nodes may run newer code by now.
                del queue.interfaces[name]
        packed: bytes | None = await parts.sender.enter(Ticket(name, size, future, act), timeout)
        return packed

    async def _query(
        self,
        parts: GroupParts,
        method: RemoteMethod,
        arguments: tuple[Any, ...],
        named: dict[str, Any],
        timeout: float | None,
        *,
        stale: bool,
    ) -> Stale[Any]:
        method.check(arguments, named, query=True)
        request = QueryActor(
            actor=method.actor,
            key=method.key,
            method=method.name,
            arguments=encode_arguments(arguments, named, f"the query {method.actor}.{method.name}"),
            **as_staleness(stale, method.max_staleness if stale else None),
            applied_index=0 if stale else parts.sender.session.applied_index,
        )
        frame = await parts.router.ask(request, timeout, node=method.node)
        answer = frame.body
        return Stale(decode_result(answer["result"], method.errors), answer["applied_index"], answer["age"])

    async def list_actors(self, *, stale: bool = False, timeout: float | None = None) -> list[ActorInfo]:
        """List the actors that the nodes run. As :meth:`describe_topic` otherwise.

        The instances of a spread actor are counted in all its groups. A group that does not answer within a few seconds
        is named in ``missing``, and its instances are not counted.
        """
        deadline = self._router.deadline(timeout)
        frame = await self._router.ask(ListActors(stale=stale), deadline=deadline)
        actors = [actor_info(each) for each in frame.body["actors"]]
        seconds = min(self._router.left(deadline), self._list_seconds)
        asked = {
            group: self._runtime.spawn(self._count(group, seconds, stale=stale))
            for group in dict.fromkeys(group for each in actors for group in each.groups)
        }
        counts = {group: await count for group, count in asked.items()}
        return [_summed(each, counts) if each.groups else each for each in actors]

    async def _count(self, group: GroupId, seconds: float, *, stale: bool) -> Mapping[str, int] | None:
        """Return the number of instances of each actor in a group; None = it did not answer."""
        try:
            with self._groups.call(group) as parts:
                parts.router.start()
                _, frame = await parts.router.ask_any(ListActors(stale=stale), seconds=seconds)
        except ViewstampError:
            return None
        return {each["name"]: each["instances"] for each in frame.body["actors"]}

    async def describe_actor(self, name: str, *, timeout: float | None = None) -> Interface:
        """Return the commands and queries of an actor, as the node that is asked has them in its code.

        Raises:
          UnknownActorError: no actor has this name there.
          UnavailableError: no node answered in time.
        """
        self._router.start()
        return await self._queue.ask_interface(name, self._router.seconds(timeout))


def _summed(actor: ActorInfo, counts: Mapping[GroupId, Mapping[str, int] | None]) -> ActorInfo:
    """Return a spread actor with the instances in its groups."""
    answers = {group: counts[group] for group in actor.groups}
    return replace(
        actor,
        instances=sum(count.get(actor.name, 0) for count in answers.values() if count is not None),
        digest="",
        missing=tuple(group for group, count in answers.items() if count is None),
    )
