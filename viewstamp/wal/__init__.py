"""Bytes that survive: the group-commit log of one node, its recovery, and the control file.

Promises
    * What ``append`` has returned for, or ``done`` was called for without an error, is on this disk: it survives the
      death of the process at any moment, and a power cut.
    * The order of reservation is the order on disk and the order of completion. A batch is there whole or not at all.
    * Opening finds a prefix of what was handed over, in order, that holds everything acknowledged; or it refuses.
      It never silently cuts what may have been acknowledged, but for the window that is stated below.
    * ``trim`` drops whole segments from the beginning, and at least the open one stays. What is dropped can never be
      told apart from a file that was lost; so the owner says, at the next start, up to where the log may begin.
    * ``reset`` empties the log, which then begins elsewhere: for a crash, one step.
    * A full disk or log is refused at ``reserve``, before anything is harmed, and the log goes on when there is room.
      With ``bytes_max`` all files of the log together never exceed it, at any instant; what was accepted has its room.
      (But for what a reset has set aside, and for files that cannot be removed.)
    * A failed write or sync is final: every waiter gets the error, nothing is written afterwards.
    * In the interval mode (``WalOptions.sync_seconds``) the first promise is weaker: an append returns when it is
      *complete*, which is written; it is durable at most ``sync_seconds`` later, and a power cut, but no death of
      the process, may take a tail of what was completed since the last sync. All else holds. Jobs (the control file),
      truncations, trims, resets, new segments and closing sync first. A slow disk pushes back.

Assumes
    * one process writes a directory at a time (the node holds its lock);
    * a synced sector of 512 bytes stays what it was while its neighbours in the same page are written;
    * batches come stamped, with consecutive indices and terms that do not fall; their buffers do not change any more.

Modules
    `format.py`        the bytes of segment header and group header, and the names of files
    `scan.py`          one forward pass over a segment file
    `verdict.py`       what the state of the files means, and the end that the log must reach
    `recovery.py`      the survey of a directory, and what opening does to the disk
    `log.py`           the log as its owner sees it: open, reserve, fill, truncate, read, close
    `writer.py`        what happens on the writer thread
    `completion.py`    the callback of each item, and the usual ones
    `budget.py`        the space that a log may take: settings, spares, what is left
    `upkeep.py`        the idle timer: closing the last group, storing the commit hint
    `catalogue.py`     the segments of an open log, and reading in them by index
    `truncation.py`    the mark that makes a truncation or a reset one step
    `assessment.py`    what is left of a damaged log
    `repair.py`        writing it again
    `control_file.py`  term, vote, membership, commit hint and identity
    `offline.py`       reading, inspecting, verifying and scrubbing files

Files of a log directory
    ``<20 digits>.segment``   segments, numbered without gaps; the last is the open one, zero-filled to its full length
    ``<20 digits>.prepared``  zeros, allocated and synced: a segment to be, waiting for its name
    ``<20 digits>.dropped``   a segment that was trimmed, to be overwritten with zeros and prepared again
    ``truncation.mark``       a truncation or reset that has been decided and not finished (``wal/truncation.py``)
    ``<20 digits>.replaced``  a segment of a log that a reset has replaced; no part of the log, and not in ``bytes_max``
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
    48  log id, 0 = none                   16     40  commit hint, an end                    u64
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
* The log id is drawn when a log is made and kept in the control file; an intact segment with another one is refused by
  name (``ScanState.check_log_id``).
* Old bytes never read as new: a group header counts only at the location, in the generation and with a higher
  number than the one before. Group numbers and generations only rise, over truncations too.
* ``durable`` is what tells a torn tail from damage. One group is unsynced at a time, so it is the group's own
  location, and 0 in the first group of a segment, which is written together with the segment header. In the interval
  mode several are, all in the open segment: it is where the first of them stands.
* The seal is an empty group at the end of a segment. It is written after the next segment's name is durable, and the
  next segment is written after the seal is: so a seal proves that another file must be there.
* Spares are zeros, recycled ones too: their old bytes are overwritten in the background before they get a name from
  which a segment is made. They would not read as new; but where they could stand behind the last group, "nothing but
  zeros follows" could not be asked any more, and a torn tail not be told from the end. The zeros go to blocks that are
  there, so they cost a sequential write and no allocation.

Recovery reads every segment once, forward, and stops at the first byte that is not the next header or batch. (Of
segments wholly below ``scan_from``, which a snapshot covers, it reads only the headers: where the next one begins, such
a segment ends.) What that place is, this table decides; the first row that holds wins (``verdict.DECISIONS`` is the
same table as data)::

    1  a file that must be there is not                                                                     corruption
    2  the mark of an unfinished truncation or reset is not readable                                        corruption
    3  intact bytes, written for this place, do not follow from those before them                           corruption
    4  a later segment was written, or a truncation decided: this segment was complete and synced before    corruption
    5  a later intact group calls this place durable                                                        corruption
    6  the log would end here, below an end that is known to be committed                                   corruption
    7  a group ended before it, and nothing but zeros or the end of the file follows                        clean
    8  anything else: what was being written, of which some pages arrived                                   torn-tail

corruption: :class:`CorruptionError`, nothing on the disk is changed; ``assessment`` reads on past it, and ``repair``
writes segments again from what is left and what others have, when the node says so. torn-tail: cut, and the cut is in
``Recovery``. Before ``open`` returns, what no group calls durable (the last group; in the interval mode those of an
interval) is written again and synced, since it may have been in the page cache only, and closed by an empty group.

A power cut may tear the groups that no later group calls durable. A disk that loses acknowledged bytes may lose any
number of groups from the end, and leave zeros or a shorter file: the log alone cannot show that. So the owner keeps an
end that the log must reach in other files (``known_end``): the commit hint in the control file and the newest snapshot.
A log that ends below it is damaged (row 6). The window that remains is what was acknowledged after the last hint: of
that a lost end reads as a torn tail, or as clean. A log that has been idle for ``idle_seconds`` writes an empty group,
which closes the last one, and then has the hint stored; so does a clean stop. A log that is never idle has it stored
every two seconds and with each segment (``upkeep``). Opening and truncating write an empty group, too.

State and invariants (``Wal``): ``first_index <= durable_end <= end``; ``end`` falls with a truncation as soon as it is
handed over; the commit hint in a group header is at most what was durable when it was written; ``durable_end`` is the
end of what is complete, so in the interval mode more than what is durable; ``bytes_allocated <= bytes_max``.

The bound: bytes are taken from one budget before a file grows, and given back after it became shorter, or lost its
name, durably. Everything not written is preallocated as spares, and a spare can be given up so that the open segment
can grow beyond its length: so what ``bytes_max`` leaves can be written whatever the sizes of batches, and only bytes
in files that are being made ready do not count. Costs are reckoned high: headers, seals and closing groups are in.

What it lacks, and where that would go: compression (the batch's); giving the space of a log without ``bytes_max`` back
to the disk beyond the segments trimmed: its two spares stay.
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
