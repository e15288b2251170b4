"""A client, composed of its parts; ``aio.Client`` and ``viewstamp.trio.Client`` are its two faces."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast, overload

from viewstamp.client.actors import ActorCalls, ActorProxy, ActorT, interface_of
from viewstamp.client.admin import Admin
from viewstamp.client.archive_calls import ArchiveCalls
from viewstamp.client.balance import Balance
from viewstamp.client.checks import Staleness
from viewstamp.client.connection import parse_addresses
from viewstamp.client.global_positions import GlobalPositions
from viewstamp.client.group import GroupParts
from viewstamp.client.group_removal import GroupRemovalCalls
from viewstamp.client.groups import Groups
from viewstamp.client.keyed import KeyedCalls
from viewstamp.client.links import Links
from viewstamp.client.log_copies import LogCopies
from viewstamp.client.lost_streams import LostStreamCalls
from viewstamp.client.named_reader import NamedReader
from viewstamp.client.options import ClientOptions
from viewstamp.client.reader import TopicReader
from viewstamp.client.router import Router
from viewstamp.client.routing import Addresses, Roster
from viewstamp.client.row_calls import RowCalls
from viewstamp.client.runtime import Dialer, Runtime
from viewstamp.client.sinks import Sinks
from viewstamp.client.spread_actors import SpreadActorCalls
from viewstamp.client.spread_reader import SpreadReader
from viewstamp.client.spread_topics import SpreadTopicCalls
from viewstamp.client.stream_archives import StreamArchiveCalls
from viewstamp.client.stream_moves import StreamMoves
from viewstamp.client.stream_relocation import RelocationCalls
from viewstamp.client.stream_removal import RemovalCalls
from viewstamp.client.stream_routes import StreamRoutes
from viewstamp.client.streams import StreamCalls, TopicStreamReader
from viewstamp.client.token_calls import TokenCalls
from viewstamp.client.topic_appends import TopicAppends
from viewstamp.client.topic_calls import TopicCalls
from viewstamp.client.watcher import Watcher
from viewstamp.errors import RequestError
from viewstamp.ids import GroupId

__all__ = ["BaseClient"]

P = ParamSpec("P")
ResultT = TypeVar("ResultT")


class _By(Generic[P, ResultT]):
    """A method of a client that one of its parts carries out: ``add_member = _By("_admin", Admin.add_member)``.

    The client's attribute is the part's bound method itself, so that a call costs nothing on its way.
    """

    def __init__(self, part: str, method: Callable[Concatenate[Any, P], ResultT]) -> None:
        self._part = part
        self._method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Callable[..., ResultT]: ...

    @overload
    def __get__(self, client: object, owner: type) -> Callable[P, ResultT]: ...

    def __get__(self, client: object | None, owner: type) -> Callable[..., ResultT]:
        if client is None:
            return self._method
        name = self._method.__name__
        found: Callable[..., ResultT] = getattr(getattr(client, self._part), name)
        if next(each.__dict__[name] for each in owner.__mro__ if name in each.__dict__) is self:
            # The next access finds it without coming here; but a subclass's own method goes before this one.
            client.__dict__[name] = found
        return found


class BaseClient:
    """One session with each group of a cluster that it uses, shared by all tasks of an event loop.

    Not thread-safe. No connection is opened before the first call. Each part can be used without those below it:

    | part | does |
    | --- | --- |
    | ``Groups`` | the parts for each group (``GroupParts``), which are the next four |
    | ``ConnectionPool``, ``LeaderConnection`` | connections, and the search for the leader |
    | ``Router`` | requests to any node, a member or the leader, with retries |
    | ``Sender`` | the session: batches, sequences, timeouts of appends |
    | ``Appends`` | appends and their outcomes |
    | ``TopicAppends``, ``StreamRoutes`` | the appends of the client, to the group and the stream of each record |
    | ``GlobalPositions`` | the wait of ordered appends |
    | ``ActorCalls`` | calls of actors, in the group of each instance |
    | ``Sinks``, ``TopicCalls``, ``TokenCalls``, ``Admin`` | the other calls, which all are for group 0 |
    """

    def __init__(
        self,
        addresses: str | Sequence[str],
        *,
        runtime: Runtime,
        links: Callable[[], Links],
        network: Dialer,
        entropy: random.Random,
        cluster_id: str = "",
        options: ClientOptions | None = None,
    ) -> None:
        """Create a client; never awaits.

        Args:
          addresses: ``"host:port,host:port"``, or a sequence of addresses. Any members; they name the others.
          runtime: the event loop.
          links: returns the links that the clients of this event loop share.
          network: opens connections.
          entropy: the only source of randomness: for jitter, for the first node to ask, and for the secrets of tokens.
          cluster_id: the only cluster to talk to; "" = the cluster of the first node that answers.
          options: see :class:`ClientOptions`.

        Raises:
          ConfigError: an address does not have the form ``host:port``.
        """
        self._options = options = options or ClientOptions()
        self._runtime = runtime
        roster = Roster(options.expected, cluster_id)
        known = Addresses(parse_addresses(addresses), roster.admits)

        def make(group: GroupId) -> GroupParts:
            of_group = Addresses(known, roster.admits) if group else known
            return GroupParts(runtime, links, network, of_group, roster, entropy=entropy, options=options, group=group)

        self._groups = Groups(runtime, options, make)
        home = self._groups.group_0
        self._pool, self._router, self._sender = home.pool, home.router, home.sender
        self._routes = StreamRoutes(runtime, options, home, entropy)
        self._streams = StreamCalls(runtime, options, self._groups)
        self._positions = GlobalPositions(runtime, options, self._groups, self._streams)
        self._moves = StreamMoves(runtime, options, self._groups, self._routes)
        self._appends = TopicAppends(runtime, self._groups, self._routes, self._positions, self._moves)
        self._actors = ActorCalls(runtime, options, self._groups)
        self._sinks = Sinks(runtime, options, self._groups, self._routes, entropy)
        self._admin = Admin(self._router)
        self._copies = LogCopies(self._groups)
        self._topics = TopicCalls(self._router, self._admin)
        self._tokens = TokenCalls(self._router, entropy)
        self._spread_topics = SpreadTopicCalls(self._router, self._admin)
        self._lost_streams = LostStreamCalls(runtime, self._router, self._admin, self._groups, self._streams)
        self._relocation = RelocationCalls(self._router, self._spread_topics, self._streams)
        self._removal = RemovalCalls(self._router, self._admin, self._spread_topics, self._streams, self._positions)
        self._group_removal = GroupRemovalCalls(self._router, self._admin, self._groups)
        self._spread_actors = SpreadActorCalls(self._router, self._admin)
        self._balance = Balance(runtime, self._groups, self._admin, entropy)
        self._rows = RowCalls(self._router, self._admin, self._topics, self._spread_topics, self._appends)
        self._archive = ArchiveCalls(self._router, self._admin, self._topics)
        self._stream_archives = StreamArchiveCalls(runtime, self._groups, self._spread_topics, self._streams)
        self._keyed = KeyedCalls(self._router, self._admin)

    def _close(self) -> None:
        """Fail all calls at once: with ClosedError if never sent, else with OutcomeUnknownError. Idempotent."""
        self._groups.close()
        self._routes.close()
        self._moves.close()

    @property
    def record_bytes_max(self) -> int:
        """The largest record that the cluster accepts, in bytes; the default limit until a node has reported one."""
        return self._sender.batches.record_bytes_max

    @property
    def batches_retried(self) -> int:
        """Number of repeated batches: a connection was lost, or a node refused the batch for the moment."""
        return self._sender.session.batches_retried

    append = _By("_appends", TopicAppends.append)
    append_many = _By("_appends", TopicAppends.append_many)
    outcome = _By("_groups", Groups.outcome)
    find_global_position = _By("_positions", GlobalPositions.find_global_position)

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
        """Return a proxy of one instance of an actor. Sends nothing before the first call.

        Example::

            inventory = client.actor("inventory", Inventory)
            reserved = await inventory.reserve("A-17", 2)
            available = await inventory.available.stale("A-17")
            print(reserved, available.value, available.age_seconds)

        Each method of the proxy is a coroutine: see :meth:`call` for commands and :meth:`query` for queries, with
        their errors and the effect of cancellation. ``.stale(...)`` of a query is answered from one member's state.

        Args:
          name: the name under which the nodes run the actor.
          cls: its class, a ``ReplicatedActor``: a type checker then knows arguments and results, and errors that a
            command raises have its classes. None = the client asks the nodes for the methods.
          key: the key of the instance; "" is a key like any other.
          timeout: seconds for each call; None = the client's default.
          node: the member that queries ask; None = any.
          max_staleness: the largest age of the answer to ``.stale(...)``, in seconds; None = any age.

        Raises:
          RequestError: ``cls`` is not a class of replicated actors.
        """
        interface = interface_of(cls) if cls is not None else None
        proxy = ActorProxy(
            self._actors, name, interface, key=key, timeout=timeout, node=node, max_staleness=max_staleness
        )
        return cast("ActorProxy | type[ActorT]", proxy)

    call = _By("_actors", ActorCalls.call)
    query = _By("_actors", ActorCalls.query)
    list_actors = _By("_actors", ActorCalls.list_actors)
    describe_actor = _By("_actors", ActorCalls.describe_actor)
    spread_actor = _By("_spread_actors", SpreadActorCalls.spread_actor)
    list_spread_actors = _By("_spread_actors", SpreadActorCalls.list_spread_actors)

    describe_stream = _By("_streams", StreamCalls.describe_stream)

    sink = _By("_sinks", Sinks.sink)
    describe_sink = _By("_sinks", Sinks.describe_sink)
    list_sinks = _By("_sinks", Sinks.list_sinks)
    forget_sink = _By("_sinks", Sinks.forget_sink)

    create_topic = _By("_topics", TopicCalls.create_topic)
    configure_topic = _By("_topics", TopicCalls.configure_topic)
    set_schema = _By("_rows", RowCalls.set_schema)
    get_schema = _By("_rows", RowCalls.get_schema)
    append_rows = _By("_rows", RowCalls.append_rows)
    trim_topic = _By("_topics", TopicCalls.trim_topic)
    describe_topic = _By("_topics", TopicCalls.describe_topic)
    list_topics = _By("_topics", TopicCalls.list_topics)
    split_topic = _By("_topics", TopicCalls.split_topic)
    find_time = _By("_topics", TopicCalls.find_time)
    create_snapshot = _By("_admin", Admin.create_snapshot)
    list_snapshots = _By("_admin", Admin.list_snapshots)
    describe_log = _By("_copies", LogCopies.describe_log)
    copy_log = _By("_copies", LogCopies.copy_log)
    copy_snapshot = _By("_copies", LogCopies.copy_snapshot)
    list_members = _By("_admin", Admin.list_members)
    add_member = _By("_admin", Admin.add_member)
    remove_member = _By("_admin", Admin.remove_member)
    transfer_leadership = _By("_admin", Admin.transfer_leadership)
    place_group = _By("_admin", Admin.place_group)
    cancel_group = _By("_admin", Admin.cancel_group)
    add_group_member = _By("_admin", Admin.add_group_member)
    remove_group_member = _By("_admin", Admin.remove_group_member)
    remove_group = _By("_group_removal", GroupRemovalCalls.remove_group)
    list_groups = _By("_admin", Admin.list_groups)
    balance_leaders = _By("_balance", Balance.balance_leaders)
    create_spread_topic = _By("_spread_topics", SpreadTopicCalls.create_spread_topic)
    configure_spread_topic = _By("_spread_topics", SpreadTopicCalls.configure_spread_topic)
    trim_spread_topic = _By("_spread_topics", SpreadTopicCalls.trim_spread_topic)
    add_stream = _By("_spread_topics", SpreadTopicCalls.add_stream)
    seal_stream = _By("_spread_topics", SpreadTopicCalls.seal_stream)
    move_stream = _By("_relocation", RelocationCalls.move_stream)
    remove_stream = _By("_removal", RemovalCalls.remove_stream)
    lose_stream = _By("_lost_streams", LostStreamCalls.lose_stream)
    describe_loss = _By("_lost_streams", LostStreamCalls.describe_loss)
    describe_spread_topic = _By("_spread_topics", SpreadTopicCalls.describe_spread_topic)
    list_spread_topics = _By("_spread_topics", SpreadTopicCalls.list_spread_topics)
    archive_topic = _By("_archive", ArchiveCalls.archive_topic)
    list_runs = _By("_archive", ArchiveCalls.list_runs)
    list_key_runs = _By("_archive", ArchiveCalls.list_key_runs)
    check_run = _By("_archive", ArchiveCalls.check_run)
    find_orphans = _By("_archive", ArchiveCalls.find_orphans)
    archive_spread_topic = _By("_stream_archives", StreamArchiveCalls.archive_spread_topic)
    list_stream_runs = _By("_stream_archives", StreamArchiveCalls.list_stream_runs)
    check_stream_run = _By("_stream_archives", StreamArchiveCalls.check_stream_run)
    find_stream_orphans = _By("_stream_archives", StreamArchiveCalls.find_stream_orphans)
    configure_keyed = _By("_keyed", KeyedCalls.configure_keyed)
    get = _By("_keyed", KeyedCalls.get)
    create_token = _By("_tokens", TokenCalls.create_token)
    list_tokens = _By("_tokens", TokenCalls.list_tokens)
    rotate_token = _By("_tokens", TokenCalls.rotate_token)
    revoke_token = _By("_tokens", TokenCalls.revoke_token)
    list_audit = _By("_tokens", TokenCalls.list_audit)
    status = _By("_router", Router.status)

    # The two clients turn these into iterators.

    def _reader(
        self,
        topic: str,
        start: int | None,
        *,
        end: int | None,
        follow: bool = False,
        node: str | None,
        staleness: Staleness | None = None,
        stream: int | None = None,
    ) -> TopicReader | NamedReader:
        self._router.start()
        if stream is not None:
            return TopicStreamReader(
                *(self._runtime, self._groups, self._options, topic, stream, start),
                end=end,
                follow=follow,
                node=node,
                staleness=staleness,
            )
        plain = TopicReader(
            *(self._runtime, self._router, self._options, topic, start),
            end=end,
            follow=follow,
            node=node,
            staleness=staleness,
        )

        spread = SpreadReader(
            *(self._runtime, self._groups, self._options, topic, start),
            end=end,
            follow=follow,
            node=node,
            is_stale=staleness is not None,
        )
        return NamedReader(plain, spread)

    def _watcher(self, name: str, cls: type[Any] | None, key: str | None, index: int) -> Watcher:
        self._router.start()
        if index < 0:
            raise RequestError(
                f"changes cannot be watched from index {index}: indices begin at 1", remedy="0 = from now on"
            )
        return Watcher(
            self._groups,
            self._options,
            name,
            key,
            index,
            find_owners=self._actors.find_owners,
            errors=interface_of(cls).errors if cls is not None else {},
        )
