"""Fork: makes the data directories of a new cluster out of the files of stopped members of an old one.

``viewstamp cluster fork``, ``recover``, ``backup restore`` and ``reshard`` call it. The design note is
docs/design/0014.

Promises
    * The new cluster begins with the log that the old one had: all topics, sinks and actors. `judge.py` chooses it by
      the rules of ``viewstamp.replay``, so by default only from a majority of the old members.
    * The new cluster has another id, and each member a new incarnation and log id. So no process of the old cluster is
      taken for a member of the new one, or the reverse; a client of the old cluster gets ``WrongClusterError``.
    * Behind the old records, in a higher term than any of the old cluster, there are two records: the membership of the
      new cluster, and FORK, which ends all sessions. So a batch of a client of the old cluster is never applied, and
      no old result is ever returned.
    * All new directories hold the same log, and it counts as committed, because every member has it from the start.
    * A fork of a stopped cluster with other groups has all that are established, each with the log that a majority of
      its members elects. These logs never contradict each other (the design note has the reasons), so topics with
      streams have the same order. In the log of group 0, FORK_GROUPS takes the place of FORK, and names the new disks.
    * A recovery of a cluster with groups takes the best log that is left of each group, and brings them in step: no
      global position is given twice, and a record that is kept keeps its own (docs/design/0033).
    * If the process dies at any line, each directory holds its old files, or a mark with which no node starts, and a
      repetition of the fork finishes it (``node/fork_mark.py``).
    * The source directories are not changed, unless they are also the targets. Then their old files are moved to
      ``old-cluster-<n>/`` in the same directory, and nothing is deleted.

Assumes
    * No node runs on the directories. The locks of the targets are held; a source that a process holds is refused.

How

    `judge.py`    the log to begin with, and its snapshots
    `loss.py`     the possible loss, if the files are of fewer members than a majority
    `recovery.py` how the survivors of several groups go on together, if they are fewer than majorities (0033)
    `build.py`    the complete files of one new member, in ``new-cluster/`` of its directory
    `fork.py`     the order of the steps over all directories: mark, build, check, decide, move, unmark
    `states.py`   the state at the end of a log, computed with the actors' code
    `reshard.py`  a fork that also moves the instances of actors to another number of groups (docs/design/0027)

Deliberately lacking: changing records. A fork copies batches and snapshots byte for byte; of a snapshot only the
description is new, because it names the cluster and the membership. A reshard adds records behind the old ones.
"""

from viewstamp.fork.build import FORK_RECORDS
from viewstamp.fork.fork import ForkResult, NewMember, finish_fork, fork
from viewstamp.fork.judge import Basis, ForkSource, has_groups, judge_source
from viewstamp.fork.loss import PossibleLoss, TopicLoss, possible_loss
from viewstamp.fork.recovery import GroupsRecovery, plan_groups
from viewstamp.fork.reshard import MovedActor, Reshard, plan_reshard

__all__ = [
    "FORK_RECORDS",
    "Basis",
    "ForkResult",
    "ForkSource",
    "GroupsRecovery",
    "MovedActor",
    "NewMember",
    "PossibleLoss",
    "Reshard",
    "TopicLoss",
    "finish_fork",
    "fork",
    "has_groups",
    "judge_source",
    "plan_groups",
    "plan_reshard",
    "possible_loss",
]
