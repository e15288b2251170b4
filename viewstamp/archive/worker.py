"""The archive process of a node: it writes, reads and removes objects of runs, one request after the other.

The node decides everything and proposes the records; this process has no part of the cluster's state, and opens no
file of the node's data directory. Its standard input is a socket to the node (``pipe.py``).

| request | answer |
| --- | --- |
| open: where, cluster | nothing; the store exists only from now on |
| recognise: group, runs | is_known: whether the store has one of the runs |
| begin: run, topic, first, schema, group | nothing; the object of a run is begun, the one before it is out of reach |
| add: end, batches, and of a stream the order | next: the next position. They are written after the answer |
| finish | the fields of ``WrittenRun`` |
| abandon | nothing |
| check: the fields of ``ArchivedRun`` | nothing |
| step | bytes: those that were verified by this step; None = all of the run is |
| dump: run, topic, first, end | nothing; the object of a dump is begun, and add, finish and abandon are for it |
| merge: run, slices, start, end, is_oldest, range_bytes | nothing; the object of a merge is begun |
| merge step | goes_on: whether there are more rows |
| finish merge | the fields of ``WrittenKeys`` |
| abandon merge | nothing |
| check keys: the fields of ``ArchivedRun`` | nothing; step is for it |
| remove: run, group | nothing |
| list: group | sizes: pairs of run and size |

The error of a piece that is written after its answer is the answer to the next request about the object. One piece is
written at a time, and the node sends one more at most, so both processes have a few MiB in memory.

An answer to a request that failed is an error as nodes send it to clients. If the node ends, however that happens, the
socket ends, and so does this process, at once and within any call. What it has written then stays, as if the node had
written it and died: nobody reads an object before its COMMIT_RUN. The process has a low priority, so that it gets only
processor time that is left over, and it is the first one that the kernel ends if the memory is used up.
"""

from __future__ import annotations

import os
import queue
import select
import socket
import threading
from collections.abc import Generator
from contextlib import suppress
from typing import Any

from viewstamp.archive.columns import load_arrow
from viewstamp.archive.key_store import KeyCreation, KeyMerge
from viewstamp.archive.location import open_store
from viewstamp.archive.pipe import receive, send
from viewstamp.archive.run_store import RunCreation, RunObjects
from viewstamp.errors import PeerError, ViewstampError
from viewstamp.ids import GROUP_0, ClusterId, GroupId, Position, RunId, TopicId
from viewstamp.node.archive_queries import ArchivedRun
from viewstamp.wire.answers import error_fields
from viewstamp.wire.ordering import GlobalRun

__all__ = ["main", "serve"]

_NICE = 5
_PARENT_SECONDS = 1.0
"""Pause between two looks for the parent. A process that the node has forked may keep the socket open after its end."""

_Message = tuple[dict[str, Any], bytearray]


class _Requests:
    """The requests of the node to the objects of its cluster."""

    def __init__(self) -> None:
        self._runs: RunObjects
        self._object: RunCreation | KeyCreation | None = None
        self._merge: KeyMerge
        self._failure: ViewstampError | None = None
        """The error of the last piece of this object."""
        self._is_due = False
        """Whether a piece was taken and is to be written."""
        self._checking: Generator[int, None, None]

    def answer(self, request: dict[str, Any], data: bytearray) -> dict[str, object]:
        """Do what was requested. Raises ViewstampError, which is the answer then."""
        name = request.pop("call")
        match name:
            case "open":
                load_arrow()
                self._runs = RunObjects(open_store(request["where"]), ClusterId(request["cluster"]))
            case "recognise":
                return {"is_known": self._of(request).recognise([ArchivedRun(**run) for run in request["runs"]])}
            case "begin":
                self._failure = None
                self._object = self._of(request).begin(
                    RunId(request["run"]), TopicId(request["topic"]), Position(request["first"]), request["schema"]
                )
            case "add":
                taking = self._intact
                if isinstance(taking, RunCreation):
                    order = [GlobalRun(*run) for run in request["order"]]
                    following = taking.take(Position(request["end"]), [data], order)
                else:
                    following = taking.take(Position(request["end"]), [data])
                self._is_due = True
                return {"next": following}
            case "finish":
                return self._intact.finish()._asdict()
            case "abandon":
                if self._object is not None:
                    self._object.abandon()
            case "check":
                self._checking = self._runs.check(ArchivedRun(**request))
            case "step":
                return {"bytes": next(self._checking, None)}
            case "dump":
                self._failure = None
                self._object = self._runs.keys.begin_dump(
                    RunId(request["run"]),
                    TopicId(request["topic"]),
                    Position(request["first"]),
                    Position(request["end"]),
                )
            case "merge":
                slices = [ArchivedRun(**each) for each in request["slices"]]
                self._merge = self._runs.keys.begin_merge(
                    ArchivedRun(**request["run"]),
                    slices,
                    start=request["start"],
                    end=request["end"],
                    is_oldest=request["is_oldest"],
                    range_bytes=request["range_bytes"],
                )
            case "merge step":
                return {"goes_on": self._merge.step()}
            case "finish merge":
                return self._merge.finish()._asdict()
            case "abandon merge":
                self._merge.abandon()
            case "check keys":
                self._checking = self._runs.keys.check_keys(ArchivedRun(**request))
            case "remove":
                self._of(request).remove(RunId(request["run"]))
            case "list":
                return {"sizes": [list(pair) for pair in self._of(request).list_sizes().items()]}
            case _:
                raise PeerError(f"an archive process has no call {name!r}", remedy="start the node again")
        return {}

    def _of(self, request: dict[str, Any]) -> RunObjects:
        """Return the objects of the group of a request."""
        return self._runs if request["group"] == GROUP_0 else self._runs.of_group(GroupId(request["group"]))

    @property
    def _intact(self) -> RunCreation | KeyCreation:
        """The object that is being written. Raises the error of its last piece."""
        if self._failure is not None:
            raise self._failure
        assert self._object is not None, "the node begins an object first"
        return self._object

    def write(self) -> None:
        """Write the piece that was taken, if there is one."""
        is_due, self._is_due = self._is_due, False
        if is_due and self._object is not None:
            try:
                self._object.write()
            except ViewstampError as error:
                self._failure = error


def serve(pipe: socket.socket, requests: queue.SimpleQueue[_Message]) -> None:
    """Answer requests for ever. An error that is no ViewstampError is a mistake of ours, and ends the process."""
    answers = _Requests()
    while True:
        request, data = requests.get()
        try:
            fields = answers.answer(request, data)
        except ViewstampError as error:
            fields = error_fields(error)
        send(pipe, fields)
        answers.write()


def _receive_all(pipe: socket.socket, requests: queue.SimpleQueue[_Message], parent: int) -> None:
    """Receive requests until the node has ended; then end this process, in whatever call it is."""
    try:
        while os.getppid() == parent:
            if not select.select([pipe], [], [], _PARENT_SECONDS)[0]:
                continue
            found = receive(pipe)
            if found is None:
                break
            requests.put(found)
    finally:
        os._exit(0)


def main(parent: int) -> None:
    """Be the archive process of the node that runs in the process ``parent``, until that ends."""
    # The socket is inherited as standard input. Nothing else may read from it, or print into it.
    pipe = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.close(nothing)
    os.nice(_NICE)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as stream:
        stream.write("1000")
    requests: queue.SimpleQueue[_Message] = queue.SimpleQueue()
    threading.Thread(target=_receive_all, args=(pipe, requests, parent), daemon=True).start()
    serve(pipe, requests)
