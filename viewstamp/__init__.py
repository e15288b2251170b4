"""viewstamp: a replicated log for async Python, in which nothing acknowledged is lost.

Three ways in:

    async with viewstamp.connect("127.0.0.1:7001,127.0.0.1:7002") as client: ...     # a cluster elsewhere
    async with viewstamp.open_node("node1.toml") as node: ...                        # a member in this process
    async with viewstamp.local_cluster(nodes=3) as cluster: ...                      # a whole one, for tests

A name is imported when it is first used: importing this package costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from viewstamp.client.options import Options as ClientOptions
    from viewstamp.client.results import Outcome, Receipt, TopicInfo
    from viewstamp.embed.connect import connect
    from viewstamp.embed.local_cluster import ClusterHandle, local_cluster
    from viewstamp.embed.open_node import EmbeddedNode, open_node
    from viewstamp.errors import (
        ClosedError,
        CommandError,
        ConfigError,
        CorruptionError,
        DirectoryInUseError,
        DivergedError,
        FrameError,
        NoQuorumError,
        NotLeaderError,
        OutcomeToken,
        OutcomeUnknownError,
        OutdatedCodeError,
        OverloadedError,
        PeerError,
        RecordTooLargeError,
        RequestError,
        StaleSessionError,
        StorageError,
        StorageFullError,
        TopicExistsError,
        TrimmedError,
        UnavailableError,
        UnknownActorError,
        UnknownTopicError,
        ViewstampError,
        WrongClusterError,
    )
    from viewstamp.ids import Viewstamp
    from viewstamp.wire.batch import Record

__all__ = [
    "ClientOptions",
    "ClosedError",
    "ClusterHandle",
    "CommandError",
    "ConfigError",
    "CorruptionError",
    "DirectoryInUseError",
    "DivergedError",
    "EmbeddedNode",
    "FrameError",
    "NoQuorumError",
    "NotLeaderError",
    "Outcome",
    "OutcomeToken",
    "OutcomeUnknownError",
    "OutdatedCodeError",
    "OverloadedError",
    "PeerError",
    "Receipt",
    "Record",
    "RecordTooLargeError",
    "RequestError",
    "StaleSessionError",
    "StorageError",
    "StorageFullError",
    "TopicExistsError",
    "TopicInfo",
    "TrimmedError",
    "UnavailableError",
    "UnknownActorError",
    "UnknownTopicError",
    "Viewstamp",
    "ViewstampError",
    "WrongClusterError",
    "connect",
    "local_cluster",
    "open_node",
]

_HOMES = {
    "ClientOptions": "client.options:Options",
    "ClusterHandle": "embed.local_cluster",
    "EmbeddedNode": "embed.open_node",
    "Outcome": "client.results",
    "Receipt": "client.results",
    "Record": "wire.batch",
    "TopicInfo": "client.results",
    "Viewstamp": "ids",
    "connect": "embed.connect",
    "local_cluster": "embed.local_cluster",
    "open_node": "embed.open_node",
}
"""Where a name comes from, and its name there where that is another one. What is not here comes from ``errors``."""

if not TYPE_CHECKING:  # A type checker would take it for a promise that every name is there.

    def __getattr__(name: str) -> object:
        """Import a name of ``__all__`` when it is first asked for."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, _, origin = _HOMES.get(name, "errors").partition(":")
        found = globals()[name] = getattr(import_module(f"{__name__}.{module}"), origin or name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
