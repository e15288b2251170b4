"""The boot id of the machine, which changes whenever the page cache may have been lost.

Bytes that were written and not synced survive the death of every process, because the kernel holds them. They do not
survive the end of that kernel: a power cut, a reset, a panic. All containers of a machine share its kernel and its page
cache, and therefore they share its boot id.
"""

from __future__ import annotations

__all__ = ["UNKNOWN_BOOT", "read_boot_id"]

UNKNOWN_BOOT = ""
"""The machine gives no boot id. Callers must then assume that the machine has restarted, and lost unsynced bytes."""

_PATH = "/proc/sys/kernel/random/boot_id"


def read_boot_id() -> str:
    """Return an id that changes each time the machine starts; :data:`UNKNOWN_BOOT` on systems other than Linux.

    The kernel draws it at random when it starts. Blocks for one read of ``/proc``.
    """
    try:
        with open(_PATH, encoding="ascii") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError):
        return UNKNOWN_BOOT
