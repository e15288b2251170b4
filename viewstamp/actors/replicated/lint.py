"""``lint``: finds code in a class that would make members differ, as far as the source shows it."""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

from viewstamp.actors.replicated.actor import ReplicatedActor
from viewstamp.actors.replicated.hosted import MACHINE_FAILURES
from viewstamp.actors.replicated.methods import CommandMethod, QueryMethod

__all__ = ["lint"]

_MEMBERS = "differs from member to member"
_OUTSIDE = "depends on the outside: do it before the call, and pass the result as an argument"
_FORBIDDEN = {
    **dict.fromkeys(["time", "datetime.datetime.now", "datetime.datetime.utcnow"], f"{_MEMBERS}: use self.now"),
    **dict.fromkeys(["datetime.datetime.today", "datetime.date.today"], f"{_MEMBERS}: use self.now"),
    **dict.fromkeys(["random", "secrets", "os.urandom"], f"{_MEMBERS}: use self.random"),
    **dict.fromkeys(["uuid.uuid1", "uuid.uuid4", "uuid.uuid7"], f"{_MEMBERS}: use self.new_id()"),
    **dict.fromkeys(["builtins.id", "builtins.hash", "platform"], _MEMBERS),
    **dict.fromkeys(["builtins.open", "builtins.input", "os", "posix", "nt", "io", "pathlib", "tempfile"], _OUTSIDE),
    **dict.fromkeys(["socket", "subprocess", "urllib", "http", "requests", "httpx", "aiohttp", "sqlite3"], _OUTSIDE),
    **dict.fromkeys(
        ["threading", "asyncio", "multiprocessing", "concurrent", "trio"],
        "runs beside the log: a command is one step",
    ),
}
"""By module, or by module and name; the longest match applies."""
_ALLOWED = ("random.Random", "time.struct_time", "os.path")
_SETS = ("set", "frozenset")
_ORDERED = ("list", "tuple", "enumerate", "iter", "next", "zip", "map", "filter", "reversed", "dict")


def lint(cls: type[ReplicatedActor]) -> list[str]:
    """Return the places in the methods of ``cls`` and its bases that look non-deterministic, one line each.

    The result is a hint and no proof: lint reads the methods' own source, and not the functions that they call. An
    empty list means that nothing was found.
    """
    found: list[str] = []
    functions: list[tuple[str, Callable[..., Any], bool]] = []
    for each in cls.__mro__[: cls.__mro__.index(ReplicatedActor)]:
        for value in vars(each).values():
            function = value.function if isinstance(value, CommandMethod | QueryMethod) else value
            if inspect.isfunction(function):
                functions.append((function.__qualname__, function, isinstance(value, QueryMethod)))
    trees = [(*each, tree) for each in functions if (tree := _parse(each[1])) is not None]
    sets = {name for *_, tree in trees for name in _set_attributes(tree)}
    for name, function, is_query, tree in trees:
        where = f"{inspect.getsourcefile(function)}:"
        first = function.__code__.co_firstlineno - 1
        found += [
            f"{where}{first + line}: {name}: {what}" for line, what in sorted(_judge(tree, function, sets, is_query))
        ]
    return found


def _parse(function: Callable[..., Any]) -> ast.AST | None:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError):
        return None  # The function was created at run time and has no source.


def _judge(tree: ast.AST, function: Callable[..., Any], sets: set[str], is_query: bool) -> Iterator[tuple[int, str]]:
    names: Mapping[str, Any] = getattr(function, "__globals__", {})
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        match node:
            case ast.Name() | ast.Attribute() if id(node) not in inner and isinstance(node.ctx, ast.Load):
                dotted = _meaning(node, names)
                why = _forbidden(dotted)
                if why:
                    yield node.lineno, f"{dotted.removeprefix('builtins.')} {why}"
            case ast.For(iter=source) | ast.comprehension(iter=source) if _is_set(source, sets):
                yield source.lineno, f"the order of a set {_MEMBERS}: iterate over sorted(...)"
            case ast.Call(func=ast.Name(id=called), args=[source, *_]) if called in _ORDERED and _is_set(source, sets):
                yield node.lineno, f"the order of a set {_MEMBERS}: use sorted(...)"
            case ast.Call(func=ast.Attribute(attr="join"), args=[source]) if _is_set(source, sets):
                yield node.lineno, f"the order of a set {_MEMBERS}: use sorted(...)"
            case ast.Call(func=ast.Attribute(value=source, attr="pop"), args=[]) if _is_set(source, sets):
                yield node.lineno, f"the element that a set pops {_MEMBERS}: take min(...) and remove it"
            case ast.Raise(exc=ast.Call(func=error) | (ast.Name() as error)):
                raised = _resolve(error, names)
                if isinstance(raised, type) and issubclass(raised, MACHINE_FAILURES):
                    yield node.lineno, f"{raised.__name__} stops the node and is no result: raise a CommandError"
            case ast.Global() | ast.Nonlocal():
                yield node.lineno, f"{', '.join(node.names)} is outside the state, so no snapshot holds it"
            case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()) if (
                is_query and _root(node) == "self"
            ):
                yield node.lineno, f"a query changes {ast.unparse(node)} on one member only: make it a command"


def _forbidden(dotted: str) -> str:
    if dotted in _ALLOWED or dotted.startswith("os.path."):
        return ""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        why = _FORBIDDEN.get(".".join(parts[:length]))
        if why:
            return why
    return ""


def _meaning(node: ast.expr, names: Mapping[str, Any]) -> str:
    """Return the full name of the object that an expression refers to, however it was imported; "" = not known."""
    if isinstance(node, ast.Attribute):
        base = _meaning(node.value, names)
        return f"{base}.{node.attr}" if base else ""
    found = _resolve(node, names)
    if isinstance(node, ast.Name) and node.id not in names and found is not None:
        return f"builtins.{node.id}"
    if isinstance(found, ModuleType):
        return found.__name__
    module = getattr(found, "__module__", None)
    name = getattr(found, "__qualname__", None)
    return f"{module}.{name}" if type(module) is str and type(name) is str else ""


def _resolve(node: ast.expr, names: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Attribute):
        return getattr(_resolve(node.value, names), node.attr, None)
    return names.get(node.id, getattr(builtins, node.id, None)) if isinstance(node, ast.Name) else None


def _is_set(node: ast.expr, attributes: set[str]) -> bool:
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Call(func=ast.Name(id=name)):
            return name in _SETS
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return name in attributes
        case ast.BinOp(left=left, op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor(), right=right):
            return _is_set(left, attributes) or _is_set(right, attributes)
        case _:
            return False


def _set_attributes(tree: ast.AST) -> Iterator[str]:
    """Yield the names of attributes of self that are annotated or assigned as sets."""
    for node in ast.walk(tree):
        match node:
            case ast.AnnAssign(target=ast.Attribute(value=ast.Name(id="self"), attr=name), annotation=annotation):
                if ast.unparse(annotation).partition("[")[0] in _SETS:
                    yield name
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=value):
                if _is_set(value, set()):
                    yield name


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
