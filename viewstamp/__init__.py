"""viewstamp: a replicated log for async Python, in which nothing acknowledged is lost.

Three ways in:

    async with viewstamp.connect("127.0.0.1:7001,127.0.0.1:7002") as client: ...     # a cluster elsewhere
    async with viewstamp.open_node("node1.toml") as node: ...                        # a member in this process
    async with viewstamp.local_cluster(nodes=3) as cluster: ...                      # a whole one, for tests
"""

from viewstamp.client.options import Options as ClientOptions
from viewstamp.client.results import Outcome, Receipt, TopicInfo
from viewstamp.embed import ClusterHandle, EmbeddedNode, connect, local_cluster, open_node
from viewstamp.errors import (
    ClosedError,
    ConfigError,
    CorruptionError,
    DirectoryInUseError,
    FrameError,
    NoQuorumError,
    NotLeaderError,
    OutcomeToken,
    OutcomeUnknownError,
    OverloadedError,
    PeerError,
    RecordTooLargeError,
    RequestError,
    StaleSessionError,
    StorageError,
    StorageFullError,
    TopicExistsError,
    UnavailableError,
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
    "ConfigError",
    "CorruptionError",
    "DirectoryInUseError",
    "EmbeddedNode",
    "FrameError",
    "NoQuorumError",
    "NotLeaderError",
    "Outcome",
    "OutcomeToken",
    "OutcomeUnknownError",
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
    "UnavailableError",
    "UnknownTopicError",
    "Viewstamp",
    "ViewstampError",
    "WrongClusterError",
    "connect",
    "local_cluster",
    "open_node",
]
