"""CRC-32C, the checksum of frames, batches and files.

The function is that of the package ``crc32c``. The package itself also imports what its command line and its version
need, among it the standard library's parsers of mail and arguments. That would be 25 ms of each start of a process, so
the extension module inside the package is loaded without it. A release of the package without that module is imported
as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader, PathFinder
from typing import TYPE_CHECKING

__all__ = ["crc32c"]

if TYPE_CHECKING:
    from crc32c import crc32c


def _extension() -> Callable[[bytes, int], int] | None:
    """Return the function of the extension module; None = there is no such module."""
    package = PathFinder.find_spec("crc32c")
    places = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec("crc32c._crc32c", places) if places is not None else None
    if spec is None or not isinstance(spec.loader, ExtensionFileLoader):
        return None
    module = spec.loader.create_module(spec)
    spec.loader.exec_module(module)
    return getattr(module, "crc32c", None)


if not TYPE_CHECKING:
    crc32c = _extension()
    if crc32c is None:
        from crc32c import crc32c
