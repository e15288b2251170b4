"""Replicated actors: plain classes whose instances follow the log."""

from viewstamp.actors.replicated.actor import ReplicatedActor
from viewstamp.actors.replicated.cut import ActorCut
from viewstamp.actors.replicated.host import ActorHost
from viewstamp.actors.replicated.hosted import MACHINE_FAILURES
from viewstamp.actors.replicated.lint import lint
from viewstamp.actors.replicated.methods import QueryCall, command, query
from viewstamp.wire.commands import Stale

__all__ = [
    "MACHINE_FAILURES",
    "ActorCut",
    "ActorHost",
    "QueryCall",
    "ReplicatedActor",
    "Stale",
    "command",
    "lint",
    "query",
]
