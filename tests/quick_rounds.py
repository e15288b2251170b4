"""Rounds of the archive that follow each other at once, for nodes that are started as users start them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from viewstamp.node.options import ArchiveRoundOptions

__all__ = ["quick_rounds"]


@contextmanager
def quick_rounds(**options: float) -> Iterator[None]:
    """Give options created meanwhile a pause of 50 ms, and other defaults for ``options`` of ``ArchiveRoundOptions``.

    Settings files do not have them, because an operator has no reason to change them.
    """
    defaults = ArchiveRoundOptions.__init__.__kwdefaults__
    assert defaults is not None, "all fields are keywords with defaults"
    before = dict(defaults)
    assert set(options) <= set(before), f"{options} has a name that is no option"
    defaults.update(seconds=0.05, pause_seconds_max=0.1, **options)
    try:
        yield
    finally:
        defaults.update(before)
