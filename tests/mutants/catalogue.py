"""Every planted mistake, in the core, the node, its log and its streams."""

from __future__ import annotations

import re
from dataclasses import replace

from tests.explore.mutants import EXPLORED
from tests.mutants.actor_mutants import ACTOR_MUTANTS
from tests.mutants.archive_mutants import ARCHIVE_MUTANTS
from tests.mutants.arrow_mutants import ARROW_MUTANTS
from tests.mutants.backup_mutants import BACKUP_MUTANTS
from tests.mutants.beat_mutants import BEAT_MUTANTS
from tests.mutants.client_mutants import CLIENT_MUTANTS
from tests.mutants.core_mutants import CORE_MUTANTS
from tests.mutants.fork_mutants import FORK_MUTANTS
from tests.mutants.group_removal_mutants import GROUP_REMOVAL_MUTANTS
from tests.mutants.host_mutants import HOST_MUTANTS
from tests.mutants.interval_mutants import INTERVAL_MUTANTS
from tests.mutants.keyed_mutants import KEYED_MUTANTS
from tests.mutants.lost_mutants import LOST_MUTANTS
from tests.mutants.message_mutants import MESSAGE_MUTANTS
from tests.mutants.mutants import MUTANTS, Mutant
from tests.mutants.node_mutants import NODE_MUTANTS
from tests.mutants.notice_mutants import NOTICE_MUTANTS
from tests.mutants.order_mutants import ORDER_MUTANTS
from tests.mutants.ordered_append_mutants import ORDERED_APPEND_MUTANTS
from tests.mutants.reader_mutants import READER_MUTANTS
from tests.mutants.recovery_mutants import RECOVERY_MUTANTS
from tests.mutants.removal_mutants import REMOVAL_MUTANTS
from tests.mutants.replay_mutants import REPLAY_MUTANTS
from tests.mutants.reshard_mutants import RESHARD_MUTANTS
from tests.mutants.resource_mutants import RESOURCE_MUTANTS
from tests.mutants.schema_mutants import SCHEMA_MUTANTS
from tests.mutants.seal_mutants import SEAL_MUTANTS
from tests.mutants.spark_mutants import SPARK_MUTANTS
from tests.mutants.spread_sink_mutants import SPREAD_SINK_MUTANTS
from tests.mutants.store_identity_mutants import STORE_IDENTITY_MUTANTS
from tests.mutants.store_mutants import STORE_MUTANTS
from tests.mutants.stream_archive_mutants import STREAM_ARCHIVE_MUTANTS
from tests.mutants.stream_mutants import STREAM_MUTANTS
from tests.mutants.tls_mutants import TLS_MUTANTS
from tests.mutants.token_mutants import TOKEN_MUTANTS

__all__ = ["CATALOGUE", "HARMLESS"]

HARMLESS = {
    "completion-by-index": "the completion of a write from before an announcement or an installation precedes that of"
    " its own writes, and none counts until then: `completion-by-index-uncounted` removes both rules",
    "install-history-first": "a start that finds the snapshot asks the history *and* the log's header whether the log"
    " holds its last record: `install-by-header` removes one of the two checks",
    "snapshot-ahead-of-log": "a log that does not reach its snapshot is reset to it, and a snapshot holds only"
    " committed records",
}
"""Mistakes that no test can detect, with the rule that makes each of them harmless."""

_RULES = {
    "history-first": "row 1, §11",
    "strictly-advertised": "row 2, §11",
    "announce-early": "row 3",
    "vote-before-durable": "row 4",
    "count-before-sync": "row 5",
    "acknowledge-before-sync": "row 6, §11",
    "compare-lengths": "row 7",
    "append-unannounced": "row 8",
    "append-of-older-term": "row 9",
    "announcement-of-older-term": "row 10",
    "trust-the-point": "row 11",
    "completion-by-index-uncounted": "row 12, rule 9",
    "completion-by-record": "row 13, rule 9",
    "completion-uncounted": "rule 5",
    "resume-term": "row 14",
    "extend-stored-history": "row 15",
    "commit-unannounced": "row 16",
    "votes-acknowledge": "row 17",
    "commit-by-counting": "row 18",
    "recovering-until-committed": "row 22, rule 17",
    "keep-history-at-install": "row 23, rule 19",
    "keep-history-at-reset": "row 23, rule 19",
    "install-by-header": "row 23, rule 19",
    "common-prefix": "row 24, rule 4",
    "change-unguarded": "row 25, rule 15",
    "count-new-voters-only": "§4, rule 15",
    "leave-joint-early": "§4, rule 15",
    "count-learners": "rule 14",
    "drop-before-durable": "rule 19",
    "drop-what-topics-keep": "§4",
    "forget-results": "§4",
}
"""The broken rules of mutants that do not name one themselves; the mutants that are not listed are about sinks."""

_ALL = {
    **MUTANTS,
    **EXPLORED,
    **CORE_MUTANTS,
    **NODE_MUTANTS,
    **STREAM_MUTANTS,
    **ACTOR_MUTANTS,
    **BEAT_MUTANTS,
    **TOKEN_MUTANTS,
    **REPLAY_MUTANTS,
    **RESOURCE_MUTANTS,
    **CLIENT_MUTANTS,
    **MESSAGE_MUTANTS,
    **INTERVAL_MUTANTS,
    **BACKUP_MUTANTS,
    **TLS_MUTANTS,
    **ORDERED_APPEND_MUTANTS,
    **NOTICE_MUTANTS,
    **ORDER_MUTANTS,
    **SEAL_MUTANTS,
    **REMOVAL_MUTANTS,
    **GROUP_REMOVAL_MUTANTS,
    **HOST_MUTANTS,
    **LOST_MUTANTS,
    **SPREAD_SINK_MUTANTS,
    **READER_MUTANTS,
    **FORK_MUTANTS,
    **ARCHIVE_MUTANTS,
    **STORE_MUTANTS,
    **STORE_IDENTITY_MUTANTS,
    **SCHEMA_MUTANTS,
    **SPARK_MUTANTS,
    **ARROW_MUTANTS,
    **KEYED_MUTANTS,
    **RESHARD_MUTANTS,
    **RECOVERY_MUTANTS,
    **STREAM_ARCHIVE_MUTANTS,
}


def _row(mutant: Mutant) -> int:
    found = re.match(r"row (\d+)", mutant.rule)
    return int(found[1]) if found else 99


CATALOGUE: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in sorted(
        (
            replace(mutant, rule=mutant.rule or _RULES.get(name, "sinks"))
            for name, mutant in _ALL.items()
            if name not in HARMLESS
        ),
        key=_row,
    )
}
"""The mutants by name: first the rows of the table in the protocol's rules, in their order."""
