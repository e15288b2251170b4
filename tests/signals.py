"""Signals for tests and the processes that they start.

A shell starts a background job with SIGINT ignored, and nohup ignores SIGHUP. A process inherits that, and so do its
children, so a test that ends a child with one of these signals would wait for ever.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["default_signals", "restore_interrupt"]


def restore_interrupt() -> None:
    """Have SIGINT interrupt this process, and so its children too, although the shell had it ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def default_signals() -> Iterator[None]:
    """Start child processes in here: SIGINT, SIGTERM and SIGHUP end them, whatever this process ignores.

    Only SIGINT is restored for the whole run: under nohup this process must itself outlive a SIGHUP.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    for number in before:
        signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
