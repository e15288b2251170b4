"""House rules about text: names in the documents exist, and the sources contain no unfinished notes."""

from __future__ import annotations

import re

from tests.sources import MODULES, ROOT, TESTS, name


def test_there_are_no_unfinished_notes() -> None:
    """Unfinished work belongs in an issue, because notes in sources are not read."""
    marker = re.compile(r"\b(TO" "DO|FIX" "ME|XX" "X)\\b")
    found = [
        f"{name(path)}:{number}"
        for path in [*MODULES, *TESTS]
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if marker.search(line)
    ]
    assert found == []


def test_every_path_that_the_documents_name_exists() -> None:
    """A wrong path in a document misleads its reader, so renaming a file includes its mentions."""
    documents = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md")), ROOT / "tests" / "README.md"]
    pattern = re.compile(r"`((?:viewstamp|tests|docs|examples|benchmarks)/[^`\s:#]*)(?:::?[^`\s]*|#[^`\s]*)?`")
    missing = []
    for document in documents:
        for match in pattern.finditer(document.read_text(encoding="utf-8")):
            path = match[1].rstrip("/")
            exists = any(ROOT.glob(path)) if any(c in path for c in "*?[") else (ROOT / path).exists()
            if not exists:
                missing.append(f"{name(document)}: {match[1]}")
    assert missing == []


def test_every_test_that_the_documents_name_exists() -> None:
    """Written as ``tests/wal/test_recovery.py::test_name``, because a reader must find the proof of a claim."""
    pattern = re.compile(r"`(tests/[\w/]+\.py)::(?:\w+::)?(\w+)(?:\[[^`]*\])?`")
    missing = []
    for document in sorted((ROOT / "docs").rglob("*.md")):
        for match in pattern.finditer(document.read_text(encoding="utf-8")):
            path = ROOT / match[1]
            if not path.exists() or not re.search(rf"def {match[2]}\b", path.read_text(encoding="utf-8")):
                missing.append(f"{name(document)}: {match[0]}")
    assert missing == []
