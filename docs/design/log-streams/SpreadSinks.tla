---------------------------- MODULE SpreadSinks ----------------------------
(* Design note 0031: a batch of a sink over several log streams.             *)
(*                                                                           *)
(* An attempt is begun in group 0. It stages a part in each stream, seals    *)
(* the parts, and one record of group 0 commits it. The leader of a stream   *)
(* then places the part: its records get local positions. Group 0 releases   *)
(* the attempt by one ORDER over all its parts.                              *)
(*                                                                           *)
(* Streams are modelled as in LogStreams.tla: a log whose committed          *)
(* beginning never changes. A leader acts on any committed beginning of its  *)
(* log, and on any earlier state of group 0, because both may lag. Records   *)
(* of group 0 have their effect when they are committed, so only its states  *)
(* are modelled. Each attempt has one staged record in each stream.          *)
(*                                                                           *)
(* Mut is a set of names of deliberate mistakes; {} is the protocol.         *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
  Streams,      \* number of streams
  Attempts,     \* number of attempts
  Batches,      \* attempt a is one at batch 1 + (a % Batches); batches do not wait for each other
  MaxRec,       \* appended records of stream 1
  MaxElect,     \* changes of leader of each stream that cut its log
  MaxOrders,    \* ORDERs of group 0
  Ready,        \* TRUE: all parts are sealed at the start, so that several attempts can be checked
  Mut

VARIABLES
  slog,         \* stream -> its log
  scommit,      \* stream -> length of the committed beginning of it
  elected,      \* stream -> changes of leader so far
  states,       \* the states of group 0 after each of its records
  placed        \* what each global position got when it was given

vars == <<slog, scommit, elected, states, placed>>

Stream == 1..Streams
Attempt == 1..Attempts
M(mistake) == mistake \in Mut
Last(q) == q[Len(q)]
Front(q) == SubSeq(q, 1, Len(q) - 1)
Now == Last(states)
BatchOf(a) == 1 + (a % Batches)
Range(q) == {q[i] : i \in 1..Len(q)}
Max(a, b) == IF a > b THEN a ELSE b
Least(set) == CHOOSE x \in set : \A y \in set : x <= y

---------------------------------------------------------------------------
(* The state of a stream after a beginning of its log: its records, the parts that are staged and sealed, and the *)
(* local positions of the placed parts that it has not forgotten.                                              *)

Nothing == [records |-> <<>>, live |-> {}, sealed |-> {}, at |-> [a \in Attempt |-> 0]]

RECURSIVE After(_)
After(log) ==
  IF log = <<>> THEN Nothing
  ELSE LET entry == Last(log)
           state == After(Front(log))
           a == entry.a
       IN CASE entry.kind = "record" -> [state EXCEPT !.records = Append(@, <<0, entry.n>>)]
            [] entry.kind = "stage" -> [state EXCEPT !.live = @ \cup {a}]
            [] entry.kind = "seal" -> IF a \in state.live THEN [state EXCEPT !.sealed = @ \cup {a}] ELSE state
            [] entry.kind = "place" ->
                 IF a \in state.live /\ (a \in state.sealed \/ M("commitunsealed"))
                 THEN [state EXCEPT !.records = Append(@, <<a, 0>>), !.at[a] = Len(state.records) + 1,
                                    !.live = IF M("placetwice") THEN @ ELSE @ \ {a},
                                    !.sealed = IF M("placetwice") THEN @ ELSE @ \ {a}]
                 ELSE state
            [] entry.kind = "drop" -> [state EXCEPT !.live = @ \ {a}, !.sealed = @ \ {a}, !.at[a] = 0]

Beginning(s, i) == SubSeq(slog[s], 1, i)
Committed(s) == Beginning(s, scommit[s])
Has(s, kind, a) == \E i \in 1..Len(slog[s]) : slog[s][i].kind = kind /\ slog[s][i].a = a

---------------------------------------------------------------------------
(* Group 0 *)

Empty == [begun |-> {}, open |-> {}, committed |-> {}, pending |-> <<>>, ordered |-> [s \in Stream |-> 1], orders |-> 0]

IsOver(state, a) ==        \* the attempt will never be committed, or was released
  /\ a \in state.begun \/ M("dropunknown")
  /\ a \notin state.open
  /\ a \notin Range(state.pending) \/ M("dropdecided")

Change(state) == states' = Append(states, state)

Staged ==                  \* a log with all parts, sealed
  [i \in 1..(2 * Attempts) |-> [kind |-> IF i % 2 = 1 THEN "stage" ELSE "seal", a |-> (i + 1) \div 2]]

Init ==
  /\ slog = [s \in Stream |-> IF Ready THEN Staged ELSE <<>>]
  /\ scommit = [s \in Stream |-> IF Ready THEN 2 * Attempts ELSE 0]
  /\ elected = [s \in Stream |-> 0]
  /\ states = <<IF Ready THEN [Empty EXCEPT !.begun = Attempt, !.open = Attempt] ELSE Empty>>
  /\ placed = <<>>

Begin(a) ==                \* attempts are begun in the order of their numbers, and one that is gone does not return
  /\ a \notin Now.begun /\ \A b \in 1..(a - 1) : b \in Now.begun
  /\ Change([Now EXCEPT !.begun = @ \cup {a}, !.open = @ \cup {a}])
  /\ UNCHANGED <<slog, scommit, elected, placed>>

Drop0(a) ==                \* by its age, by a later run, by an abort
  /\ a \in Now.open
  /\ Change([Now EXCEPT !.open = @ \ {a}])
  /\ UNCHANGED <<slog, scommit, elected, placed>>

Commit0(a) ==              \* the driver has the answer of each stream that the part is sealed
  /\ a \in Now.open \/ (M("commitsgone") /\ a \in Now.begun)
  /\ BatchOf(a) \notin Now.committed
  /\ a \notin Range(Now.pending)
  /\ \A s \in Stream :
       \/ \E i \in 0..scommit[s] : a \in After(Beginning(s, i)).sealed
       \/ M("commitunsealed") /\ \E i \in 0..scommit[s] : a \in After(Beginning(s, i)).live
       \/ M("sealuncommitted") /\ a \in After(slog[s]).sealed
  /\ Change([Now EXCEPT !.open = {b \in @ : BatchOf(b) # BatchOf(a)}, !.committed = @ \cup {BatchOf(a)},
                        !.pending = Append(@, a)])
  /\ UNCHANGED <<slog, scommit, elected, placed>>

---------------------------------------------------------------------------
(* Streams *)

Write(s, entry) ==
  /\ slog' = [slog EXCEPT ![s] = Append(@, entry)]
  /\ UNCHANGED <<scommit, elected, states, placed>>

AppendRecord ==
  /\ Cardinality({i \in 1..Len(slog[1]) : slog[1][i].kind = "record"}) < MaxRec
  /\ Write(1, [kind |-> "record", a |-> 0, n |-> 100 * elected[1] + Len(slog[1])])

Stage(s, a) == a \in Now.begun /\ ~Has(s, "stage", a) /\ Write(s, [kind |-> "stage", a |-> a])

Seal(s, a) == a \in After(slog[s]).live /\ ~Has(s, "seal", a) /\ Write(s, [kind |-> "seal", a |-> a])

HasSeals(s, i, pending) == \* the beginning has all parts of these attempts sealed, and perhaps placed
  \A a \in Range(pending) : \E k \in 1..i : slog[s][k].kind = "seal" /\ slog[s][k].a = a

Place(s, a) ==             \* the leader has applied a beginning of its log, and of that of group 0
  \* The seal of each pending part was answered by this leader or an earlier one. It was applied then, or in an earlier
  \* term, and a leader proposes nothing before it has applied everything of earlier terms.
  /\ Cardinality({i \in 1..Len(slog[s]) : slog[s][i].kind = "place" /\ slog[s][i].a = a}) < (IF M("placetwice") THEN 2 ELSE 1)
  /\ \E i \in 0..scommit[s], j \in 1..Len(states) :
       LET state == After(Beginning(s, i))
           pending == states[j].pending
       IN /\ a \in state.live
          /\ HasSeals(s, i, pending) \/ M("placebehind") \/ M("commitunsealed") \/ M("sealuncommitted")
          /\ \/ M("placeundecided") /\ a \in states[j].open
             \/ \E k \in 1..Len(pending) :
                  /\ pending[k] = a
                  /\ M("placeinanyorder") \/ \A m \in 1..(k - 1) : pending[m] \notin state.live
  /\ Write(s, [kind |-> "place", a |-> a])

Drop(s, a) ==              \* the part of an attempt that is over; of a placed one only its local positions are forgotten
  /\ ~Has(s, "drop", a)
  /\ \E i \in 0..scommit[s], j \in 1..Len(states) :
       LET state == After(Beginning(s, i))
       IN /\ a \in state.live \/ state.at[a] > 0
          /\ IsOver(states[j], a) \/ M("dropbyage")
  /\ Write(s, [kind |-> "drop", a |-> a])

CommitEntry(s) ==
  /\ scommit[s] < Len(slog[s])
  /\ scommit' = [scommit EXCEPT ![s] = @ + 1]
  /\ UNCHANGED <<slog, elected, states, placed>>

Elect(s) ==
  /\ elected[s] < MaxElect
  /\ \E length \in scommit[s]..(Len(slog[s]) - 1) : slog' = [slog EXCEPT ![s] = SubSeq(@, 1, length)]
  /\ elected' = [elected EXCEPT ![s] = @ + 1]
  /\ UNCHANGED <<scommit, states, placed>>

---------------------------------------------------------------------------
(* ORDER *)

Held(s, i, j) ==           \* the placed parts that hold the order of the stream, as a leader knows it
  {a \in Attempt : After(Beginning(s, i)).at[a] > 0 /\ ~IsOver(states[j], a)}

EndOf(s, i, j) ==          \* a report ends before the first placed part that is not released
  LET state == After(Beginning(s, i))
      held == IF M("reportsparts") THEN {} ELSE Held(s, i, j)
  IN IF held = {} THEN Len(state.records) + 1 ELSE Least({state.at[a] : a \in held})

PartEnds(s, a) ==          \* reports of where the part ends: of any leader that has the part among those that hold
  {After(Beginning(s, i)).at[a] + 1 : i \in {k \in 0..(IF M("partuncommitted") THEN Len(slog[s]) ELSE scommit[s]) :
                                              After(Beginning(s, k)).at[a] > 0}}

Records(s) == After(slog[s]).records

Give(ends) ==              \* the global positions go to the streams in their order
  LET RECURSIVE Of(_)
      Of(s) == IF s > Streams THEN <<>>
               ELSE [k \in 1..(ends[s] - Now.ordered[s]) |->
                      [s |-> s, l |-> Now.ordered[s] + k - 1,
                       id |-> IF Now.ordered[s] + k - 1 <= Len(Records(s)) THEN Records(s)[Now.ordered[s] + k - 1] ELSE <<>>]]
                    \o Of(s + 1)
  IN Of(1)

Order(ends, release) ==
  LET new == [s \in Stream |-> Max(ends[s], Now.ordered[s])]
  IN /\ Now.orders < MaxOrders
     /\ new # Now.ordered \/ release # 0
     /\ Change([Now EXCEPT !.ordered = new, !.orders = @ + 1, !.pending = SelectSeq(@, LAMBDA a : a # release)])
     /\ placed' = placed \o Give(new)
     /\ UNCHANGED <<slog, scommit, elected>>

OrderRecords ==            \* from one report of each stream, of any age
  \E of \in [Stream -> {<<i, j>> : i \in 0..20, j \in 1..Len(states)}] :
    /\ \A s \in Stream : of[s][1] <= scommit[s]
    /\ Order([s \in Stream |-> EndOf(s, of[s][1], of[s][2])], 0)

Release ==                 \* the first pending attempt, when the ends of all its parts are known
  /\ Now.pending # <<>>
  /\ LET a == Head(Now.pending)
         known == {s \in Stream : PartEnds(s, a) # {}}
     IN /\ known = Stream \/ (M("releasesapart") /\ known # {})
        /\ \E ends \in [Stream -> UNION {PartEnds(s, a) : s \in Stream} \cup {1}] :
             /\ \A s \in known : ends[s] \in PartEnds(s, a)
             /\ \A s \in Stream \ known : ends[s] = 1
             /\ Order(ends, IF known = Stream THEN a ELSE 0)

Next ==
  \/ \E a \in Attempt : Begin(a) \/ Drop0(a) \/ Commit0(a)
  \/ \E s \in Stream : CommitEntry(s) \/ Elect(s)
  \/ \E s \in Stream, a \in Attempt : Stage(s, a) \/ Seal(s, a) \/ Place(s, a) \/ Drop(s, a)
  \/ AppendRecord \/ OrderRecords \/ Release

Spec == Init /\ [][Next]_vars

---------------------------------------------------------------------------
(* Invariants *)

Visible(k, a) ==           \* records of an attempt that have global positions in state k of group 0
  Cardinality({s \in Stream : \E l \in 1..(states[k].ordered[s] - 1) :
    l <= Len(Records(s)) /\ Records(s)[l] = <<a, 0>>})

OneMoment ==               \* readers by position see all of an attempt, or nothing
  \A k \in 1..Len(states), a \in Attempt : Visible(k, a) \in {0, Streams}

NothingLost ==             \* a committed part is sealed, or has its local position, in the committed log
  \A a \in Attempt : (a \in Range(Now.pending) \/ Visible(Len(states), a) > 0) =>
    \A s \in Stream : LET state == After(Committed(s)) IN a \in state.sealed \/ <<a, 0>> \in Range(state.records)

Once ==                    \* one attempt of a batch, and each of its parts once
  \A s \in Stream : \A i, j \in 1..Len(Records(s)) :
    LET a == Records(s)[i][1]
        b == Records(s)[j][1]
    IN (a > 0 /\ b > 0 /\ BatchOf(a) = BatchOf(b)) => i = j

OnlyCommitted ==           \* no record of an attempt that was not committed
  \A s \in Stream : \A i \in 1..Len(Records(s)) :
    Records(s)[i][1] > 0 => \E k \in 1..Len(states) : Records(s)[i][1] \in Range(states[k].pending)

OrderStable ==             \* a global position has the same record for ever
  \A g \in 1..Len(placed) :
    LET p == placed[g] IN p.l <= Len(Records(p.s)) /\ Records(p.s)[p.l] = p.id

NoStandstill ==            \* when all parts are placed, the first attempt can be released without passing another one
  (Now.pending # <<>> /\ \A s \in Stream, k \in 1..Len(Now.pending) : <<Now.pending[k], 0>> \in Range(After(Committed(s)).records))
  => \A s \in Stream, k \in 2..Len(Now.pending) :
       After(Committed(s)).at[Head(Now.pending)] < After(Committed(s)).at[Now.pending[k]]
=============================================================================
