"""The group-commit log of one node, its recovery, and the control file: bytes that survive a crash.

Promises
    * A batch is on this disk once ``append`` has returned for it, or ``done`` was called for it without an error. It
      survives the death of the process at any moment, and a power cut.
    * The order of reservation is the order on disk and the order of completion. A batch is there whole or not at all.
    * Opening finds a prefix of the appended batches, in order, that holds everything acknowledged; or it refuses. It
      never silently cuts bytes that may have been acknowledged, except in the window that is described below.
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
      file), truncations, trims, resets, new segments and closing sync first. A slow disk delays appends.

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

Files of a log directory
    ``<20 digits>.segment``   segments, numbered without gaps; the last is the open one, zero-filled to its full length
    ``<20 digits>.prepared``  zeros, allocated and synced: a future segment without its name
    ``<20 digits>.dropped``   a trimmed segment, to be overwritten with zeros and prepared again
    ``truncation.mark``       a truncation or reset that has been decided and not finished (``wal/truncation.py``)
    ``<20 digits>.replaced``  a segment of a log that a reset has replaced; no part of the log, and not in ``bytes_max``
    ``*.temporary``           leftovers of a crash, never read

Bytes, little-endian. A segment is a header, then groups; a group is written by one write and synced by one sync::

    segment:  | segment header 64 | group | group | ... | seal |          (sealed: nothing after it)
                                    ... | group | zeros ...              (open)
    group:    | group header 72 + 4 n, padded to 8 | batch 1 | ... | batch n |     n = 0: empty, closes the one before

    segment header                                 group header
     0  magic "VSS" + format version (1)   4       0  magic "VSG" + format version (1)       4
     4  checksum: crc32c of 0..4, 8..64    u32     4  checksum: crc32c of 0..4, 8..end       u32
     8  number                             u64     8  generation of the segment              u64
    16  generation                         u64    16  number, rising over all segments       u64
    24  first index                        u64    24  location: its own byte                 u64
    32  term of the record before, 0 none  u64    32  durable: the byte up to which the      u64
    40  lowest group number in here        u64        segment was durable when it was written
    48  log id, 0 = none                   16     40  commit hint, an end                    u64
                                                  48  first index (empty: the end)           u64
                                                  56  bytes of the batches                   u32
                                                  60  number of batches n, at most 999       u32
                                                  64  reserved                               4
                                                  68  flags: 1 = seals the segment           u8
                                                  69  reserved                               3
                                                  72  n header checksums of the batches      u32 each

* A batch's header checksum covers, through the body checksum inside the header, all of the batch. So the list in the
  group header, 4 bytes a batch, ties exactly these batches to this group without a second pass over their bytes. Each
  batch can be checked alone, so the intact beginning of a torn group is kept, and a truncation may cut a group between
  two batches. Such a group has fewer batches than its header gives; the next group header follows.
* The log id is drawn when a log is created and kept in the control file; an intact segment with another one is refused
  (``ScanState.check_log_id``).
* Old bytes are never read as new: a group header counts only at its location, in its generation and with a higher
  number than the one before. Group numbers and generations only rise, also over truncations.
* ``durable`` distinguishes a torn tail from damage. One group is unsynced at a time, so it is the group's own location,
  and 0 in the first group of a segment, which is written together with the segment header. In the interval mode several
  groups are unsynced, all in the open segment; then it is the location of the first of them.
* The seal is an empty group at the end of a segment. It is written after the next segment's name is durable, and the
  next segment is written after the seal is durable. So a seal proves that another file must exist.
* Spares are zeros, recycled ones too: their old bytes are overwritten in the background before they get the name of a
  prepared file. Old bytes would not be read as new; but behind the last group they would hide whether only zeros
  follow, and so whether the end is clean or torn. The zeros go to allocated blocks, so they cost a sequential write and
  no allocation.

Recovery reads every segment once, forward, and stops at the first byte that is not the next header or batch. (Of
segments wholly below ``scan_from``, which a snapshot covers, it reads only the headers: such a segment ends where the
next one begins.) This table decides the meaning of that place; the first row that matches counts
(``verdict.DECISIONS`` is the same table as data)::

    1  a file that must be there is not                                                                     corruption
    2  the mark of an unfinished truncation or reset is not readable                                        corruption
    3  intact bytes, written for this place, do not follow from those before them                           corruption
    4  a later segment was written, or a truncation decided: this segment was complete and synced before    corruption
    5  a later intact group calls this place durable                                                        corruption
    6  the log would end here, below an end that is known to be committed                                   corruption
    7  a group ended before it, and nothing but zeros or the end of the file follows                        clean
    8  anything else: a write under way, of which some pages arrived                                        torn-tail

corruption: :class:`CorruptionError`, nothing on the disk is changed; ``assessment`` reads beyond the damage, and
``repair`` writes segments again from the readable rest and the copies of peers, when the node requests it. torn-tail:
it is cut, and ``Recovery`` has the number of bytes. Before ``open`` returns, all groups that no group calls durable
(the last group; in the interval mode those of an interval) are written again and synced, because they may have been
only in the page cache, and closed by an empty group.

A power cut may tear the groups that no later group calls durable. A disk that loses acknowledged bytes may lose any
number of groups from the end, and leave zeros or a shorter file, which the log alone cannot show. So the owner keeps an
end that the log must reach in other files (``known_end``): the commit hint in the control file and the newest snapshot.
A log that ends below it is damaged (row 6). A window remains: the records that were acknowledged after the last hint.
If these are lost, the log looks like a torn tail, or clean. A log that is idle for ``idle_seconds`` writes an empty
group, which closes the last one, and then has the hint stored; so does a clean stop. A log that is never idle has it
stored every two seconds and with each segment (``upkeep``). Opening and truncating write an empty group, too.

State and invariants (``Wal``): ``first_index <= durable_end <= end``; ``end`` falls when a truncation is handed over;
the commit hint in a group header is at most the durable end at its write; ``durable_end`` is the end of the complete
records, so in the interval mode some below it are not durable; ``bytes_allocated <= bytes_max``.

The bound: bytes are taken from one budget before a file grows, and given back after it has become shorter, or lost its
name, durably. All unused bytes are preallocated as spares, and a spare can be removed so that the open segment can grow
beyond its length. So all of ``bytes_max`` can be used by batches of any sizes; only the bytes of files that are being
prepared do not count. Costs are estimated high: they include headers, seals and closing groups.

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
