-------------------------- MODULE LogStreamsTrace ---------------------------
(* Checks that a history of the product's state machines is a behaviour of  *)
(* LogStreams.tla. The module Recorded has Steps: what happened, in order.  *)
(* Step number `at` has to be a step of the specification that leads to the *)
(* recorded state. The history is accepted if the last step is reached, that *)
(* is, if the invariant Unfinished is violated.                             *)
EXTENDS LogStreams, Recorded

VARIABLE at

Step == Steps[at]

TraceInit == Init /\ at = 1

Shows(state) ==            \* group 0, after it has applied an ORDER
  /\ state.version = Step.version /\ state.next = Step.next
  /\ state.ordered = Step.ordered /\ state.forgotten = Step.forgotten
  /\ state.history = Step.history

TraceNext ==
  /\ at <= Len(Steps)
  /\ at' = at + 1
  /\ CASE Step.kind = "append" -> AppendRecord(Step.s)
       [] Step.kind = "commit" -> Commit(Step.s)
       [] Step.kind = "elect" -> Elect(Step.s) /\ Len(slog'[Step.s]) = Step.length
       [] Step.kind = "context" -> AppendContext(Step.s) /\ Last(slog'[Step.s]).runs = Step.runs
       [] Step.kind = "propose" -> ProposeFrom([s \in Stream |-> <<Step.ends[s], Step.mapped[s]>>])
       [] Step.kind = "order" -> CommitOrder /\ Shows(Last(states'))
       [] Step.kind = "cut" -> CutOrders /\ Len(olog') = Step.length

TraceSpec == TraceInit /\ [][TraceNext]_<<vars, at>>

Unfinished == at <= Len(Steps)
=============================================================================
