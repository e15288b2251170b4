"""Calls to a store of another machine: a time limit for each attempt, pauses that grow, and a circuit breaker.

A store in the network may be away, slow, or throttle its callers. So each call is attempted a bounded number of times,
each time with a limit. The pause before the next attempt doubles, and has a random part, so that the callers of a store
that comes back do not all return at one moment.

A *circuit breaker* protects the callers: after a call that the store did not answer, further calls fail at once for
``rest`` seconds. Then one call tries again, with one attempt; its answer, also a refusal, closes the breaker.

An attempt is made in a thread of its own, because libraries have no limit for the whole of a call: a store that sends
one byte from time to time keeps one for ever. A thread that hangs is left behind. It is a daemon, so it does not keep
the process from ending, and the breaker bounds how many there are. **The attempt of such a thread may still take
effect later**, so a call must be one that may be repeated.
"""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from viewstamp.errors import UnavailableError

__all__ = ["Attempts"]

ResultT = TypeVar("ResultT")
Judge = Callable[[str, Exception], Exception | None]
"""Returns the error of the caller for a failed attempt, given the action; None = the store may answer the next one."""

_RANDOM_SHARE: Final = 0.5
"""Each pause is longer by a random part of itself, up to this share."""


class Attempts:
    """Makes the calls to one store. For several threads at once.

    Invariants:
      * an attempt ends, for its caller, within ``timeout`` seconds
      * while the breaker is open, at most one call at a time reaches the store
    """

    def __init__(
        self,
        where: str,
        *,
        remedy: str,
        timeout: float,
        attempts: int,
        pause: float,
        rest: float = 0.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare calls; nothing is sent.

        Args:
          where: the store, for messages; without secrets.
          remedy: of the error if the store does not answer.
          timeout: seconds for one attempt.
          attempts: how often a call is attempted.
          pause: seconds before the second attempt; doubled before each further one.
          rest: seconds for which calls fail at once after one without an answer; 0 = there is no breaker.
          monotonic: a clock in seconds.
        """
        self.timeout = timeout
        self._where = where
        self._remedy = remedy
        self._attempts = attempts
        self._pause = pause
        self._rest = rest
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._failure = ""
        """Of the last call, if the store did not answer it; "" = the breaker is closed."""
        self._open_until = 0.0
        """When the next call may try; while it does, ``inf``."""

    def call(self, action: str, work: Callable[[], ResultT], judge: Judge, *, attempts: int = 0) -> ResultT:
        """Return the result of ``work``, which is repeated until the store answers.

        Args:
          action: a verb and its object, for messages.
          work: one attempt. It runs in another thread, and may still run there after this call has failed.
          judge: see ``Judge``.
          attempts: fewer attempts than usual; 0 = the usual number.

        Raises:
          UnavailableError: no attempt had an answer, or the breaker is open: then ``work`` was not called.
        """
        is_trial = self._admit(action)
        count = 1 if is_trial else attempts or self._attempts
        is_answered = False
        failure = "the attempt was interrupted"
        try:
            pause = self._pause
            for attempt in range(1, count + 1):
                try:
                    result = _within(self.timeout, work)
                except Exception as error:
                    refusal = judge(action, error)
                    if refusal is not None:
                        is_answered = True
                        if refusal is error:
                            raise
                        raise refusal from error
                    failure = str(error) or type(error).__name__
                    if attempt == count:
                        raise UnavailableError(
                            f"{self._where} did not {action} in {count} attempts of {self.timeout:g} s: {failure}",
                            remedy=self._remedy,
                        ) from error
                    time.sleep(pause * (1 + _RANDOM_SHARE * random.random()))
                    pause *= 2
                else:
                    is_answered = True
                    return result
            raise AssertionError("the loop returns or raises")
        finally:
            self._note("" if is_answered else failure)

    def _admit(self, action: str) -> bool:
        """Return whether this call is the one that tries whether the store is back. Raises UnavailableError."""
        with self._lock:
            if not self._failure:
                return False
            if (left := self._open_until - self._monotonic()) <= 0:
                self._open_until = float("inf")
                return True
            when = "another call is trying now" if left == float("inf") else f"the next call may try in {left:.0f} s"
            raise UnavailableError(
                f"{self._where} did not answer before, so this process does not ask it to {action}: {when}"
                f" ({self._failure})",
                remedy=self._remedy,
            )

    def _note(self, failure: str) -> None:
        if self._rest:
            with self._lock:
                self._failure = failure
                self._open_until = self._monotonic() + self._rest


def _within(seconds: float, work: Callable[[], ResultT]) -> ResultT:
    """Run ``work`` in a daemon thread, and return its result. Raises TimeoutError; the thread goes on then."""
    results: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()

    def run() -> None:
        try:
            results.put((True, work()))
        except BaseException as error:
            results.put((False, error))

    threading.Thread(target=run, name="store-attempt", daemon=True).start()
    try:
        is_result, found = results.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"no answer within {seconds:g} s") from None
    if not is_result:
        raise found
    result: ResultT = found
    return result
