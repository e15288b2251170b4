#!/bin/sh
# check.sh NAME ["mistake mistake"]: check Announcement.tla with TLC, with these mistakes in it, and print the result on one line.
# Environment: JAR (tla2tools.jar), JAVA (java), and the bounds TERMS LEN CRASHES. SHOW=1 prints the whole output.
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
====
END
cat >"$work/Bounded.cfg" <<END
SPECIFICATION Spec
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
