"""The pages hold together: links resolve, pictures are current, tables are complete, and the site builds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from docs.pictures import pictures
from docs.pictures.layers import CAPTIONS, layers
from tests.sources import ROOT

DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.rglob("*.md")), *sorted(ROOT.glob("*.md"))]


def links(page: Path) -> Iterator[tuple[str, str]]:
    """Yield (text, target) of each Markdown link and picture outside of code."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    yield from re.findall(r"\[([^\]]*)\]\(([^)\s]+)\)", text)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MyST make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> Iterator[str]:
    for _, target in links(page):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            yield f"{page.relative_to(ROOT)}: {target}"


def test_every_relative_link_resolves() -> None:
    assert [broken for page in PAGES for broken in broken_links(page)] == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = ROOT / "tests" / "docs" / "page.md"
    found = tmp_path / page.name
    found.write_text("# Here\n[a](#here) [b](#there) [c](nowhere.md)", encoding="utf-8")
    assert [target for _, target in links(found)] == ["#here", "#there", "nowhere.md"]
    assert anchors(found) == {"here"}


def test_the_readme_works_on_a_package_page() -> None:
    """There, only links within the page can work: files are named by their paths."""
    assert [target for _, target in links(ROOT / "README.md") if not target.startswith("#")] == []


def test_the_pictures_are_current() -> None:
    """``python -m docs.pictures`` draws them anew."""
    drawn = {name: (DOCS / "pictures" / name).read_text(encoding="utf-8") for name in pictures()}
    assert [name for name, picture in pictures().items() if drawn[name] != picture] == []


def test_every_layer_has_a_caption_and_no_other_package() -> None:
    assert sorted(name for layer in layers() for name in layer) == sorted(CAPTIONS)


def test_every_picture_has_an_alternative_text() -> None:
    shown = [
        (page, text) for page in PAGES for text, target in links(page) if target.endswith(".svg") and len(text) < 30
    ]
    assert shown == []


@pytest.mark.slow
@pytest.mark.timeout(600)  # 15 s of processor time, of which a busy machine gives a tenth.
@pytest.mark.skipif(not find_spec("furo"), reason="needs the extra `docs`")
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """All pages and docstrings are read and all references resolved. Only the long form, and ``make docs``, write HTML.

    Writing it takes as long again.
    """
    builder = "html" if os.environ.get("VIEWSTAMP_SOAK") else "dummy"
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", builder]
    built = subprocess.run(
        [*command, "-d", str(tmp_path / "doctrees"), "docs", str(tmp_path / "site")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=580,
        check=False,
    )
    assert built.returncode == 0, built.stdout
    assert (tmp_path / "doctrees" / "index.doctree").exists()
    assert (tmp_path / "site" / "index.html").exists() == (builder == "html")
