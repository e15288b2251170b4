#!/bin/sh
# check.sh NAME ["mistake mistake"]: check a specification with TLC, with these mistakes in it, and print the result on one line.
# Environment: JAR (tla2tools.jar), JAVA (java), SPEC (LogStreams or SpreadSinks), and the bounds: of LogStreams STREAMS REC LEN
# ORDERS ELECT CUT ACKS READS SEALS MOVES, of SpreadSinks STREAMS ATTEMPTS BATCHES REC ORDERS ELECT READY.
set -eu
name=$1
mistakes=$(printf '%s' "${2:-}" | sed 's/[^ ][^ ]*/"&"/g; s/ /, /g')
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
spec=${SPEC:-LogStreams}
cp "$here/$spec.tla" "$work"
if [ "$spec" = SpreadSinks ]; then
cat >"$work/run.cfg" <<END
SPECIFICATION Spec
CONSTANTS
  Streams = ${STREAMS:-2}
  Attempts = ${ATTEMPTS:-1}
  Batches = ${BATCHES:-1}
  MaxRec = ${REC:-1}
  MaxElect = ${ELECT:-1}
  MaxOrders = ${ORDERS:-2}
  Ready = ${READY:-FALSE}
  Mut = {$mistakes}
INVARIANTS OneMoment NothingLost Once OnlyCommitted OrderStable NoStandstill
END
else
cat >"$work/run.cfg" <<END
SPECIFICATION Spec
CONSTANTS
  Streams = ${STREAMS:-2}
  MaxRec = ${REC:-2}
  MaxLen = ${LEN:-3}
  MaxOrders = ${ORDERS:-3}
  MaxElect = ${ELECT:-1}
  MaxCut = ${CUT:-1}
  Acks = ${ACKS:-FALSE}
  Reads = ${READS:-0}
  Seals = ${SEALS:-FALSE}
  Moves = ${MOVES:-0}
  Mut = {$mistakes}
INVARIANTS GlobalTiles OrderOnlyCommitted OrderStable OrderKeepsStreamOrder OrderedIsLinearizable MapIsComplete SealedStays ReaderSeesTheOrder SealEndsTheStream SealedIsOrdered KeyKeepsItsOrder KeyIsNotSkipped
END
fi
cd "$work"
"${JAVA:-java}" -Xmx"${MEM:-2g}" -XX:+UseParallelGC -cp "$JAR" tlc2.TLC -deadlock -workers "${WORKERS:-2}" -config run.cfg "$spec.tla" >out.txt 2>&1 || true
violated=$(grep -o 'Invariant [A-Za-z]* is violated' out.txt | head -1)
ended=$(grep -c 'No error has been found' out.txt || true)
[ -n "$violated" ] || { [ "$ended" = 1 ] && violated="no error, exhausted"; } || violated="UNFINISHED: $(grep -m1 -A2 '^Error' out.txt | tr '\n' ' ')"
echo "$name | $violated | trace $(grep -c '^State [0-9]*:' out.txt) | $(grep -o '[0-9,]* states generated, [0-9,]* distinct states found' out.txt | tail -1) | $(grep -o 'Finished in [^)]*' out.txt | head -1)"
[ -z "${SHOW:-}" ] || cat out.txt
rm -rf "$work"
