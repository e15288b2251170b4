"""Replay: recovers the records that readers of the cluster would have seen, from the files of stopped nodes. Read-only.

Promises
    * It returns the records that an election over the given members would keep, in log order, each once, and no record
      that consensus discarded. Fewer members than a majority are rejected, unless the caller accepts an unsafe result,
      which is then marked as such.
    * A batch that one replica lacks or holds damaged is taken from another replica, because by log matching the copies
      are the same, and equal headers prove it. A record that no replica holds is an error that names its indices,
      unless it had been trimmed.
    * Different intact bytes at an equal (term, index) are corruption. They are reported, and nothing is written,
    because
      the files do not show which of them is right.
    * Records that were trimmed, aged out, or staged and never committed are not shown. Records that a COMMIT made
      visible appear at the COMMIT's place, with its time.
    * The directories are not changed. Memory: the headers of all batches (108 bytes each), and a few pieces of files.

Assumes
    * The nodes do not run. If they do, records that they write meanwhile may be missing; a batch that changes while it
      is read is an error, not a wrong record.
    * Each directory belongs to one member, and no member is given twice, because members are counted.

How

    pass 1   `headers.py`   each segment once, forward: every checksum is verified, headers are kept
             `replica.py`   the segments, control file and snapshots of one directory: its findings, its end
             `chain.py`     the end that an election would choose, and the batches that lead back from it
             `visible.py`   the log applied to topics and sinks: the plan, in order of visibility
    pass 2   `read.py`      the plan's batches, read in its order, verified again, cut and joined
             `digest.py`    a digest of all records, 32 digits
             `parquet.py`, `topic.py`     the targets
    both     `replay.py`    the order of the steps, and the summary

Each file is read forward once in pass 1, and in pass 2 at most once more. Staged batches are an exception: they are
read at the place of their COMMIT, so reading goes back to them.

Damage is a finding, and the pass continues behind it: segments are independent, a group header has the checksums of its
batches, and where that does not help the next group header is searched. A replica takes part in the election only if
its identity and the end of its log are known; the rules are in ``replica.py``.

Deliberately lacking: the state of actors (their commands are counted; a node replays them); and guesses.
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
