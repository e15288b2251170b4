"""How Sphinx builds the site: ``make docs``. The pages are Markdown that also reads well as plain text."""

from __future__ import annotations

import re

import viewstamp

project = "viewstamp"
author = "the viewstamp authors"
copyright = "the viewstamp authors, Apache-2.0"  # noqa: A001 - the name that Sphinx reads
html_title = "viewstamp"
html_theme = "furo"
html_theme_options = {"navigation_with_keys": True}
html_static_path = ["_static"]
html_css_files = ["viewstamp.css"]
html_copy_source = False
html_show_sphinx = False

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
exclude_patterns = ["_build"]
suppress_warnings = ["ref.python"]  # A field named `bytes` is no target for the type `bytes`.

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_class_signature = "separated"
python_use_unqualified_type_names = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_include_special_with_doc = False


def markdown_to_rest(app: object, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Make a docstring's Markdown tables blocks of plain text, and the parts of an error's text fields.

    reStructuredText takes ``|`` and an indented second line for something else. All else is the same in both.
    """
    found: list[str] = []
    for given in lines:
        line = re.sub(r"^(Happened|Do): ", r":\1: ", given)
        is_row = line.lstrip().startswith("|")
        was_row = bool(found) and found[-1].lstrip().startswith("|")
        if is_row and not was_row:
            indent = re.match(r" *", line)
            found += ["", f"{indent[0] if indent else ''}::", ""]
        elif was_row and not is_row:
            found.append("")
        found.append(f"    {line}" if is_row else line)
    lines[:] = found


def setup(app: object) -> None:
    """Connect the hook. ``viewstamp`` fills its names when they are first used, so they are all used here."""
    for name in viewstamp.__all__:
        getattr(viewstamp, name)
    app.connect("autodoc-process-docstring", markdown_to_rest)  # type: ignore[attr-defined]
