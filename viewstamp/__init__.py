"""viewstamp: a replicated log for async Python, in which nothing acknowledged is lost.

There are three ways to use it::

    async with viewstamp.connect("127.0.0.1:7001,127.0.0.1:7002") as client: ...     # a client of a running cluster
    async with viewstamp.open_node("node1.toml") as node: ...                        # a member inside this process
    async with viewstamp.local_cluster(nodes=3) as cluster: ...                      # a whole cluster, for tests

All three give a :class:`Client`, whose ``append`` and ``read`` work on topics. Derive replicated state machines from
:class:`ReplicatedActor`, and mark their methods with :func:`command` and :func:`query`. Every error is a
:class:`ViewstampError`; its class shows whether the request may have happened (``docs/errors.md``).

Each package may import only packages that come after it in this list: ``cli`` and ``pytest_plugin``; ``demo`` and
``bench``; ``local`` (the processes of this machine); ``doctor``; ``terminal``; ``spark``; ``testing``; ``sim``;
``trio``; ``embed``; ``backup``; ``fork``; ``replay``; ``streams``, ``config`` and ``archive``; ``client`` and ``node``;
``consensus``, ``wal`` and ``actors``; ``host`` and ``wire``; ``errors``; ``enums``, ``ids``, ``quantities`` and
``value_class``.

Each name is imported at its first use, so that ``import viewstamp`` loads no other module of the package.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from viewstamp.actors.replicated.actor import ReplicatedActor
    from viewstamp.actors.replicated.methods import command, query
    from viewstamp.archive.arrow_reader import ArrowFile, ArrowReader, open_arrow
    from viewstamp.client.aio import Client
    from viewstamp.client.options import ClientOptions
    from viewstamp.client.results import (
        ActorInfo,
        ArchivedInfo,
        ArchiveInfo,
        AuditEntry,
        Change,
        GroupInfo,
        GroupLeader,
        Members,
        Outcome,
        Receipt,
        SnapshotInfo,
        SpreadRecord,
        SpreadTopicInfo,
        TokenInfo,
        TopicInfo,
    )
    from viewstamp.client.runs import KeyRunInfo, RunInfo
    from viewstamp.client.sinks import Attempt, CommitRange, Sealed, Sink, SinkCommit, SinkInfo
    from viewstamp.embed.connect import connect
    from viewstamp.embed.local_cluster import ClusterHandle, local_cluster
    from viewstamp.embed.open_node import EmbeddedNode, open_node
    from viewstamp.errors import (
        AccessDeniedError,
        BrokenRuleError,
        ClosedError,
        CommandError,
        ConfigError,
        ContradictionError,
        CorruptionError,
        DirectoryInUseError,
        DivergedError,
        FencedError,
        FrameError,
        LostDiskError,
        MovedError,
        NoQuorumError,
        NotLeaderError,
        OutcomeToken,
        OutcomeUnknownError,
        OutdatedCodeError,
        OverloadedError,
        PeerError,
        PositionMismatchError,
        RecordTooLargeError,
        RequestError,
        ResultTooLargeError,
        StagingError,
        StaleSessionError,
        StorageError,
        StorageFullError,
        StreamSealedError,
        TlsError,
        TopicExistsError,
        TrimmedError,
        UnavailableError,
        UnknownActorError,
        UnknownTopicError,
        ViewstampError,
        WrongClusterError,
        WrongNodeError,
    )
    from viewstamp.host.tls import TlsFiles
    from viewstamp.ids import Viewstamp
    from viewstamp.wire.batch import Record
    from viewstamp.wire.commands import Stale
    from viewstamp.wire.row_schema import RowSchema
    from viewstamp.wire.spread_actors import SpreadActor

__all__ = [
    "AccessDeniedError",
    "ActorInfo",
    "ArchiveInfo",
    "ArchivedInfo",
    "ArrowFile",
    "ArrowReader",
    "Attempt",
    "AuditEntry",
    "BrokenRuleError",
    "Change",
    "Client",
    "ClientOptions",
    "ClosedError",
    "ClusterHandle",
    "CommandError",
    "CommitRange",
    "ConfigError",
    "ContradictionError",
    "CorruptionError",
    "DirectoryInUseError",
    "DivergedError",
    "EmbeddedNode",
    "FencedError",
    "FrameError",
    "GroupInfo",
    "GroupLeader",
    "KeyRunInfo",
    "LostDiskError",
    "Members",
    "MovedError",
    "NoQuorumError",
    "NotLeaderError",
    "Outcome",
    "OutcomeToken",
    "OutcomeUnknownError",
    "OutdatedCodeError",
    "OverloadedError",
    "PeerError",
    "PositionMismatchError",
    "Receipt",
    "Record",
    "RecordTooLargeError",
    "ReplicatedActor",
    "RequestError",
    "ResultTooLargeError",
    "RowSchema",
    "RunInfo",
    "Sealed",
    "Sink",
    "SinkCommit",
    "SinkInfo",
    "SnapshotInfo",
    "SpreadActor",
    "SpreadRecord",
    "SpreadTopicInfo",
    "StagingError",
    "Stale",
    "StaleSessionError",
    "StorageError",
    "StorageFullError",
    "StreamSealedError",
    "TlsError",
    "TlsFiles",
    "TokenInfo",
    "TopicExistsError",
    "TopicInfo",
    "TrimmedError",
    "UnavailableError",
    "UnknownActorError",
    "UnknownTopicError",
    "Viewstamp",
    "ViewstampError",
    "WrongClusterError",
    "WrongNodeError",
    "command",
    "connect",
    "local_cluster",
    "open_arrow",
    "open_node",
    "query",
]

_HOMES = {
    "ActorInfo": "client.results",
    "Attempt": "client.sinks",
    "ArchiveInfo": "client.results",
    "ArchivedInfo": "client.results",
    "ArrowFile": "archive.arrow_reader",
    "ArrowReader": "archive.arrow_reader",
    "AuditEntry": "client.results",
    "Change": "client.results",
    "Client": "client.aio",
    "ClientOptions": "client.options",
    "ClusterHandle": "embed.local_cluster",
    "CommitRange": "client.sinks",
    "EmbeddedNode": "embed.open_node",
    "GroupInfo": "client.results",
    "GroupLeader": "client.results",
    "KeyRunInfo": "client.runs",
    "Members": "client.results",
    "Outcome": "client.results",
    "Receipt": "client.results",
    "Record": "wire.batch",
    "ReplicatedActor": "actors.replicated.actor",
    "RowSchema": "wire.row_schema",
    "RunInfo": "client.runs",
    "Sealed": "client.sinks",
    "Sink": "client.sinks",
    "SinkCommit": "client.sinks",
    "SinkInfo": "client.sinks",
    "SnapshotInfo": "client.results",
    "SpreadActor": "wire.spread_actors",
    "SpreadRecord": "client.results",
    "SpreadTopicInfo": "client.results",
    "Stale": "wire.commands",
    "TlsFiles": "host.tls",
    "TokenInfo": "client.results",
    "TopicInfo": "client.results",
    "Viewstamp": "ids",
    "command": "actors.replicated.methods",
    "connect": "embed.connect",
    "local_cluster": "embed.local_cluster",
    "open_arrow": "archive.arrow_reader",
    "open_node": "embed.open_node",
    "query": "actors.replicated.methods",
}
"""The module of each name of ``__all__``; names that are not listed come from ``errors``."""

if not TYPE_CHECKING:  # A type checker would conclude from __getattr__ that every name exists.

    def __getattr__(name: str) -> object:
        """Import a name of ``__all__`` when it is first asked for."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, _, origin = _HOMES.get(name, "errors").partition(":")
        found = globals()[name] = getattr(import_module(f"{__name__}.{module}"), origin or name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
