"""``python -m docs.pictures``: draw all pictures of the pages anew."""

from __future__ import annotations

from pathlib import Path

from docs.pictures import pictures

if __name__ == "__main__":
    for name, picture in pictures().items():
        (Path(__file__).parent / name).write_text(picture, encoding="utf-8")
