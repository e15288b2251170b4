------------------------- MODULE AnnouncementTrace --------------------------
(* Checks that a run of the simulator is a behaviour of Announcement.tla.   *)
(* The module Recorded is written by `python -m tests.traces`: Steps is what *)
(* the members did, in order, each with the state of the member after it.   *)
(* Step number `at` has to be a step of the specification that leads to     *)
(* that state. Not observed, and chosen by TLC: which step it is, and how   *)
(* far the writes in a queue are on their way to the disk.                  *)
(*                                                                          *)
(* The run is accepted if the last step is reached, that is, if the         *)
(* invariant Unfinished is violated.                                        *)
EXTENDS Announcement, Recorded

VARIABLE at

Step == Steps[at]

TraceInit == Init /\ at = 1

---------------------------------------------------------------------------
(* The disk of a member is observed: term, vote, history, and an end that the log has at least. Of the writes in the  *)
(* queue the fewest that explain it have been carried out: a finite number of Persist steps.                          *)

Fits(d, seen, exactly) ==
  /\ d.term = seen.term /\ d.vote = seen.vote /\ d.hist = seen.hist
  /\ IF exactly THEN End(d.log) = seen.end ELSE End(d.log) >= seen.end

RECURSIVE Advanced(_, _, _, _)
Advanced(d, writes, seen, exactly) ==     \* <<disk, queue>>, or <<>> if no number of writes explains what is seen
  IF Fits(d, seen, exactly) THEN <<d, writes>>
  ELSE IF writes = <<>> THEN <<>>
  ELSE LET write == Head(writes) IN
       IF write.kind = "append"
       THEN LET lacks == IF seen.end > End(d.log) THEN seen.end - End(d.log) ELSE Len(write.new)
                count == Min(lacks, Len(write.new))
            IN Advanced(Written(d, Begin(write, count)), Rest(write, count) \o Tail(writes), seen, exactly)
       ELSE Advanced(Written(d, write), Tail(writes), seen, exactly)

DiskMoves(n) ==
  LET moved == Advanced(disk[n], queue[n], Step, FALSE) IN
  /\ moved # <<>>
  /\ disk' = [disk EXCEPT ![n] = moved[1]]
  /\ queue' = [queue EXCEPT ![n] = moved[2]]
  /\ UNCHANGED <<mem, top, asked, leaders, published, records, committed, acked, told, finds, crashes>>

Restarts(n) ==             \* some last writes of the process that died, then Restart
  LET moved == Advanced(disk[n], queue[n], Step, TRUE) IN
  /\ moved # <<>> /\ Step.commit <= Min(mem[n].commit, Step.end)
  /\ LET d == moved[1] IN
     /\ disk' = [disk EXCEPT ![n] = d]
     /\ mem' = [mem EXCEPT ![n] = [term |-> d.term, vote |-> d.vote, hist |-> d.hist, log |-> d.log,
                                   role |-> "follower", announced |-> FALSE, installing |-> FALSE,
                                   durable |-> End(d.log), commit |-> Step.commit]]
     /\ queue' = [queue EXCEPT ![n] = <<>>]
     /\ crashes' = crashes + 1
  /\ UNCHANGED <<top, asked, leaders, published, records, committed, acked, told, finds>>

---------------------------------------------------------------------------
(* The core of a member is observed after each input. *)

Shows(m) ==
  /\ m.term = Step.term /\ m.vote = Step.vote /\ m.hist = Step.hist /\ m.role = Step.role
  /\ End(m.log) = Step.end /\ m.durable = Step.durable
  /\ m.announced = Step.announced /\ m.installing = Step.installing

CoreMoves(n) ==
  /\ \/ Stand(n) \/ Elect(n) \/ StepDown(n) \/ Installed(n) \/ Synced(n, Step.durable)
     \/ \E c \in Node : Vote(n, c, Step.term)
     \/ NoteTerm(n, Step.term, Step.vote) \/ FixVote(n, Step.vote)
     \/ Step.term > 0 /\ Announce(n, Step.term)
  /\ Shows(mem'[n])

Appends(n) ==              \* Step.values and Step.memberships: the records that are new in the log
  /\ \/ Propose(n, Step.values, Step.memberships)
     \/ /\ mem[n].role = "follower" /\ mem[n].term > 0
        /\ Receive(n, mem[n].term, Len(Step.values))
        /\ \A k \in 1..Len(Step.values) :
             LET record == records[mem[n].term][Len(mem[n].log) + k]
             IN record[2] = Step.values[k] /\ record[3] = Step.memberships[k]
  /\ End(mem'[n].log) = Step.end

(* Sent messages: the step is that the specification allows to send them now. *)

Acknowledges(n) == Step.term = mem[n].term /\ Step.end = mem[n].durable /\ Acknowledge(n)

Sends(n) ==
  /\ CASE Step.what = "vote" -> MayGrant(n, Step.candidate, Step.term)
       [] Step.what = "ask" -> MayAsk(n, Step.term) /\ asked[Step.term][n] = Step.pair
       [] Step.what = "announce" -> n \in leaders[Step.term] /\ published[Step.term] = Step.hist
  /\ UNCHANGED vars

TraceNext ==
  /\ at <= Len(Steps)
  /\ at' = at + 1
  /\ LET n == Step.member IN
     CASE Step.kind = "disk" -> DiskMoves(n)
       [] Step.kind = "restart" -> Restarts(n)
       [] Step.kind = "core" -> CoreMoves(n)
       [] Step.kind = "append" -> Appends(n)
       [] Step.kind = "commit" -> Commit(n, Step.end) \/ LearnCommit(n, Step.end) \/ FollowerCommits(n, Step.end)
       [] Step.kind = "tell" -> Step.term = mem[n].term /\ Step.end = mem[n].durable /\ LeaderTells(n)
       [] Step.kind = "acknowledge" -> Acknowledges(n)
       [] Step.kind = "send" -> Sends(n)

TraceSpec == TraceInit /\ [][TraceNext]_<<vars, at>>

Unfinished == at <= Len(Steps)
=============================================================================
