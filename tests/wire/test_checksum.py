"""CRC-32C without the rest of the package that it comes from."""

from __future__ import annotations

import subprocess
import sys

import crc32c as package
import pytest

from viewstamp.wire import checksum


@pytest.mark.parametrize("data", [b"", b"123456789", bytes(range(256)) * 40])
def test_it_is_the_function_of_the_package(data: bytes) -> None:
    assert checksum.crc32c(data) == package.crc32c(data)
    assert checksum.crc32c(memoryview(data), 7) == package.crc32c(data, 7)


def test_the_check_value_of_the_polynomial() -> None:
    assert checksum.crc32c(b"123456789") == 0xE3069283


def test_neither_the_command_line_of_the_package_nor_a_parser_of_mail_is_imported() -> None:
    code = "import sys; before = {*sys.modules}; import viewstamp.wire.checksum; print(*({*sys.modules} - before))"
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "viewstamp.wire.checksum" in imported
    assert {"argparse", "email", "importlib.metadata"}.isdisjoint(imported)


def test_a_package_without_the_extension_is_imported_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksum.PathFinder, "find_spec", lambda name, path=None: None)
    assert checksum._extension() is None
