"""Topics and sessions: the replicated state machine that a node runs above its log.

What it promises
  * A topic's positions run from 1 without a gap, in log order: the position of a record is decided when its
    batch enters the log (the leader stamps it) and checked again by every member when it is applied.
  * A batch of a session is applied at most once, whoever retries it, however often, to whichever leader:
    a session's sequences are strict, so the batch with sequence n is applied only as the successor of n - 1.
  * "Did it happen?" is answered from replicated state and never guessed. A fence makes "no" final: the
    sequence that was asked about can not be applied afterwards, even where a copy of it is still on its way.
  * Members that applied the same prefix of the log have the same state, byte for byte (``digest``).

What it assumes
  * ``apply`` gets every committed batch once, in log order; ``admit`` is called between ``begin_leading`` and
    ``stop_leading``, by a leader that has applied all that earlier terms left in the log.
  * **A batch that was ``Accepted`` enters the log.** The admission view counts on it: a node checks for space
    *before* it asks. Where it cannot append after all, it must stop leading.

The state
  topics     by id, from 1, in order of creation; never removed
  sessions   by id (the index of the record that opened it), ordered by last use in the log; at most
             ``SESSIONS_MAX``, the least recently used is forgotten when one more is opened
  log bytes  bytes of all batches applied; it spaces the entries of the topics' sparse maps

Decisions per kind of batch

  kind          | admit (leader)                                          | apply (every member)
  ------------- | ------------------------------------------------------- | -----------------------------------
  RECORDS       | n = last + 1: Accepted with the topic's next position    | checks position and sequence,
                | n <= last, applied: Answered (receipt, None = fenced)    | advances both, returns the receipt
                | n <= last, still in the log: Waiting                     |
                | n <= last, under a fence in the log: UnavailableError    |
                | n > last + 1: UnavailableError (a gap: resend from last) |
                | older than the cached receipts: StaleSessionError        |
  FENCE         | n <= applied last: Answered; else Accepted               | n <= last: the cached receipt, or
                |                                                         | None; else last + 1 .. n become
                |                                                         | "not applied", last = n, None
  OPEN_SESSION  | Accepted; OverloadedError while another one that has to  | forgets the oldest when full;
                | forget a session is in the log                           | returns {"session": id}
  CREATE_TOPIC  | Accepted where the name is allowed                       | {"topic": ...}, also where it exists
  MEMBERSHIP    | Accepted                                                | nothing

The admission view (``admission.py``) is what the applied state will be once everything in the leader's log is
applied: next positions and last sequences, as differences to the applied state. It exists because a leader
pipelines: batch n + 1 arrives long before n is applied. A deterministic refusal must therefore happen in
``admit``: a batch that is in the log and takes no position would leave a gap behind the positions that were
stamped after it. The one refusal that could come later is a session forgotten between admission and
application. It is excluded: an OPEN_SESSION that will forget session v is the only such one in the log, and
until it is applied batches of v are refused with UnavailableError, so the session that it forgets is known.

Invariants
  * ``topic.next_position`` = 1 + records of the topic in the applied log
  * every cached receipt's sequence is in ``(last - RECEIPTS_MAX, last]``
  * admission view >= applied state, for every position and every sequence

What it deliberately lacks
  * logs of their own for topics, trimming and retention: later, in this package
  * the text of records: a batch is never opened; CREATE_TOPIC's one record is the exception
  * clocks: sessions expire by log order, never by time
"""

from viewstamp.streams.machine import Streams

__all__ = ["Streams"]
