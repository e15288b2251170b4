"""Writes ``docs/errors.md`` from the sources: the exception classes, their messages, and the findings of the doctor.

    python -m tests.errors_page            compare the page with the sources
    python -m tests.errors_page --write    write it

``tests/test_errors_page.py`` fails if the page is not current.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache

from tests.sources import MODULES, PACKAGE, ROOT, place, tree
from viewstamp import errors
from viewstamp.doctor.report import CODES, Finding

__all__ = ["PAGE", "classes", "findings", "messages", "page", "section"]

PAGE = ROOT / "docs" / "errors.md"
COMMAND = "python -m tests.errors_page --write"
OMITTED = ("sim", "bench")
"""Subpackages whose errors end a run of the simulator or of a benchmark; no caller handles them."""

BLOCK = re.compile(r"(<!-- (classes|messages): written by [^\n]*-->\n).*?(<!-- end -->\n)", re.DOTALL)
"""A part of the page that is written from the code; the rest is written by hand."""


def classes() -> list[type[errors.ViewstampError]]:
    """Return the exception classes, each after its base class, in the order of the tree in ``errors.py``."""

    def below(error: type[errors.ViewstampError]) -> Iterator[type[errors.ViewstampError]]:
        yield error
        for child in error.__subclasses__():
            if child.__module__ == errors.__name__:
                yield from below(child)

    return list(below(errors.ViewstampError))


def section(error: type, label: str) -> str:
    """Return the text after ``label:`` in the docstring of an exception class, on one line; "" = there is none."""
    found = re.search(rf"^{label}: (.*(?:\n  .*)*)", inspect.getdoc(error) or "", re.MULTILINE)
    return " ".join(found[1].split()) if found else ""


def templates(node: ast.expr | None) -> list[str]:
    """Return the texts that an expression can have, with names in braces for values; [] = it is no text."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr(values=values):
            texts = [""]
            for value in values:
                parts = templates(value) or ["..."]
                texts = [text + part for text in texts for part in parts][:4]
            return texts
        case ast.FormattedValue(value=value):
            return [f"{{{label(value)}}}"]
        case ast.IfExp(body=body, orelse=orelse):
            return [*templates(body), *templates(orelse)]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return [one + two for one in templates(left) or ["..."] for two in templates(right) or ["..."]]
        case ast.BoolOp(values=values):
            return [text for value in values for text in templates(value)]
        case ast.Call(func=ast.Attribute(attr="command"), args=[words]):
            return [f"viewstamp {text}" for text in templates(words)]
        case _:
            return []


def label(node: ast.expr) -> str:
    """Return a short name for a value in a message."""
    match node:
        case ast.Name(id=name):
            return name.strip("_")
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return name.strip("_")
        case ast.Attribute(value=value, attr=name):
            return f"{label(value)} {name}" if isinstance(value, ast.Name) else name
        case ast.Call(func=ast.Attribute(attr="command"), args=[words]):
            return (templates(words) or ["command"])[0]
        case ast.Call(args=[first, *_]):
            return label(first)
        case ast.Subscript(slice=ast.Constant(value=str(key))):
            return key
        case _:
            return "..."


@cache
def messages() -> dict[str, list[tuple[str, str]]]:
    """Return (message, remedy) of each place that creates an error, by the name of its class, sorted and each once."""
    names = {error.__name__ for error in classes()}
    found: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for path in MODULES:
        if place(path).partition("/")[0] in OMITTED:
            continue
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names and node.args:
                remedies = [text for each in node.keywords if each.arg == "remedy" for text in templates(each.value)]
                remedy = " / ".join(remedies)
                for text in templates(node.args[0]):
                    if re.search(r"[a-z]", re.sub(r"\{.*?\}", "", text)):
                        found[node.func.id].add((text, remedy))
    return {name: sorted(rows, key=lambda row: (row[0].lower().lstrip("{"), row)) for name, rows in found.items()}


@cache
def findings() -> dict[str, list[tuple[str, str]]]:
    """Return (sentence, remedy) of each finding of the doctor, by its code."""
    found: dict[str, list[tuple[str, str]]] = {code: [] for code in CODES}
    module = tree(PACKAGE / "doctor" / "findings.py")
    others = [tree(PACKAGE / "doctor" / f"{name}.py") for name in ("archive", "clocks", "groups", "security", "status")]
    functions = {
        node.name: node for each in (module, *others) for node in each.body if isinstance(node, ast.FunctionDef)
    }
    for function in functions.values():
        local: dict[str, list[str]] = defaultdict(list)
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                local[node.targets[0].id] += templates(node.value)
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Finding":
                fields = {each.arg: each.value for each in node.keywords}
                code = fields["code"]
                if isinstance(code, ast.Constant):
                    sentences = texts_of(fields["sentence"], local) or texts_in_tuples(function)
                    remedies = texts_of(fields["remedy"], local)
                    found[str(code.value)] += [(each, " / ".join(remedies)) for each in sentences]
    told = {"no_leader": "_why_no_leader", "group_no_leader": "_why_nobody_leads"}
    told |= {"clock": "clock_trouble", "log_time": "log_time_trouble"}
    for code, name in told.items():
        for node in ast.walk(functions[name]):
            if isinstance(node, ast.Return | ast.Yield) and isinstance(node.value, ast.Tuple):
                *_, sentence, remedy = node.value.elts
                found[code] += [(each, " / ".join(templates(remedy))) for each in templates(sentence)]
    for node in ast.walk(functions["divergences"]):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append":
            found["diverged"] += [(text, "") for text in templates(node.args[0]) if " " in text]
    return found


def texts_of(node: ast.expr, local: dict[str, list[str]]) -> list[str]:
    """Return the texts of an expression; a name is looked up among the assignments of its function."""
    return local.get(node.id, []) if isinstance(node, ast.Name) else templates(node)


def texts_in_tuples(function: ast.FunctionDef) -> list[str]:
    """Return the sentences in the tuples of a function, for a sentence that is taken from one of them."""
    tuples = [node for node in ast.walk(function) if isinstance(node, ast.Tuple)]
    return [text for each in tuples for node in each.elts for text in templates(node) if " " in text]


def code_span(text: str) -> str:
    """Return a text as a code span in the cell of a table."""
    text = " ".join(text.split()).replace("|", "\\|")
    ticks = "``" if "`" in text else "`"
    pad = " " if "`" in text else ""
    return f"{ticks}{pad}{text}{pad}{ticks}" if text else ""


def class_rows() -> list[str]:
    """Return the table of all classes."""
    lines = ["| class | exit | meaning | may the request have happened? | do |", "| --- | ---: | --- | --- | --- |"]
    for error in classes():
        meaning = " ".join((inspect.getdoc(error) or "").partition("\n\n")[0].split())
        happened, step = section(error, "Happened"), section(error, "Do")
        lines.append(f"| `{error.__name__}` | {error.exit_code} | {meaning} | {happened} | {step} |".replace("``", "`"))
    return lines


def message_rows() -> list[str]:
    """Return the tables of all messages and findings."""
    lines = ["Search for the words of a message. Words in braces stand for values.", ""]
    found = messages()
    for error in classes():
        if error.__name__ in found:
            lines += [f"### {error.__name__}", "", "| message | next step |", "| --- | --- |"]
            lines += [f"| {code_span(text)} | {code_span(remedy)} |" for text, remedy in found[error.__name__]]
            lines.append("")
    lines += ["### Findings of the doctor", ""]
    lines += ["`viewstamp doctor` prints a sentence and a remedy for each finding.", ""]
    lines += ["| code | severity | sentence | remedy |", "| --- | --- | --- | --- |"]
    for code, rows in findings().items():
        severity = Finding(code=code, node="", sentence="", remedy="").severity
        lines += [f"| `{code}` | {severity} | {code_span(text)} | {code_span(remedy)} |" for text, remedy in rows]
    return lines


def page() -> str:
    """Return the page as it should be."""
    rows = {"classes": class_rows, "messages": message_rows}
    present = PAGE.read_text(encoding="utf-8")
    return BLOCK.sub(lambda block: f"{block[1]}\n" + "\n".join(rows[block[2]]()) + f"\n\n{block[3]}", present)


def main(arguments: Iterable[str] | None = None) -> int:
    """Compare the page with the sources, or write it; return the exit code."""
    parser = argparse.ArgumentParser(description="Writes docs/errors.md from the sources.")
    parser.add_argument("--write", action="store_true", help="write the page instead of comparing it")
    options = parser.parse_args(None if arguments is None else list(arguments))
    expected = page()
    if options.write:
        PAGE.write_text(expected, encoding="utf-8")
        return 0
    is_current = PAGE.read_text(encoding="utf-8") == expected
    if not is_current:
        sys.stderr.write(f"docs/errors.md is not current; write it: {COMMAND}\n")
    return 0 if is_current else 1


if __name__ == "__main__":
    sys.exit(main())
