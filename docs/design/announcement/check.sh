#!/bin/sh
# check.sh NAME ["mistake mistake"]: check Announcement.tla with TLC, with these mistakes in it, and print the result on one line.
# Environment: JAR (tla2tools.jar), JAVA (java), and the bounds TERMS LEN CRASHES. SHOW=1 prints the whole output.
# START=fallen begins with two records of term 1 on n1, and one of term 2 on n2; START=led where n1 leads term 3 then, and
# n3 has its first record. Both need SYMMETRY= and LEN=2.
# With changes of the voters: SYMMETRY= FOUNDERS='{n1, n2}' CHANGES='{<<{n1, n2, n3}, {n1, n2}>>, <<{n1, n2, n3}, {}>>}'
set -eu
name=$1
mistakes=$(printf '%s' "${2:-}" | sed 's/[^ ][^ ]*/"&"/g; s/ /, /g')
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
cp "$here/Announcement.tla" "$work"
cat >"$work/Bounded.tla" <<END
---- MODULE Bounded ----
EXTENDS Announcement, TLC
CONSTANTS n1, n2, n3
Voters == ${FOUNDERS:-{n1, n2, n3\}}
Memberships == ${CHANGES:-{\}}
Symmetry == Permutations(Node)
Hist(t) == IF t = 3 THEN <<<<0, 1>>, <<1, 1>>, <<3, 3>>>> ELSE <<<<0, 1>>, <<t, 1>>>>
IsLed == $([ "${START:-}" = led ] && echo TRUE || echo FALSE)
First == <<1, "x", <<>>>>
Log(n) == IF n = n1 THEN <<First, First>> ELSE IF n = n2 THEN <<<<2, "x", <<>>>>>> ELSE IF IsLed THEN <<First>> ELSE <<>>
Term(n) == IF n = n2 THEN 2 ELSE IF IsLed THEN 3 ELSE IF n = n1 THEN 1 ELSE 2
Chief(t) == IF t = 2 THEN n2 ELSE n1
HistOf(n) == IF n = n3 /\\ ~IsLed THEN NewHistory ELSE Hist(Term(n))
Top == IF IsLed THEN 3 ELSE 2
Fallen ==
  /\\ disk = [n \\in Node |-> [term |-> Term(n), vote |-> Chief(Term(n)), hist |-> HistOf(n), log |-> Log(n),
       voted |-> [t \\in Terms |-> IF t <= Top /\\ (n = n3 \\/ n = Chief(t)) THEN Chief(t) ELSE None]]]
  /\\ mem = [n \\in Node |-> [term |-> Term(n), vote |-> Chief(Term(n)), hist |-> HistOf(n), log |-> Log(n),
       role |-> IF IsLed /\\ n = n1 THEN "leader" ELSE "follower", announced |-> IsLed /\\ n = n3, installing |-> FALSE,
       durable |-> End(Log(n)), commit |-> 1]]
  /\\ queue = [n \\in Node |-> <<>>]
  /\\ top = Top
  /\\ asked = [t \\in Terms |-> [n \\in Node |-> IF t > Top \\/ n # Chief(t) THEN <<>> ELSE IF t = 3 THEN <<1, 3>> ELSE <<0, 1>>]]
  /\\ leaders = [t \\in Terms |-> IF t <= Top THEN {Chief(t)} ELSE {}]
  /\\ published = [t \\in Terms |-> IF t <= Top THEN Hist(t) ELSE <<>>]
  /\\ records = [t \\in Terms |-> IF t <= Top THEN Log(Chief(t)) ELSE <<>>]
  /\\ committed = [t \\in Terms |-> 1]
  /\\ acked = [t \\in Terms |-> [n \\in Node |-> IF IsLed /\\ t = 3 /\\ n = n3 THEN 1 ELSE 0]]
  /\\ told = [t \\in Terms |-> IF t <= Top THEN End(records[t]) ELSE 0]
  /\\ finds = [t \\in Terms |-> 1]
  /\\ crashes = 0
Begun == $([ -n "${START:-}" ] && echo Fallen || echo Init)
BoundedSpec == Begun /\\ [][Next]_vars
====
END
cat >"$work/Bounded.cfg" <<END
SPECIFICATION BoundedSpec
CONSTANTS
  n1 = n1
  n2 = n2
  n3 = n3
  None = None
  Node = {n1, n2, n3}
  Founders <- Voters
  Changes <- Memberships
  Value = {"x"}
  MaxTerm = ${TERMS:-2}
  MaxLen = ${LEN:-1}
  MaxCrash = ${CRASHES:-1}
  Mistakes = {$mistakes}
${SYMMETRY-SYMMETRY Symmetry}
INVARIANTS OneLeader LogSafety LeaderComplete CommittedIsChosen CommittedIsDurable HistoryTrue DurableIsDurable FollowsLeader AckedIsDurable
END
cd "$work"
timeout "${LIMIT:-3600}" "${JAVA:-java}" -Xmx"${MEM:-2g}" -XX:+UseParallelGC -cp "$JAR" tlc2.TLC -deadlock -workers "${WORKERS:-2}" -config Bounded.cfg Bounded.tla >out.txt 2>&1 || true
violated=$(grep -o 'Invariant [A-Za-z]* is violated' out.txt | head -1)
ended=$(grep -c 'No error has been found' out.txt || true)
[ -n "$violated" ] || { [ "$ended" = 1 ] && violated="no error, exhausted"; } || violated="UNFINISHED: $(grep -m1 -A2 '^Error' out.txt | tr '\n' ' ')"
echo "$name | $violated | trace $(grep -c '^State [0-9]*:' out.txt) | $(grep -o '[0-9,]* states generated.*, [0-9,]* distinct states found' out.txt | tail -1) | depth $(grep -oE 'search is [0-9]+|Progress\([0-9]+' out.txt | tail -1 | grep -oE '[0-9]+') | $(grep -o 'Finished in [^)]*' out.txt | head -1)"
[ -z "${SHOW:-}" ] || cat out.txt
rm -rf "$work"
