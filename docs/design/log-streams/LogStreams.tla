----------------------------- MODULE LogStreams -----------------------------
(* Stage 2 of design note 0021: one total order over several log streams.    *)
(*                                                                           *)
(* A stream is a consensus group. It is modelled by what consensus promises: *)
(* one log whose committed beginning never changes, and whose other entries  *)
(* may be cut by a change of leader. Group 0 is modelled in the same way.    *)
(*                                                                           *)
(* Messages need no variables. A report is the end of some beginning of the  *)
(* committed log of a stream. A report that is late, doubled or lost, or one *)
(* of a new leader that knows less than its predecessor, is the end of a     *)
(* shorter beginning, so ProposeOrder may use any of them.                   *)
(*                                                                           *)
(* Mut is a set of names of deliberate mistakes; {} is the protocol.         *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
  Streams,      \* number of streams
  MaxRec,       \* records of a stream
  MaxLen,       \* records and CONTEXTs of a stream
  MaxOrders,    \* records of group 0
  MaxElect,     \* changes of leader of each stream that cut its log
  MaxCut,       \* changes of leader of group 0 that cut its log
  Acks,         \* TRUE: ordered appends are acknowledged
  Reads,        \* number of reads by global position
  Seals,        \* TRUE: streams may be sealed without their group, because they are lost; with Moves only stream 1
  Moves,        \* records of a client with one key; if there are any, the stream of the key is sealed by its group
  Mut

VARIABLES
  slog,         \* stream -> its log: records, CONTEXTs and SEALs
  scommit,      \* stream -> length of the committed beginning of it
  elected,      \* stream -> changes of leader so far
  olog,         \* the log of group 0: ORDER, CLOSE and SEALED records
  states,       \* the states of group 0 after 0, 1, 2, ... committed records
  cuts,         \* changes of leader of group 0 so far
  placed,       \* what each global position got when it was given: stream, local position, record
  acked,        \* acknowledged ordered appends: record, global position
  read,         \* the records that a reader has read, by global position
  route,        \* the stream to which the client sends the records of its key
  unknown       \* the records of the key that the client gives up, because their stream is lost: it never sends them again

vars == <<slog, scommit, elected, olog, states, cuts, placed, acked, read, route, unknown>>

Stream == 1..Streams
M(mistake) == mistake \in Mut
Max(a, b) == IF a > b THEN a ELSE b
Last(q) == q[Len(q)]
Front(q) == SubSeq(q, 1, Len(q) - 1)
Now == Last(states)

---------------------------------------------------------------------------
(* Streams. A run gives n records of stream s, from local position l on, the global positions from g on. *)

Records(log) == SelectSeq(log, LAMBDA entry : entry.kind = "record")
End(runs) == IF runs = <<>> THEN 1 ELSE Last(runs).l + Last(runs).n

RECURSIVE Join(_, _)       \* runs that the map has already, wholly, are skipped
Join(map, runs) ==
  IF runs = <<>> THEN map
  ELSE Join(IF Head(runs).l = End(map) THEN Append(map, Head(runs)) ELSE map, Tail(runs))

RECURSIVE MapOf(_)         \* the applied CONTEXTs of a log: its local positions with their global ones
MapOf(log) ==
  IF log = <<>> THEN <<>>
  ELSE IF Last(log).kind = "context" THEN Join(MapOf(Front(log)), Last(log).runs) ELSE MapOf(Front(log))

Beginning(s, i) == SubSeq(slog[s], 1, i)
Committed(s) == Beginning(s, scommit[s])
Ends(log) == \E i \in 1..Len(log) : log[i].kind = "seal"

Reports(s) ==              \* (end of the records, end of the CONTEXTs) of all beginnings that a leader may know
  LET known == IF M("reportuncommitted") THEN Len(slog[s]) ELSE scommit[s]
      mapped == IF M("contextuncommitted") THEN Len(slog[s]) ELSE scommit[s]
  IN {<<Len(Records(Beginning(s, i))) + 1, End(MapOf(Beginning(s, i)))>> : i \in 0..known}
     \cup (IF mapped > known THEN {<<1, End(MapOf(slog[s]))>>} ELSE {})

---------------------------------------------------------------------------
(* Group 0. ORDER holds ends of streams; its runs are computed when it is applied. *)

NoRuns == [s \in Stream |-> 1]
Empty == [version |-> 0, next |-> 1, ordered |-> NoRuns, history |-> <<>>, forgotten |-> NoRuns, sealed |-> {},
          closing |-> {}, lost |-> {}]

StreamOf(state) == IF 1 \in state.sealed THEN 2 ELSE 1   \* the key of the client; CLOSE gives its slot to stream 2


Sum(state, ends, upto) ==  \* records that ORDER gives to the streams before upto
  LET RECURSIVE Of(_)
      Of(s) == IF s >= upto THEN 0
               ELSE (IF ends[s] > state.ordered[s] THEN ends[s] - state.ordered[s] ELSE 0) + Of(s + 1)
  IN Of(1)

Open(state, ends) ==       \* the ends that count
  [s \in Stream |-> IF s \in state.sealed /\ ~M("sealatleader") THEN state.ordered[s] ELSE ends[s]]

RunsOf(state, ends) ==     \* in the fixed order of streams
  LET moved == SelectSeq([s \in Stream |-> s], LAMBDA s : ends[s] > state.ordered[s])
  IN [k \in 1..Len(moved) |->
       [v |-> state.version + 1, s |-> moved[k], l |-> state.ordered[moved[k]],
        n |-> ends[moved[k]] - state.ordered[moved[k]], g |-> state.next + Sum(state, ends, moved[k])]]

Runs(state, record) ==     \* the runs that a record of group 0 makes
  IF record.kind # "order" THEN <<>>
  ELSE IF M("leadercomputes") THEN record.runs
  ELSE RunsOf(state, Open(state, record.ends))

Apply(state, record) ==
  IF record.kind = "seal" THEN
    IF record.s \in state.sealed THEN state
    ELSE [state EXCEPT !.sealed = @ \cup {record.s}, !.lost = @ \cup {record.s}]
  ELSE IF record.kind = "close" THEN [state EXCEPT !.closing = @ \cup {record.s}]
  ELSE IF record.kind = "sealed" THEN
    IF record.s \in state.closing /\ (state.ordered[record.s] = record.end \/ M("sealedbeforeorder"))
    THEN [state EXCEPT !.sealed = @ \cup {record.s}]
    ELSE state
  ELSE
    LET runs == Runs(state, record)
        ends == Open(state, record.ends)
        forgotten == [s \in Stream |-> Max(state.forgotten[s], record.mapped[s])]
    IN [state EXCEPT
         !.version = IF runs = <<>> THEN @ ELSE @ + 1,
         !.next = IF runs = <<>> THEN @ ELSE Last(runs).g + Last(runs).n,
         !.ordered = [s \in Stream |-> IF M("takesshrunk") /\ ends[s] > 1 THEN ends[s] ELSE Max(@[s], ends[s])],
         !.forgotten = forgotten,
         !.history = SelectSeq(@ \o runs, LAMBDA run : run.l + run.n > forgotten[run.s])]

Place(runs) ==             \* the global positions of runs, with the records that have them now
  LET RECURSIVE Of(_)
      Of(rest) ==
        IF rest = <<>> THEN <<>>
        ELSE LET run == Head(rest)
                 all == Records(slog[run.s])
                 Id(l) == IF l <= Len(all) THEN all[l].id ELSE <<>>
             IN [k \in 1..run.n |-> [s |-> run.s, l |-> run.l + k - 1, id |-> Id(run.l + k - 1)]] \o Of(Tail(rest))
  IN Of(runs)

---------------------------------------------------------------------------
Init ==
  /\ slog = [s \in Stream |-> <<>>]
  /\ scommit = [s \in Stream |-> 0]
  /\ elected = [s \in Stream |-> 0]
  /\ olog = <<>>
  /\ states = <<Empty>>
  /\ cuts = 0
  /\ placed = <<>>
  /\ acked = {}
  /\ read = <<>>
  /\ route = 1
  /\ unknown = {}

AppendRecord(s) ==         \* before: the acknowledged appends, so that this one has to get a later global position
  /\ Len(Records(slog[s])) < MaxRec /\ Len(slog[s]) < MaxLen /\ ~Ends(slog[s])
  /\ slog' = [slog EXCEPT ![s] = Append(@,
       [kind |-> "record", id |-> <<s, elected[s], Len(@) + 1>>, before |-> {a.id : a \in acked}])]
  /\ UNCHANGED <<scommit, elected, olog, states, cuts, placed, acked, read, route, unknown>>

Sent(n) == \E s \in (IF M("resendslost") THEN {route} ELSE Stream) : \E i \in 1..Len(slog[s]) : slog[s][i].kind = "record" /\ slog[s][i].id = <<0, n, 0>>

AppendKey ==               \* the session admits only the next record that is in no log; a cut one is sent again
  LET s == route
      missing == {n \in 1..Moves : n \notin unknown /\ ~Sent(n)}
      n == CHOOSE k \in missing : \A other \in missing : k <= other
  IN /\ missing # {} /\ Len(slog[s]) < MaxLen /\ (~Ends(slog[s]) \/ M("admitsaftersealed"))
     /\ slog' = [slog EXCEPT ![s] = Append(@,
          [kind |-> "record", id |-> <<0, n, 0>>, before |-> {a.id : a \in acked}])]
     /\ UNCHANGED <<scommit, elected, olog, states, cuts, placed, acked, read, route, unknown>>

MoveKey ==                 \* the client has got "sealed", has the outcome of what it sent, and reads the route somewhere
  /\ Moves > 0 /\ route = 1 /\ Ends(Committed(1))
  /\ M("movesearly") \/ \E j \in 1..Len(states) : StreamOf(states[j]) = 2
  /\ route' = 2
  /\ UNCHANGED <<slog, scommit, elected, olog, states, cuts, placed, acked, read, unknown>>

MoveFromLost ==            \* the client reads somewhere that the stream is lost; what it has sent keeps an unknown outcome
  /\ Moves > 0 /\ Seals /\ route = 1
  /\ M("movessilent") \/ \E j \in 1..Len(states) : 1 \in states[j].lost
  /\ route' = 2
  /\ unknown' = IF M("resendslost") THEN {} ELSE {n \in 1..Moves : Sent(n)}
  /\ UNCHANGED <<slog, scommit, elected, olog, states, cuts, placed, acked, read>>

AppendSeal(s) ==           \* the leader of a stream knows a state of group 0 in which the stream is closing
  /\ Len(slog[s]) < MaxLen /\ ~Ends(slog[s])
  /\ \E j \in 1..Len(states) : s \in states[j].closing
  /\ slog' = [slog EXCEPT ![s] = Append(@, [kind |-> "seal"])]
  /\ UNCHANGED <<scommit, elected, olog, states, cuts, placed, acked, read, route, unknown>>

AppendContext(s) ==        \* a leader has applied a beginning of its log, and of the log of group 0
  /\ Len(slog[s]) < MaxLen
  /\ \E i \in 0..scommit[s], j \in 1..Len(states) :
       LET runs == SelectSeq(states[j].history, LAMBDA run : run.s = s /\ run.l + run.n > End(MapOf(Beginning(s, i))))
       IN /\ runs # <<>>
          /\ slog' = [slog EXCEPT ![s] = Append(@, [kind |-> "context", runs |-> runs])]
  /\ UNCHANGED <<scommit, elected, olog, states, cuts, placed, acked, read, route, unknown>>

Commit(s) ==
  /\ scommit[s] < Len(slog[s])
  /\ scommit' = [scommit EXCEPT ![s] = @ + 1]
  /\ UNCHANGED <<slog, elected, olog, states, cuts, placed, acked, read, route, unknown>>

Elect(s) ==                \* a new leader does not have some uncommitted entries
  /\ elected[s] < MaxElect
  /\ \E length \in scommit[s]..(Len(slog[s]) - 1) : slog' = [slog EXCEPT ![s] = SubSeq(@, 1, length)]
  /\ elected' = [elected EXCEPT ![s] = @ + 1]
  /\ UNCHANGED <<scommit, olog, states, cuts, placed, acked, read, route, unknown>>

ProposeFrom(of) ==         \* the leader of group 0, from one report of each stream; nothing is written if nothing has moved
  LET ends == [s \in Stream |-> of[s][1]]
      mapped == [s \in Stream |-> of[s][2]]
  IN /\ Len(olog) < MaxOrders
     /\ \A s \in Stream : of[s] \in Reports(s)
     /\ \A s \in Now.sealed : ends[s] <= Now.ordered[s]
     /\ \E s \in Stream : ends[s] > Now.ordered[s] \/ mapped[s] > Now.forgotten[s]
     /\ olog' = Append(olog,
          [kind |-> "order", ends |-> ends, mapped |-> mapped,
           runs |-> IF M("leadercomputes") THEN RunsOf(Now, ends) ELSE <<>>])
     /\ UNCHANGED <<slog, scommit, elected, states, cuts, placed, acked, read, route, unknown>>

ProposeOrder == \E of \in [Stream -> UNION {Reports(s) : s \in Stream}] : ProposeFrom(of)

ProposeSeal(s) ==          \* a stream that has lost its majority is sealed where its order ends
  /\ Seals /\ Len(olog) < MaxOrders /\ s \notin Now.sealed /\ (Moves = 0 \/ s = 1)
  /\ olog' = Append(olog, [kind |-> "seal", s |-> s])
  /\ UNCHANGED <<slog, scommit, elected, states, cuts, placed, acked, read, route, unknown>>

ProposeClose ==
  /\ Moves > 0 /\ Len(olog) < MaxOrders /\ 1 \notin Now.closing
  /\ olog' = Append(olog, [kind |-> "close", s |-> 1])
  /\ UNCHANGED <<slog, scommit, elected, states, cuts, placed, acked, read, route, unknown>>

ProposeSealed(s) ==        \* a report has said that SEAL is committed, and where the stream ends
  /\ Len(olog) < MaxOrders /\ s \in Now.closing \ Now.sealed
  /\ \E i \in 0..(IF M("sealuncommitted") THEN Len(slog[s]) ELSE scommit[s]) :
       LET end == Len(Records(Beginning(s, i))) + 1
       IN /\ Ends(Beginning(s, i))
          /\ Now.ordered[s] = end \/ M("sealedbeforeorder")
          /\ olog' = Append(olog, [kind |-> "sealed", s |-> s, end |-> end])
  /\ UNCHANGED <<slog, scommit, elected, states, cuts, placed, acked, read, route, unknown>>

CommitOrder ==
  /\ Len(states) <= Len(olog)
  /\ LET record == olog[Len(states)]
     IN /\ states' = Append(states, Apply(Now, record))
        /\ placed' = placed \o Place(Runs(Now, record))
  /\ UNCHANGED <<slog, scommit, elected, olog, cuts, acked, read, route, unknown>>

CutOrders ==               \* a new leader of group 0 does not have some uncommitted records
  /\ cuts < MaxCut
  /\ \E length \in (Len(states) - 1)..(Len(olog) - 1) : olog' = SubSeq(olog, 1, length)
  /\ cuts' = cuts + 1
  /\ UNCHANGED <<slog, scommit, elected, states, placed, acked, read, route, unknown>>

Uncommitted ==             \* the state after all records of group 0, committed or not: only for a mistake
  LET RECURSIVE Of(_, _)
      Of(state, rest) == IF rest = <<>> THEN <<>>
                         ELSE Runs(state, Head(rest)) \o Of(Apply(state, Head(rest)), Tail(rest))
  IN Place(Of(Now, SubSeq(olog, Len(states), Len(olog))))

Acknowledge ==             \* an ordered append gets its answer
  /\ Acks
  /\ LET given == IF M("ackbeforecommit") THEN placed \o Uncommitted ELSE placed
     IN \E g \in 1..Len(given) :
          /\ \A a \in acked : a.id # given[g].id
          /\ acked' = acked \cup {[id |-> given[g].id, g |-> g]}
  /\ UNCHANGED <<slog, scommit, elected, olog, states, cuts, placed, read, route, unknown>>

Read ==                    \* the next global position, at a member that has any beginnings of all logs
  /\ Len(read) < Reads
  /\ \E i \in [Stream -> 0..MaxLen], j \in 1..Len(states) :
       LET g == Len(read) + 1
           Known(s) == SelectSeq(states[j].history, LAMBDA run : run.s = s) \o MapOf(Beginning(s, i[s]))
           Has(s, run, at) == run.g <= at /\ at < run.g + run.n
                              /\ run.l + at - run.g <= Len(Records(Beginning(s, i[s])))
           Is(at) == \E s \in Stream : \E k \in 1..Len(Known(s)) : Has(s, Known(s)[k], at)
           ahead == IF M("readerskips") THEN {at \in g..(g + MaxRec) : Is(at)} ELSE {at \in {g} : Is(at)}
       IN /\ \A s \in Stream : i[s] <= scommit[s]
          /\ ahead # {}
          /\ LET at == CHOOSE a \in ahead : \A b \in ahead : a <= b
             IN \E s \in Stream : \E k \in 1..Len(Known(s)) :
                  /\ Has(s, Known(s)[k], at)
                  /\ read' = Append(read, Records(Beginning(s, i[s]))[Known(s)[k].l + at - Known(s)[k].g].id)
  /\ UNCHANGED <<slog, scommit, elected, olog, states, cuts, placed, acked, route, unknown>>

Next ==
  \/ \E s \in Stream : AppendRecord(s) \/ AppendContext(s) \/ Commit(s) \/ Elect(s) \/ ProposeSeal(s)
                         \/ AppendSeal(s) \/ ProposeSealed(s)
  \/ AppendKey \/ MoveKey \/ MoveFromLost \/ ProposeClose
  \/ ProposeOrder \/ CommitOrder \/ CutOrders \/ Acknowledge \/ Read

Spec == Init /\ [][Next]_vars

---------------------------------------------------------------------------
(* Invariants *)

GlobalTiles ==             \* each global position is given once, without holes, and so is each local one below the order
  /\ Now.next = Len(placed) + 1
  /\ \A s \in Stream :
       LET mine == SelectSeq(placed, LAMBDA p : p.s = s)
       IN /\ Len(mine) = Now.ordered[s] - 1
          /\ {mine[k].l : k \in 1..Len(mine)} = 1..(Now.ordered[s] - 1)
  /\ \A k \in 1..Len(Now.history) : \A o \in 0..(Now.history[k].n - 1) :
       /\ Now.history[k].g + o <= Len(placed)
       /\ placed[Now.history[k].g + o].s = Now.history[k].s
       /\ placed[Now.history[k].g + o].l = Now.history[k].l + o

OrderOnlyCommitted ==      \* line 5 of B0: the order of a stream never reaches beyond its committed records
  \A s \in Stream : Now.ordered[s] <= Len(Records(Committed(s))) + 1

OrderStable ==             \* a global position has the same record for ever
  \A g \in 1..Len(placed) :
    LET all == Records(slog[placed[g].s])
    IN placed[g].l <= Len(all) /\ all[placed[g].l].id = placed[g].id

OrderKeepsStreamOrder ==
  \A g, h \in 1..Len(placed) : g < h /\ placed[g].s = placed[h].s => placed[g].l < placed[h].l

OrderedIsLinearizable ==   \* an answer is true for ever; what was answered before an append has a lower position
  /\ \A a \in acked : a.g <= Len(placed) /\ placed[a.g].id = a.id
  /\ \A s \in Stream : \A k \in 1..Len(Records(slog[s])) :
       LET record == Records(slog[s])[k]
       IN \A a, b \in acked : (b.id = record.id /\ a.id \in record.before) => a.g < b.g

MapIsComplete ==           \* what group 0 has forgotten is in the committed CONTEXTs, and they are true and without gaps
  \A s \in Stream :
    LET map == MapOf(Committed(s))
    IN /\ Now.forgotten[s] <= End(map)
       /\ \A k \in 1..Len(map) : \A o \in 0..(map[k].n - 1) :
            /\ map[k].g + o <= Len(placed)
            /\ placed[map[k].g + o].s = s /\ placed[map[k].g + o].l = map[k].l + o
       /\ \A i \in 1..scommit[s] : slog[s][i].kind = "context" =>
            slog[s][i].runs[1].l <= End(MapOf(Beginning(s, i - 1)))

SealedStays ==             \* nothing is ordered in a stream behind its seal
  \A i \in 1..Len(states) : \A s \in states[i].sealed : states[i].ordered[s] = Now.ordered[s]

SealEndsTheStream ==       \* no record follows a SEAL
  \A s \in Stream : \A i, j \in 1..Len(slog[s]) :
    slog[s][i].kind = "seal" /\ i < j => slog[s][j].kind # "record"

SealedIsOrdered ==         \* each record that a sealed stream ever has committed has its global position
  \A s \in Now.sealed \ Now.lost : Ends(Committed(s)) /\ Now.ordered[s] = Len(Records(slog[s])) + 1

KeyKeepsItsOrder ==        \* the records of one key rise in global position, over the move, and each has only one
  \A g, h \in 1..Len(placed) :
    g < h /\ placed[g].id[1] = 0 /\ placed[h].id[1] = 0 => placed[g].id[2] < placed[h].id[2]

KeyIsNotSkipped ==         \* a record of the key is never ordered before an earlier one, unless the stream is lost
  1 \in Now.lost \/ \A g \in 1..Len(placed) : placed[g].id[1] = 0 =>
    \A n \in 1..(placed[g].id[2] - 1) : \E h \in 1..(g - 1) : placed[h].id = <<0, n, 0>>

ReaderSeesTheOrder ==
  \A g \in 1..Len(read) : g <= Len(placed) /\ read[g] = placed[g].id
=============================================================================
