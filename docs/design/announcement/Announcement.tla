---------------------------- MODULE Announcement ----------------------------
(* Elections, the announcement, replication, commit and changes of the      *)
(* voters of one group: docs/protocol.md. A member is a core in memory, a   *)
(* disk, and the queue of writes between them, which arrive in order.       *)
(*                                                                          *)
(* - Ends are exclusive: the end of a log is its length + 1. A history is a *)
(*   sequence of <<term, begin>>. A record is <<term, value, membership>>.  *)
(*   A membership is <<voters, outgoing voters>>, or <<>> if the record has *)
(*   none. It is in force while it is the last one in a log. Outgoing voters *)
(*   are {} unless it is joint; then a majority of both is needed.          *)
(* - Messages are derived from what their senders published: `asked`,       *)
(*   `voted`, `published`, `records`, `committed`, `acked`, `told`. These   *)
(*   only grow, and each may be used at any time, again, or never. So       *)
(*   messages are lost, delayed, doubled and reordered.                     *)
(* - Not here: snapshots, damaged disks, reads, learners (no rule depends   *)
(*   on them), and pre-votes, which change nothing.                         *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
  Node, None,              \* the members, also those of later memberships; no member
  Founders,                \* the voters before the first record
  Changes,                 \* memberships that a leader may propose
  Value,                   \* what a client may append
  MaxTerm, MaxLen, MaxCrash,
  Mistakes                 \* deliberate mistakes, to see that the check can fail

VARIABLES
  disk,        \* by member: term, vote, hist, log; voted = by term, the vote that was ever durable
  mem,         \* by member: term, vote, hist, log, role, announced, installing, durable, commit
  queue,       \* by member: writes on their way to the disk, oldest first
  top,         \* the highest term of any member so far
  asked,       \* by term and candidate: its pair in the requests for votes; <<>> = it did not stand
  leaders,     \* by term: the members that led
  published,   \* by term: the history that its leader announces; <<>> = it announces nothing yet
  records,     \* by term: the log of its leader, durable or not, because appends are sent at once
  committed,   \* by term: the commit end that its leader sends, at first the one that it knows of earlier terms
  acked,       \* by term and member: the highest end that it acknowledged
  told,        \* by term: the durable end that its leader has told members
  finds,       \* by term: the highest end that a follower has found committed by itself
  crashes

vars == <<disk, mem, queue, top, asked, leaders, published, records, committed, acked, told, finds, crashes>>

Wrong(mistake) == mistake \in Mistakes
Terms == 1..MaxTerm
Max(a, b) == IF a > b THEN a ELSE b
Min(a, b) == IF a < b THEN a ELSE b
End(log) == Len(log) + 1
Upto(log, end) == SubSeq(log, 1, end - 1)
IsPrefix(a, b) == Len(a) <= Len(b) /\ SubSeq(b, 1, Len(a)) = a

InForce(log) ==
  LET found == SelectSeq(log, LAMBDA record : record[3] # <<>>)
  IN IF found = <<>> THEN <<Founders, {}>> ELSE found[Len(found)][3]

IsMajority(members, voters) == 2 * Cardinality(members \cap voters) > Cardinality(voters)
IsQuorum(members, membership) ==
  /\ IsMajority(members, membership[1])
  /\ membership[2] = {} \/ IsMajority(members, membership[2]) \/ Wrong("newonly")

---------------------------------------------------------------------------
(* Histories *)

NewHistory == <<<<0, 1>>>>

Advertised(hist, end) ==   \* the terms that a log durable up to `end` has reached: inclusive
  SelectSeq(hist, LAMBDA start : IF Wrong("strict") THEN start[2] < end \/ start[1] = 0 ELSE start[2] <= end)

LastTerm(hist) == hist[Len(hist)][1]

TermAt(hist, index) ==     \* of equal begins the later term describes the record
  LET at == {k \in 1..Len(hist) : hist[k][2] <= index}
  IN hist[CHOOSE k \in at : \A j \in at : j <= k][1]

CommonPoint(theirs, mine, end) ==   \* the end of the part that a leader's log and a log up to `end` share
  LET shared == {k \in 1..Len(mine) : \E j \in 1..Len(theirs) : theirs[j][1] = mine[k][1]}
      k == CHOOSE x \in shared : \A y \in shared : y <= x
      j == CHOOSE x \in 1..Len(theirs) : theirs[x][1] = mine[k][1]
      myEnd == IF k < Len(mine) THEN mine[k + 1][2] ELSE end
  IN IF j = Len(theirs) THEN end ELSE Min(theirs[j + 1][2], myEnd)

Pair(m) == <<LastTerm(Advertised(m.hist, m.durable)), m.durable>>
IsUpToDate(pair, own) ==
  IF Wrong("lengths") THEN pair[2] >= own[2] ELSE pair[1] > own[1] \/ (pair[1] = own[1] /\ pair[2] >= own[2])
IsSynced(m) == m.durable = End(m.log)

---------------------------------------------------------------------------
(* The disk *)

WriteTerm(term, vote) == [kind |-> "term", term |-> term, vote |-> vote]
WriteHistory(hist)    == [kind |-> "history", hist |-> hist]
Cut(end)              == [kind |-> "cut", end |-> end]
Write(new)            == [kind |-> "append", new |-> new]

Written(d, write) ==
  CASE write.kind = "term" ->
         [d EXCEPT !.term = write.term, !.vote = write.vote,
                   !.voted = IF write.vote = None THEN @ ELSE [@ EXCEPT ![write.term] = write.vote]]
    [] write.kind = "history" -> [d EXCEPT !.hist = write.hist]
    [] write.kind = "cut" -> [d EXCEPT !.log = SubSeq(@, 1, Min(Len(@), write.end - 1))]
    [] write.kind = "append" -> [d EXCEPT !.log = @ \o write.new]

Begin(write, count) == Write(SubSeq(write.new, 1, count))
Rest(write, count) ==
  IF count = Len(write.new) THEN <<>> ELSE <<Write(SubSeq(write.new, count + 1, Len(write.new)))>>

Persist(n) ==              \* the oldest write is durable; of an append perhaps only some records
  /\ queue[n] # <<>>
  /\ LET write == Head(queue[n]) IN
     IF write.kind = "append"
     THEN \E count \in 1..Len(write.new) :
            /\ disk' = [disk EXCEPT ![n] = Written(@, Begin(write, count))]
            /\ queue' = [queue EXCEPT ![n] = Rest(write, count) \o Tail(@)]
     ELSE /\ disk' = [disk EXCEPT ![n] = Written(@, write)]
          /\ queue' = [queue EXCEPT ![n] = Tail(@)]
  /\ UNCHANGED <<mem, top, asked, leaders, published, records, committed, acked, told, finds, crashes>>

---------------------------------------------------------------------------
Init ==
  /\ disk = [n \in Node |-> [term |-> 0, vote |-> None, hist |-> NewHistory, log |-> <<>>,
                             voted |-> [t \in Terms |-> None]]]
  /\ mem = [n \in Node |-> [term |-> 0, vote |-> None, hist |-> NewHistory, log |-> <<>>, role |-> "follower",
                            announced |-> FALSE, installing |-> FALSE, durable |-> 1, commit |-> 1]]
  /\ queue = [n \in Node |-> <<>>]
  /\ top = 0
  /\ asked = [t \in Terms |-> [n \in Node |-> <<>>]]
  /\ leaders = [t \in Terms |-> {}]
  /\ published = [t \in Terms |-> <<>>]
  /\ records = [t \in Terms |-> <<>>]
  /\ committed = [t \in Terms |-> 1]
  /\ acked = [t \in Terms |-> [n \in Node |-> 0]]
  /\ told = [t \in Terms |-> 0]
  /\ finds = [t \in Terms |-> 1]
  /\ crashes = 0

(* Elections *)

Stand(n) ==                \* a quorum granted the pre-vote
  LET m == mem[n]   t == m.term + 1 IN
  /\ m.role # "leader" /\ ~m.installing /\ IsSynced(m) /\ m.term < MaxTerm
  /\ n \in InForce(m.log)[1] \cup InForce(m.log)[2]
  /\ mem' = [mem EXCEPT ![n].term = t, ![n].vote = n, ![n].role = "candidate", ![n].announced = FALSE]
  /\ queue' = [queue EXCEPT ![n] = Append(@, WriteTerm(t, n))]
  /\ top' = Max(top, t)
  /\ asked' = [asked EXCEPT ![t][n] = Pair(m)]
  /\ UNCHANGED <<disk, leaders, published, records, committed, acked, told, finds, crashes>>

MayAsk(c, t) == asked[t][c] # <<>> /\ disk[c].voted[t] = c
MayGrant(v, c, t) == disk[v].voted[t] = c

Vote(v, c, t) ==           \* granted when its write is durable: MayGrant
  LET m == mem[v] IN
  /\ v # c /\ MayAsk(c, t) /\ ~m.installing
  /\ IsSynced(m) \/ Wrong("unsynced")
  /\ m.term < t \/ (m.term = t /\ m.vote = None)
  /\ IsUpToDate(asked[t][c], Pair(m))
  /\ mem' = [mem EXCEPT ![v].term = t, ![v].vote = c,
                        ![v].role = IF m.term < t THEN "follower" ELSE @,
                        ![v].announced = IF m.term < t THEN FALSE ELSE @]
  /\ queue' = [queue EXCEPT ![v] = Append(@, WriteTerm(t, c))]
  /\ disk' = IF Wrong("voteearly") THEN [disk EXCEPT ![v].voted[t] = c] ELSE disk
  /\ UNCHANGED <<top, asked, leaders, published, records, committed, acked, told, finds, crashes>>

Elect(n) ==                \* the winner extends what it advertises, and announces when that is durable
  LET m == mem[n]
      hist == Append(Advertised(m.hist, m.durable), <<m.term, End(m.log)>>) IN
  /\ m.role = "candidate" /\ IsSynced(m)
  /\ IsQuorum({v \in Node : MayGrant(v, n, m.term)}, InForce(m.log))
  /\ mem' = [mem EXCEPT ![n].role = "leader", ![n].hist = hist, ![n].installing = ~Wrong("announceearly")]
  /\ queue' = [queue EXCEPT ![n] = Append(@, WriteHistory(hist))]
  /\ leaders' = [leaders EXCEPT ![m.term] = @ \cup {n}]
  /\ published' = IF Wrong("announceearly") THEN [published EXCEPT ![m.term] = hist] ELSE published
  /\ records' = [records EXCEPT ![m.term] = m.log]
  /\ UNCHANGED <<disk, top, asked, committed, acked, told, finds, crashes>>

NoteTerm(n, t, vote) ==    \* from any message of a newer term; one of its leader fixes the vote
  LET m == mem[n] IN
  /\ ~m.installing /\ m.term < t /\ t <= top
  /\ vote = None \/ (vote \in leaders[t] /\ published[t] # <<>>)
  /\ mem' = [mem EXCEPT ![n].term = t, ![n].vote = vote, ![n].role = "follower", ![n].announced = FALSE]
  /\ queue' = [queue EXCEPT ![n] = Append(@, WriteTerm(t, vote))]
  /\ UNCHANGED <<disk, top, asked, leaders, published, records, committed, acked, told, finds, crashes>>

FixVote(n, vote) ==        \* from a message of the leader of the present term
  LET m == mem[n] IN
  /\ ~m.installing /\ m.term > 0 /\ m.vote = None /\ vote \in leaders[m.term] /\ published[m.term] # <<>>
  /\ mem' = [mem EXCEPT ![n].vote = vote]
  /\ queue' = [queue EXCEPT ![n] = Append(@, WriteTerm(m.term, vote))]
  /\ UNCHANGED <<disk, top, asked, leaders, published, records, committed, acked, told, finds, crashes>>

StepDown(n) ==             \* a leader without a quorum, a candidate that gives up: the log stays
  /\ mem[n].role # "follower"
  /\ mem' = [mem EXCEPT ![n].role = "follower"]
  /\ UNCHANGED <<disk, queue, top, asked, leaders, published, records, committed, acked, told, finds, crashes>>

---------------------------------------------------------------------------
(* The announcement: term, cut, history, in this order; no answers until all are durable *)

Announce(n, t) ==
  LET m == mem[n]
      p == CommonPoint(published[t], Advertised(m.hist, m.durable), m.durable)
      chief == CHOOSE c \in leaders[t] : TRUE
      fixes == m.term < t \/ m.vote = None
      cut == IF p < End(m.log) THEN <<Cut(p)>> ELSE <<>>
      hist == <<WriteHistory(published[t])>> IN
  /\ published[t] # <<>> /\ n \notin leaders[t] /\ ~m.installing /\ IsSynced(m)
  /\ m.term <= t
  /\ mem' = [mem EXCEPT ![n].term = t, ![n].vote = IF fixes THEN chief ELSE @, ![n].role = "follower",
                        ![n].announced = TRUE, ![n].installing = TRUE, ![n].hist = published[t],
                        ![n].log = Upto(@, Min(p, End(@))), ![n].durable = Min(@, p)]
  /\ queue' = [queue EXCEPT ![n] = @ \o (IF fixes THEN <<WriteTerm(t, IF fixes THEN chief ELSE m.vote)>> ELSE <<>>)
                                     \o (IF Wrong("historyfirst") THEN hist \o cut ELSE cut \o hist)]
  /\ UNCHANGED <<disk, top, asked, leaders, published, records, committed, acked, told, finds, crashes>>

IsOnDisk(n) ==
  LET m == mem[n]   d == disk[n] IN
  d.term = m.term /\ d.vote = m.vote /\ d.hist = m.hist /\ d.log = m.log

Installed(n) ==            \* the writes of an announcement, or of the own history, are durable
  LET m == mem[n] IN
  /\ m.installing /\ IsOnDisk(n)
  /\ mem' = [mem EXCEPT ![n].installing = FALSE, ![n].durable = End(m.log)]
  /\ published' = IF m.role = "leader" THEN [published EXCEPT ![m.term] = m.hist] ELSE published
  /\ committed' = IF m.role = "leader" THEN [committed EXCEPT ![m.term] = m.commit] ELSE committed
  /\ UNCHANGED <<disk, queue, top, asked, leaders, records, acked, told, finds, crashes>>

---------------------------------------------------------------------------
(* Replication *)

MayChange(n, membership) ==   \* one change at a time; the same voters may be recorded at any time
  LET m == mem[n]
      present == InForce(m.log)
      start == m.hist[Len(m.hist)][2] IN
  \/ membership = present
  \/ /\ m.commit >= start \/ Wrong("unguarded")
     /\ InForce(Upto(m.log, m.commit)) = present \/ Wrong("twochanges")
     /\ IF present[2] = {} THEN membership[2] = present[1] ELSE membership = <<present[1], {}>>

Propose(n, values, memberships) ==
  LET m == mem[n]
      new == [k \in 1..Len(values) |-> <<m.term, values[k], memberships[k]>>] IN
  /\ m.role = "leader" /\ ~m.installing /\ Len(m.log) + Len(new) <= MaxLen
  /\ \A k \in 1..Len(memberships) : memberships[k] # <<>> => MayChange(n, memberships[k])
  /\ mem' = [mem EXCEPT ![n].log = @ \o new]
  /\ queue' = [queue EXCEPT ![n] = Append(@, Write(new))]
  /\ records' = [records EXCEPT ![m.term] = m.log \o new]
  /\ UNCHANGED <<disk, top, asked, leaders, published, committed, acked, told, finds, crashes>>

Receive(n, t, count) ==    \* the next records of the leader's log, exactly at the end
  LET m == mem[n]
      new == SubSeq(records[t], End(m.log), Len(m.log) + count) IN
  /\ n \notin leaders[t] /\ ~m.installing /\ m.term = t
  /\ m.announced \/ Wrong("unannounced")
  /\ count > 0 /\ Len(m.log) + count <= Len(records[t])
  /\ mem' = [mem EXCEPT ![n].log = @ \o new]
  /\ queue' = [queue EXCEPT ![n] = Append(@, Write(new))]
  /\ UNCHANGED <<disk, top, asked, leaders, published, records, committed, acked, told, finds, crashes>>

Synced(n, end) ==          \* the core counts as durable only what the disk holds, in the log as it is now
  LET m == mem[n] IN
  /\ ~m.installing /\ m.durable < end /\ end <= End(m.log)
  /\ Upto(m.log, end) = Upto(disk[n].log, Min(end, End(disk[n].log))) \/ Wrong("ackearly")
  /\ mem' = [mem EXCEPT ![n].durable = end]
  /\ UNCHANGED <<disk, queue, top, asked, leaders, published, records, committed, acked, told, finds, crashes>>

Acknowledge(n) ==
  LET m == mem[n] IN
  /\ m.announced /\ ~m.installing
  /\ acked' = [acked EXCEPT ![m.term][n] = Max(@, m.durable)]
  /\ UNCHANGED <<disk, mem, queue, top, asked, leaders, published, records, committed, told, finds, crashes>>

Commit(n, end) ==          \* a quorum has reached the start of the term, and holds everything up to `end`
  LET m == mem[n]
      start == m.hist[Len(m.hist)][2]
      own == IF m.durable >= end \/ Wrong("selfearly") THEN {n} ELSE {} IN
  /\ m.role = "leader" /\ ~m.installing
  /\ m.commit < end /\ end <= End(m.log)
  /\ end >= start \/ Wrong("anycommit")
  /\ IsQuorum(own \cup {v \in Node \ {n} : acked[m.term][v] >= end}, InForce(m.log))
  /\ mem' = [mem EXCEPT ![n].commit = end]
  /\ committed' = [committed EXCEPT ![m.term] = Max(@, end)]
  /\ UNCHANGED <<disk, queue, top, asked, leaders, published, records, acked, told, finds, crashes>>

LearnCommit(n, end) ==
  LET m == mem[n] IN
  /\ m.announced /\ ~m.installing
  /\ m.commit < end /\ end <= Min(committed[m.term], End(m.log))
  /\ mem' = [mem EXCEPT ![n].commit = end]
  /\ UNCHANGED <<disk, queue, top, asked, leaders, published, records, committed, acked, told, finds, crashes>>

LeaderTells(n) ==          \* its own durable end, like an acknowledgement
  LET m == mem[n] IN
  /\ m.role = "leader" /\ ~m.installing
  /\ told' = [told EXCEPT ![m.term] = Max(@, IF Wrong("toldunsynced") THEN End(m.log) ELSE m.durable)]
  /\ UNCHANGED <<disk, mem, queue, top, asked, leaders, published, records, committed, acked, finds, crashes>>

FollowerCommits(n, end) == \* its leader and itself are a quorum, as its own log has the membership
  LET m == mem[n]
      start == m.hist[Len(m.hist)][2]
      chief == CHOOSE c \in leaders[m.term] : TRUE IN
  /\ m.announced /\ ~m.installing
  /\ m.commit < end /\ end <= End(m.log)
  /\ end <= m.durable \/ Wrong("foundunsynced")
  /\ end <= told[m.term] \/ (Wrong("toldother") /\ \E t \in Terms : end <= told[t])
  /\ end >= start \/ Wrong("foundearly")
  /\ IsQuorum({n, chief}, InForce(m.log)) \/ Wrong("foundalone")
  /\ mem' = [mem EXCEPT ![n].commit = end]
  /\ finds' = [finds EXCEPT ![m.term] = Max(@, end)]
  /\ UNCHANGED <<disk, queue, top, asked, leaders, published, records, committed, acked, told, crashes>>

---------------------------------------------------------------------------
Restart(n, commit) ==      \* writes in the queue are lost; some of them may have been durable before (Persist)
  LET d == disk[n] IN
  /\ crashes < MaxCrash
  /\ commit <= Min(mem[n].commit, End(d.log))
  /\ mem' = [mem EXCEPT ![n] = [term |-> d.term, vote |-> d.vote, hist |-> d.hist, log |-> d.log,
                                role |-> "follower", announced |-> FALSE, installing |-> FALSE,
                                durable |-> End(d.log), commit |-> commit]]
  /\ queue' = [queue EXCEPT ![n] = <<>>]
  /\ crashes' = crashes + 1
  /\ UNCHANGED <<disk, top, asked, leaders, published, records, committed, acked, told, finds>>

Next ==
  \E n \in Node :
    \/ Persist(n) \/ Stand(n) \/ Elect(n) \/ StepDown(n) \/ Installed(n) \/ Acknowledge(n)
    \/ LeaderTells(n)
    \/ Restart(n, Min(mem[n].commit, End(disk[n].log)))
    \/ \E v \in Value : Propose(n, <<v>>, <<<<>>>>)
    \/ \E membership \in Changes : Propose(n, <<"membership">>, <<membership>>)
    \/ \E end \in 1..(MaxLen + 1) : Synced(n, end) \/ Commit(n, end) \/ LearnCommit(n, end) \/ FollowerCommits(n, end)
    \/ \E t \in Terms :
         \/ \E c \in Node : Vote(n, c, t) \/ NoteTerm(n, t, c) \/ FixVote(n, c)
         \/ NoteTerm(n, t, None) \/ Announce(n, t)
         \/ \E count \in 1..MaxLen : Receive(n, t, count)

Spec == Init /\ [][Next]_vars

---------------------------------------------------------------------------
(* Invariants *)

OneLeader == \A t \in Terms : Cardinality(leaders[t]) <= 1

Chosen(t) == Upto(records[t], Max(committed[t], finds[t]))

LogSafety == \A t, u \in Terms : IsPrefix(Chosen(t), Chosen(u)) \/ IsPrefix(Chosen(u), Chosen(t))

LeaderComplete == \A t, u \in Terms : t < u /\ published[u] # <<>> => IsPrefix(Chosen(t), records[u])

CommittedIsChosen ==
  \A n \in Node : mem[n].commit > 1 =>
    /\ mem[n].commit <= End(mem[n].log)
    /\ \E t \in Terms : IsPrefix(Upto(mem[n].log, mem[n].commit), Chosen(t))

CommittedIsDurable ==      \* a power cut of all members at this moment loses nothing committed
  \A t \in Terms :
    LET holders == {n \in Node : IsPrefix(Chosen(t), disk[n].log)} IN
    \/ IsQuorum(holders, InForce(Chosen(t)))
    \/ \E u \in Terms : IsPrefix(Chosen(t), Chosen(u)) /\ IsQuorum(holders, InForce(records[u]))

Describes(hist, log) == \A i \in 1..Len(log) : TermAt(hist, i) = log[i][1]

HistoryTrue == \A n \in Node : Describes(mem[n].hist, mem[n].log) /\ Describes(disk[n].hist, disk[n].log)

DurableIsDurable == \A n \in Node : IsPrefix(Upto(mem[n].log, mem[n].durable), disk[n].log)

FollowsLeader == \A n \in Node : mem[n].announced => IsPrefix(mem[n].log, records[mem[n].term])

AckedIsDurable == \A n \in Node : mem[n].announced => acked[mem[n].term][n] <= End(disk[n].log)
=============================================================================
