"""Signals for tests and the processes that they start.

A shell starts a background job with SIGINT ignored, and nohup ignores SIGHUP. A process and its children inherit that,
so a test that ends a child with one of these signals would wait for ever.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["default_signals", "restore_interrupt"]


def restore_interrupt() -> None:
    """Let SIGINT interrupt this process and its children, even if the shell had it ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def default_signals() -> Iterator[None]:
    """Start child processes within this context.

    SIGINT, SIGTERM and SIGHUP end them, even if this process ignores these.

    Only SIGINT is restored for the whole run, because under nohup this process itself must survive a SIGHUP.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    for number in before:
        signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
