"""Bytes that survive: the group-commit log of one node, its recovery, and the control file.

Promises
    * What ``append`` has returned for, or ``done`` was called for without an error, is on this disk: it survives the
      death of the process at any moment, and a power cut.
    * The order of reservation is the order on disk and the order of completion. A batch is there whole or not at all.
    * Opening finds a prefix of what was handed over, in order, that holds everything acknowledged; or it refuses.
      It never silently cuts what may have been acknowledged, with one exception that is stated below.
    * A full disk or log is refused at ``reserve``, before anything is harmed, and the log goes on when there is room.
    * A failed write or sync is final: every waiter gets the error, nothing is written afterwards.

Assumes
    * one process writes a directory at a time (the node holds its lock);
    * a synced sector of 512 bytes stays what it was while its neighbours in the same page are written;
    * batches come stamped, with consecutive indices and terms that do not fall; their buffers do not change any more.

Files of a log directory
    ``<20 digits>.segment``   segments, numbered without gaps; the last is the open one, zero-filled to its full length
    ``next.prepared``         zero-filled and synced: the next segment, waiting for its name
    ``truncation.mark``       a truncation that has been decided and not finished (``wal/truncation.py``)
    ``*.temporary``           leftovers of a crash, never read

Bytes, little-endian. A segment is a header, then groups; a group is what one write and one sync carry::

    segment:  | segment header 64 | group | group | ... | seal |          (sealed: nothing behind it)
                                    ... | group | zeros ...              (open)
    group:    | group header 72 + 4 n, padded to 8 | batch 1 | ... | batch n |     n = 0: empty, closes what is before

    segment header                                 group header
     0  magic "VSS" + format version (1)   4       0  magic "VSG" + format version (1)       4
     4  checksum: crc32c of 0..4, 8..64    u32     4  checksum: crc32c of 0..4, 8..end       u32
     8  number                             u64     8  generation of the segment              u64
    16  generation                         u64    16  number, rising over all segments       u64
    24  first index                        u64    24  location: its own byte                 u64
    32  term of the record before, 0 none  u64    32  durable: the byte up to which the      u64
    40  lowest group number in here        u64        segment was durable when it was written
    48  reserved                           16     40  commit hint, an end                    u64
                                                  48  first index (empty: the end)           u64
                                                  56  bytes of the batches                   u32
                                                  60  number of batches n, at most 999       u32
                                                  64  reserved                               4
                                                  68  flags: 1 = seals the segment           u8
                                                  69  reserved                               3
                                                  72  n header checksums of the batches      u32 each

* A batch's header checksum covers, through the body checksum inside the header, all of the batch. So the list in the
  group header, 4 bytes a batch, ties exactly these batches to this group without a second pass over their bytes; and
  each batch can be judged alone, so that the intact beginning of a torn group is kept, and a truncation may cut a group
  between two batches. Such a group simply has fewer batches than it says; the next group header follows.
* Old bytes never read as new: a group header counts only at the location, in the generation and with a higher
  number than the one before. Group numbers and generations only rise, over truncations too.
* ``durable`` is what tells a torn tail from damage. One group is unsynced at a time, so it is the group's own
  location, and 0 in the first group of a segment, which is written together with the segment header.
* The seal is an empty group at the end of a segment. It is written after the next segment's name is durable, and the
  next segment is written after the seal is: so a seal proves that another file must be there.

Recovery reads every segment once, forward, and stops at the first byte that is not the next header or batch. What that
place is, this table decides; the first row that holds wins (``recovery.DECISIONS`` is the same table as data)::

    1  a file that must be there is not                                                                     corruption
    2  the mark of an unfinished truncation or reset is not readable                                        corruption
    3  intact bytes, written for this place, do not follow from those before them                           corruption
    4  a later segment was written, or a truncation decided: this segment was complete and synced before    corruption
    5  a later intact group calls this place durable                                                        corruption
    6  the log would end here, below an end that is known to be committed                                   corruption
    7  a group ended before it, and nothing but zeros or the end of the file follows                        clean
    8  anything else: what was being written, of which some pages arrived                                   torn-tail

corruption: :class:`CorruptionError`, nothing on the disk is changed. torn-tail: cut, and the cut is in ``Recovery``.
Before ``open`` returns, the last group is written again and synced, since it may have been in the page cache only, and
closed by an empty group.

What stays ambiguous is rot in the very last group, if no other followed: it reads as a torn tail. So a log that has
been idle for ``idle_seconds`` writes an empty group, and so do opening, truncating and closing.

State and invariants (``Wal``): ``first_index <= durable_end <= end``; ``end`` falls with a truncation as soon as it is
handed over; the commit hint in a group header is at most what was durable when it was written.

What it lacks, and where that would go: trimming a prefix and recycling segments (``catalogue``; generations and
numbers are made for it); repair of damage from peers (``node``; it needs the protocol); compression (the batch's).
"""

from viewstamp.wal.control_file import ControlFile, ControlState
from viewstamp.wal.reader import Entry, inspect, read_batches
from viewstamp.wal.recovery import Damage, Recovery
from viewstamp.wal.verify import Verification, verify
from viewstamp.wal.wal import Options, Reservation, Wal

__all__ = [
    "ControlFile",
    "ControlState",
    "Damage",
    "Entry",
    "Options",
    "Recovery",
    "Reservation",
    "Verification",
    "Wal",
    "inspect",
    "read_batches",
    "verify",
]
