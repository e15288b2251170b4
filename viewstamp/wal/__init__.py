"""The group-commit log of one node, its recovery, and the control file: bytes that survive a crash.

Promises
    * A batch is on this disk once ``append`` has returned for it, or ``done`` was called for it without an error. It
      survives the death of the process at any moment, and a power cut.
    * The order of reservation is the order on disk and the order of completion. A batch is there whole or not at all.
    * Opening finds a prefix of the appended batches, in order, that holds everything acknowledged; or it refuses. It
      never silently cuts bytes that may have been acknowledged, except in the window that the page below describes.
    * ``trim`` drops whole segments from the beginning; at least the open one stays. A dropped file cannot be
      distinguished from a lost one, so the owner gives the largest allowed first index at the next start.
    * ``reset`` empties the log, which then begins at another index. For a crash it is one step.
    * A full disk or log is refused at ``reserve``, before anything is harmed, and the log continues when there is room.
      With ``bytes_max`` all files of the log together never exceed it, at any instant; accepted batches have their
      room. (Exceptions: files that a reset has set aside, and files that cannot be removed.)
    * A failed write or sync is final: all waiters get the error, nothing is written afterwards.
    * In the interval mode (``WalOptions.sync_seconds``) the first promise is weaker: an append returns when it is
      *complete*, which means written; it is durable at most ``sync_seconds`` later. A power cut, but no death of the
      process, may lose a tail of the batches that were completed since the last sync. All else holds. Jobs (the control
      file), truncations, trims, resets, new segments and closing sync first, and batches that are neither records nor
      commands are complete when they are durable. A slow disk delays appends.

Assumptions
    * one process writes a directory at a time (the node holds its lock);
    * a synced sector of 512 bytes stays what it was while its neighbours in the same page are written;
    * batches come stamped, with consecutive indices and terms that do not fall; their buffers do not change any more.

Modules
    `format.py`        the bytes of segment header and group header, and the names of files
    `scan.py`          one forward pass over a segment file
    `verdict.py`       the meaning of the state of the files, and the end that the log must reach
    `recovery.py`      the survey of a directory, and the effect of opening on the disk
    `log.py`           the log as its owner sees it: open, reserve, fill, truncate, read, close
    `writer.py`        the writer thread
    `completion.py`    the callback of each item, and the usual ones
    `budget.py`        the space that a log may take: settings, spares, remaining bytes
    `upkeep.py`        the idle timer: closing the last group, storing the commit hint
    `catalogue.py`     the segments of an open log, and reading in them by index
    `truncation.py`    the mark that makes a truncation or a reset one step
    `assessment.py`    the readable rest of a damaged log
    `repair.py`        writing damaged segments again
    `control_file.py`  term, vote, membership, commit hint and identity
    `offline.py`       reading, inspecting, verifying and scrubbing files

Files of a directory, bytes, recovery, the bound, limits: ``docs/wal-format.md`` is their home. A test compares its
decision table with ``verdict.DECISIONS``.

State and invariants (``Wal``): ``first_index <= durable_end <= end``; ``end`` falls when a truncation is handed over;
the commit hint in a group header is at most the durable end at its write; ``durable_end`` is the end of the complete
records, so in the interval mode some below it are not durable; ``bytes_allocated <= bytes_max``.

Deliberate omissions: compression (it belongs to the batch); returning the space of a log without ``bytes_max`` to the
disk beyond the trimmed segments: its two spares stay.
"""

from viewstamp.wal.budget import WalOptions
from viewstamp.wal.control_file import ControlFile, ControlState
from viewstamp.wal.log import Reservation, Wal
from viewstamp.wal.offline import InspectedItem, Verification, inspect, read_batches, verify
from viewstamp.wal.recovery import Recovery
from viewstamp.wal.verdict import Corruption

__all__ = [
    "ControlFile",
    "ControlState",
    "Corruption",
    "InspectedItem",
    "Recovery",
    "Reservation",
    "Verification",
    "Wal",
    "WalOptions",
    "inspect",
    "read_batches",
    "verify",
]
