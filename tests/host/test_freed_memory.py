"""Freed memory is used again by the same process, instead of new pages from the operating system."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

_PROGRAM = """
import resource, sys
from viewstamp.host.freed_memory import keep_freed_memory

if sys.argv[1] == "keep":
    keep_freed_memory()
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        pieces = [bytes(1_000_000) + b"." for _ in range(4)]
        pieces.clear()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(what: str, **environment: str) -> int:
    """Return how many new pages a process takes for 80 pieces of a MB, after it has freed as many."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    command = [sys.executable, "-c", _PROGRAM, what]
    return int(subprocess.run(command, env=plain | environment, check=True, capture_output=True).stdout)


@pytest.mark.skipif("CS_GNU_LIBC_VERSION" not in os.confstr_names, reason="another C library than glibc")
def test_freed_pieces_are_used_again() -> None:
    # A piece has 244 pages of 4 KiB.
    assert faults("keep") < 80 * 244 // 10 < faults("as it is")


def test_settings_of_the_user_stay_in_force() -> None:
    assert abs(faults("keep", MALLOC_ARENA_MAX="2") - faults("as it is", MALLOC_ARENA_MAX="2")) < 1000
