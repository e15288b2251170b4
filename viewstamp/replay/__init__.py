"""Replay: from the files of dead nodes to the records that readers of the cluster would have seen. Offline, read-only.

Promises
    * What an election over the given members would keep, in log order, each record once; nothing that consensus
      discarded. Fewer members than a majority are refused, unless they are taken unsafely, which is said.
    * A batch that one replica lacks or holds damaged is taken from any other: by log matching it is the same, and
      its header says so. What nobody has is an error that names the indices; unless nothing that is kept was there.
    * Equal (term, index) with different intact bytes is corruption: reported, never picked, and nothing is written.
    * What was trimmed, or has aged, or was never committed by a sink, is not shown; what a COMMIT made visible stands
      at the COMMIT's place and time.
    * Nothing is changed in the directories. Memory: the headers of all batches (108 bytes each), and a few pieces.

Assumes
    * the nodes do not run, or what they do meanwhile may or may not be seen; a batch that changes under the hands of
      the replay is an error, not a wrong record;
    * each directory is one member's, and no member's is given twice: members are counted.

How

    pass 1   `headers.py`   each segment once, forward: every checksum is verified, headers are kept
             `replica.py`   the segments, control file and snapshots of one directory: its findings, its end
             `chain.py`     the end that an election would choose, and the batches that lead back from it
             `visible.py`   the log applied to topics and sinks: the plan, in order of visibility
    pass 2   `read.py`      the plan's batches, read in its order, verified again, cut and joined
             `digest.py`    what was read, in 32 digits
             `parquet.py`, `topic.py`     where it goes
    both     `replay.py`    what is read in which order, and the summary

Each file is read forward once in pass 1, and in pass 2 at most once more; but a COMMIT's staged batches are read at the
COMMIT's place, so around them reading goes back by what lies between.

Damage is a finding, and the pass goes on behind it: segments are independent, a group header gives the checksums of its
batches, and beyond that the next group header is searched. Whether a replica can be asked in the election depends on
whether it is known whose it is and how far its log had come; the rules are in ``replica.py``.

What it deliberately lacks: the state of actors (their commands are counted, a node replays them); and guesses.
"""

from viewstamp.replay.chain import Chain
from viewstamp.replay.digest import Digest
from viewstamp.replay.read import Extent, ExtentReader
from viewstamp.replay.replay import OfflineReplay, Summary
from viewstamp.replay.replica import ReplicaFiles, ReplicaFinding
from viewstamp.replay.visible import ReplayPlan

__all__ = [
    "Chain",
    "Digest",
    "Extent",
    "ExtentReader",
    "OfflineReplay",
    "ReplayPlan",
    "ReplicaFiles",
    "ReplicaFinding",
    "Summary",
]
