"""Looks in the background whether a store can be used, because an answer may take long, and nobody may wait for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from viewstamp.errors import StorageError, UnavailableError, ViewstampError

__all__ = ["StoreWatch"]

_WAIT_SECONDS: Final = 0.7
"""How long a caller waits for a look. Shorter than the time in which a leader answers a request about the archive."""
_NEW_SECONDS: Final = 2.0
"""Age up to which an error is raised again without another look. Longer than a client waits until it asks again."""
_CURRENT_SECONDS: Final = 15.0
"""Age from which a result is not reported any more without another look."""
_SLOW_SECONDS: Final = 5.0
"""A look that takes longer is reported as trouble."""


class StoreWatch:
    """The result of the newest look. For several threads at once.

    Invariants:
      * at most one look is under way
    """

    def __init__(
        self,
        where: str,
        look: Callable[[], None],
        on_change: Callable[[str, str], None],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; nothing is looked at.

        Args:
          where: the store, for messages.
          look: blocks, and raises a ViewstampError if the store cannot be used.
          on_change: called in the thread of the look, with the trouble and its remedy, when they have changed.
          monotonic: a clock in seconds.
        """
        self._where = where
        self._look = look
        self._on_change = on_change
        self._monotonic = monotonic
        self._changed = threading.Condition()
        self._began: float | None = None
        """When the look that is under way began; None = there is none."""
        self._ended: float | None = None
        self._error: ViewstampError | None = None

    def check(self) -> None:
        """Return if the newest look found nothing wrong; without a result, or after an error, look again.

        An error is raised for a moment without another look. Otherwise a caller that repeats its call, because it does
        not wait long enough for a slow store, would begin a new look each time and never get a result.

        Raises:
          StorageError: the store refuses what the archive needs.
          UnavailableError: it does not answer, or has not answered yet.
        """
        with self._changed:
            if self._ended is not None and self._error is None:
                return
            is_new = self._ended is not None and self._monotonic() - self._ended < _NEW_SECONDS
            if not is_new:
                self._begin()
            if not self._changed.wait_for(lambda: self._began is None, _WAIT_SECONDS):
                raise UnavailableError(
                    f"{self._where} has not answered yet whether it can be used", remedy="try again in a moment"
                )
            if isinstance(self._error, StorageError | UnavailableError):
                raise type(self._error)(self._error.message, remedy=self._error.remedy)
            if self._error is not None:
                raise self._error

    def status(self) -> dict[str, object]:
        """Return ``where``, the newest ``trouble`` ("" = none) and its ``remedy``; begins a look if that is old.

        ``is_current``: whether the result is new. If it is not, the next call a moment later has a new one.
        """
        with self._changed:
            now = self._monotonic()
            is_current = self._ended is not None and now - self._ended < _CURRENT_SECONDS
            error = self._error
            trouble, remedy = ("", "") if error is None else (error.message, error.remedy)
            if not is_current:
                self._begin()
            if self._began is not None and now - self._began >= _SLOW_SECONDS:
                is_current, trouble = True, f"{self._where} has not answered for {now - self._began:.0f} s"
                remedy = "look at the store and the network in between"
        return {"where": self._where, "trouble": trouble, "remedy": remedy, "is_current": is_current}

    def _begin(self) -> None:
        if self._began is None:
            self._began = self._monotonic()
            threading.Thread(target=self._run, name="store-watch", daemon=True).start()

    def _run(self) -> None:
        error: ViewstampError | None = None
        try:
            self._look()
        except ViewstampError as found:
            error = found
        except Exception as found:
            error = StorageError(f"{self._where} cannot be used: {found!r}", remedy="report this error")
        with self._changed:
            earlier, self._error = self._error, error
            self._began, self._ended = None, self._monotonic()
            self._changed.notify_all()
        if repr(earlier) != repr(error):
            self._on_change(*(("", "") if error is None else (error.message, error.remedy)))
