"""Evaluates TLA+ modules: as much of the language as the specification of traces uses, and no more.

It reads the same files as TLC, so the rules stay in one home. Whatever it does not know is a ``SyntaxError``.
Sequences are tuples, records and functions are dicts (a function over 1..n is a tuple), sets are frozensets or ranges.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Module", "State"]

State = Mapping[str, Any]
"""The values of the variables."""

Node = tuple[Any, ...]
"""An expression: its kind, and its parts."""

_Scope = dict[str, Any]
_Value = Callable[[_Scope, State, State], Any]
"""From the local names, the state, and the variables that the next state has so far."""
_Action = Callable[[_Scope, State, State], Iterator[State]]

_TOKEN = re.compile(
    r'"[^"]*"|\d+|\w+|<<|>>|\|->|->|==|=>|<=|>=|/=|\.\.|\[\]|/\\|\\/|\\[a-zA-Z]+|[-+*=#<>()\[\]{},:.!@~\'\\]'
)
_COMMENT = re.compile(r"\(\*.*?\*\)|\\\*[^\n]*|^(?:----|====)[^\n]*", re.DOTALL | re.MULTILINE)
_INFIX = {
    "=>": 1, "/\\": 3, "\\/": 3, "=": 5, "#": 5, "<": 5, ">": 5, "<=": 5, ">=": 5, "\\in": 5, "\\notin": 5,
    "\\cup": 8, "\\cap": 8, "\\": 8, "..": 9, "+": 10, "-": 10, "*": 13, "\\o": 13,
}  # fmt: skip
_NOT = 4


class _Token(NamedTuple):
    text: str
    column: int


_END = _Token("", -1)


# -- Parsing --------------------------------------------------------------------------------------------------------


def _tokens(text: str) -> list[_Token]:
    """Split a module into tokens, without its comments."""
    text = _COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    tokens = []
    for line in text.splitlines():
        at = 0
        for found in _TOKEN.finditer(line):
            if line[at : found.start()].strip():
                break
            tokens.append(_Token(found[0], found.start()))
            at = found.end()
        if line[at:].strip():
            raise SyntaxError(f"unknown: {line[at:]}")
    return tokens


class _Parser:
    """Parses one expression. An item of a list of conjunctions or disjunctions ends before the column of the list."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._column = 0

    def definition(self) -> tuple[str, list[str], Node]:
        name, parameters = self._take(), []
        if self._skip("("):
            parameters = self._names()
            self._expect(")")
        self._expect("==")
        body = self._expression()
        if self._at < len(self._tokens):
            raise SyntaxError(f"{name}: {self._tokens[self._at].text}")
        return name, parameters, body

    @property
    def _next(self) -> str:
        token = self._tokens[self._at] if self._at < len(self._tokens) else _END
        return token.text if token.column > self._column else ""

    def _take(self) -> str:
        text = self._next
        if not text:
            raise SyntaxError("the expression ends too early")
        self._at += 1
        return text

    def _skip(self, text: str) -> bool:
        found = self._next == text
        self._at += found
        return found

    def _expect(self, text: str) -> None:
        if not self._skip(text):
            raise SyntaxError(f"{text} expected, {self._next} found, after {self._tokens[: self._at][-5:]}")

    def _names(self) -> list[str]:
        names = [self._take()]
        while self._skip(","):
            names.append(self._take())
        return names

    def _many(self, end: str) -> list[Node]:
        found = []
        while not self._skip(end):
            found.append(self._expression())
            if self._next != end:
                self._expect(",")
        return found

    def _expression(self, least: int = 0) -> Node:
        left = self._postfix(self._prefix())
        while (binding := _INFIX.get(self._next, -1)) > least:
            operator = self._take()
            right = self._expression(binding if operator != "=>" else 0)
            left = (operator, left, right)
        return left

    def _postfix(self, left: Node) -> Node:
        while True:
            if self._skip("["):
                for argument in self._many("]"):
                    left = ("apply", left, argument)
            elif self._skip("."):
                left = ("apply", left, ("constant", self._take()))
            elif self._skip("'"):
                left = ("prime", left[1])
            else:
                return left

    def _prefix(self) -> Node:
        column = self._tokens[self._at].column if self._next else 0
        text = self._take()
        parse = {
            "~": self._not, "UNCHANGED": self._unchanged, "IF": self._if, "CASE": self._case, "LET": self._let,
            "CHOOSE": self._choose, "LAMBDA": self._lambda, "UNION": self._union, "<<": self._sequence,
            "{": self._set, "[": self._function, "(": self._parenthesis,
        }.get(text)  # fmt: skip
        if parse is not None:
            return parse()
        if text in ("/\\", "\\/"):
            return self._list(text, column)
        if text in ("\\A", "\\E"):
            return self._quantified(text)
        if text[0] == '"' or text.isdigit() or text in ("TRUE", "FALSE"):
            return ("constant", text[1:-1] if text[0] == '"' else text == "TRUE" if text.isalpha() else int(text))
        if text != "@" and not re.fullmatch(r"\w+", text):
            raise SyntaxError(f"unexpected: {text}")
        return ("name", text, *(self._many(")") if self._skip("(") else ()))

    def _list(self, bullet: str, column: int) -> Node:
        before, items = self._column, []
        while True:
            self._column = column
            items.append(self._expression())
            self._column = before
            token = self._tokens[self._at] if self._at < len(self._tokens) else _END
            if not (self._next == bullet and token.column == column):
                break
            self._at += 1
        found = items[-1]
        for item in reversed(items[:-1]):
            found = (bullet, item, found)
        return found

    def _not(self) -> Node:
        return ("~", self._expression(_NOT))

    def _unchanged(self) -> Node:
        return ("unchanged", self._expression(_NOT))

    def _parenthesis(self) -> Node:
        found = self._expression()
        self._expect(")")
        return found

    def _if(self) -> Node:
        test = self._expression()
        self._expect("THEN")
        then = self._expression()
        self._expect("ELSE")
        return ("if", test, then, self._expression())

    def _case(self) -> Node:
        test = self._expression()
        self._expect("->")
        then = self._expression()
        return ("if", test, then, self._case() if self._skip("[]") else ("none",))

    def _let(self) -> Node:
        bound = []
        while not self._skip("IN"):
            name = self._take()
            if name == "RECURSIVE":
                self._take()
                self._expect("(")
                self._names()
                self._expect(")")
                continue
            parameters = []
            if self._skip("("):
                parameters = self._names()
                self._expect(")")
            self._expect("==")
            body = self._expression()
            bound.append((name, ("operator", parameters, body) if parameters else body))
        return ("let", bound, self._expression())

    def _choose(self) -> Node:
        name = self._take()
        self._expect("\\in")
        among = self._expression()
        self._expect(":")
        return ("choose", name, among, self._expression())

    def _lambda(self) -> Node:
        name = self._take()
        self._expect(":")
        return ("lambda", name, self._expression())

    def _union(self) -> Node:
        return ("union", self._expression(_NOT))

    def _quantified(self, kind: str) -> Node:
        bound: list[tuple[str, Node]] = []
        while not self._skip(":"):
            names = self._names()
            self._expect("\\in")
            among = self._expression()
            bound += [(name, among) for name in names]
            self._skip(",")
        body = self._expression()
        for name, among in reversed(bound):
            body = (kind, name, among, body)
        return body

    def _sequence(self) -> Node:
        return ("sequence", self._many(">>"))

    def _set(self) -> Node:
        start = self._at
        if self._next != "}":
            name = self._take()
            if self._skip("\\in"):
                among = self._expression()
                self._expect(":")
                test = self._expression()
                self._expect("}")
                return ("filter", name, among, test)
            self._at = start
            first = self._expression()
            if self._skip(":"):
                name = self._take()
                self._expect("\\in")
                among = self._expression()
                self._expect("}")
                return ("image", name, among, first)
            self._at = start
        return ("set", self._many("}"))

    def _function(self) -> Node:
        start, name = self._at, self._take()
        if self._skip("\\in"):
            among = self._expression()
            self._expect("|->")
            body = self._expression()
            self._expect("]")
            return ("function", name, among, body)
        if self._skip("|->"):
            fields = [(name, self._expression())]
            while self._skip(","):
                name = self._take()
                self._expect("|->")
                fields.append((name, self._expression()))
            self._expect("]")
            return ("record", fields)
        self._at = start
        whole = self._expression()
        if self._skip("->"):
            values = self._expression()
            self._expect("]")
            return ("functions", whole, values)
        self._expect("EXCEPT")
        changes = [self._change()]
        while self._skip(","):
            changes.append(self._change())
        self._expect("]")
        return ("except", whole, changes)

    def _change(self) -> tuple[list[Node], Node]:
        self._expect("!")
        path: list[Node] = []
        while not self._skip("="):
            if self._skip("."):
                path.append(("constant", self._take()))
            else:
                self._expect("[")
                path.append(self._expression())
                self._expect("]")
        return path, self._expression()


# -- Evaluating -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Definition:
    parameters: list[str]
    body: Node
    value: _Value | None = None
    action: _Action | None = None
    is_action: bool | None = None


class _Later:
    """A LET definition: evaluated at its first use, because it may have no value where no guard holds."""

    __slots__ = ("_make", "_value")

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make: Callable[[], Any] | None = make

    def get(self) -> Any:
        if self._make is not None:
            self._value = self._make()
            self._make = None
        return self._value


class Module:
    """The definitions of some modules, with values for their constants.

    Example:
      module = Module([Path("Counter.tla")], {"Max": 3})
      [state] = module.states("Init")
      assert module.is_true("TypeOK", state)
      following = list(module.states("Next", state))
    """

    def __init__(self, files: Iterable[Path], constants: Mapping[str, Any]) -> None:
        self._constants = constants
        self._definitions: dict[str, _Definition] = {}
        self._variables: list[str] = []
        self._used: dict[str, list[str]] = {}
        self._last: dict[str, tuple[list[Any], bool]] = {}
        for file in files:
            self._read(file.read_text(encoding="utf-8"))

    def states(self, name: str, state: State | None = None) -> Iterator[State]:
        """Yield the states that an action leads to, or that satisfy an initial predicate (without ``state``).

        One state may be yielded several times.
        """
        if state is None:
            following_states = self._action(self._initial(("name", name)), frozenset())({}, {}, {})
        else:
            following_states = self._action_of(name)({}, state, {})
        for following in following_states:
            lacks = [variable for variable in self._variables if variable not in following]
            if lacks:
                raise ValueError(f"{name} leaves {', '.join(lacks)} open")
            yield following

    def is_true(self, name: str, state: State) -> bool:
        """Evaluate an invariant, unless its variables are the same objects as in the last evaluation."""
        if name not in self._used:
            self._used[name] = self._variables_of(("name", name), set())
        seen = [state[variable] for variable in self._used[name]]
        if name not in self._last or any(one is not two for one, two in zip(seen, self._last[name][0], strict=True)):
            self._last[name] = seen, bool(self._value_of(name)({}, state, {}))
        return self._last[name][1]

    def _variables_of(self, node: Any, visited: set[str]) -> list[str]:
        """Return the variables that an expression uses, also through definitions; perhaps more than once."""
        if isinstance(node, tuple) and node and node[0] == "name":
            if node[1] in self._variables:
                return [node[1]]
            if node[1] in self._definitions and node[1] not in visited:
                visited.add(node[1])
                node = (*node, self._definitions[node[1]].body)
        if not isinstance(node, tuple | list):
            return []
        return [variable for part in node for variable in self._variables_of(part, visited)]

    # -- Modules

    def _read(self, text: str) -> None:
        chunk: list[_Token] = []
        for token in [*_tokens(text), _Token("", 0)]:
            if token.column == 0 and chunk:
                self._add(chunk)
                chunk = []
            chunk.append(token)

    def _add(self, chunk: list[_Token]) -> None:
        first = chunk[0].text
        if first in ("VARIABLE", "VARIABLES"):
            self._variables += [token.text for token in chunk[1:] if token.text != ","]
        elif first not in ("EXTENDS", "CONSTANT", "CONSTANTS", "RECURSIVE") and not _is_temporal(chunk):
            name, parameters, body = _Parser([_Token(token.text, token.column + 1) for token in chunk]).definition()
            self._definitions[name] = _Definition(parameters, body)

    def _value_of(self, name: str) -> _Value:
        definition = self._definitions[name]
        if definition.value is None:
            later: list[_Value] = []
            definition.value = lambda scope, now, new: later[0](scope, now, new)  # A definition may use itself.
            later.append(self._value(definition.body, frozenset(definition.parameters)))
            definition.value = later[0]
        return definition.value

    def _action_of(self, name: str) -> _Action:
        definition = self._definitions[name]
        if definition.action is None:
            definition.action = self._action(definition.body, frozenset(definition.parameters))
        return definition.action

    def _acts(self, node: Any) -> bool:
        """Return whether an expression determines variables of the next state."""
        if isinstance(node, list):
            return any(self._acts(part) for part in node)
        if not isinstance(node, tuple) or not node:
            return False
        if node[0] == "unchanged" or (node[0] == "=" and node[1][0] == "prime"):
            return True
        if node[0] == "name" and node[1] in self._definitions:
            definition = self._definitions[node[1]]
            if definition.is_action is None:
                definition.is_action = False  # For a definition that uses itself.
                definition.is_action = self._acts(definition.body)
            return definition.is_action
        return any(self._acts(part) for part in node[1:])

    def _initial(self, node: Node) -> Node:
        """Return an initial predicate as an action, which gives each variable its first value."""
        if node[0] == "/\\":
            return ("/\\", self._initial(node[1]), self._initial(node[2]))
        if node[0] == "name" and node[1] in self._definitions:
            return self._initial(self._definitions[node[1]].body)
        if node[0] == "=" and node[1][0] == "name" and node[1][1] in self._variables:
            return ("=", ("prime", node[1][1]), node[2])
        return node

    # -- Actions

    def _action(self, node: Node, local: frozenset[str]) -> _Action:
        kind = node[0]
        if kind == "/\\":
            return _and_then(self._action(node[1], local), self._action(node[2], local))
        if kind == "=" and node[1][0] == "prime":
            return self._assignment(node[1][1], self._value(node[2], local))
        if not self._acts(node):
            return _guard(self._value(node, local))
        if kind == "\\/":
            return _or_else(self._action(node[1], local), self._action(node[2], local))
        if kind == "\\E":
            return _some(node[1], self._value(node[2], local), self._action(node[3], local | {node[1]}))
        if kind == "if":
            test = self._value(node[1], local)
            then, otherwise = self._action(node[2], local), self._action(node[3], local)
            return lambda scope, now, new: (then if test(scope, now, new) else otherwise)(scope, now, new)
        if kind == "let":
            bind, inner = self._bound(node[1], local)
            body = self._action(node[2], inner)
            return lambda scope, now, new: body(bind(scope, now, new), now, new)
        if kind == "unchanged":
            kept = [self._assignment(name, _variable(name)) for name in self._named(node[1])]
            found = kept[0]
            for other in kept[1:]:
                found = _and_then(found, other)
            return found
        if kind == "name":
            return self._called_action(node, local)
        raise SyntaxError(f"no action: {node}")

    def _assignment(self, name: str, value: _Value) -> _Action:
        def act(scope: _Scope, now: State, new: State) -> Iterator[State]:
            found = value(scope, now, new)
            if name not in new:
                yield {**new, name: found}
            elif new[name] == found:
                yield new

        return act

    def _named(self, node: Node) -> list[str]:
        """Return the variables of UNCHANGED."""
        if node[0] == "sequence":
            return [name for part in node[1] for name in self._named(part)]
        name: str = node[1]
        return [name] if name in self._variables else self._named(self._definitions[name].body)

    def _called_action(self, node: Node, local: frozenset[str]) -> _Action:
        name, values = node[1], [self._value(argument, local) for argument in node[2:]]
        parameters = self._definitions[name].parameters

        def act(scope: _Scope, now: State, new: State) -> Iterator[State]:
            arguments = {key: value(scope, now, new) for key, value in zip(parameters, values, strict=True)}
            return self._action_of(name)(arguments, now, new)

        return act

    # -- Values

    def _value(self, node: Node, local: frozenset[str]) -> _Value:
        kind = node[0]
        if kind in _OPERATORS:
            left, right, operate = self._value(node[1], local), self._value(node[2], local), _OPERATORS[kind]
            return lambda scope, now, new: operate(left(scope, now, new), right(scope, now, new))
        make: Callable[..., _Value] = getattr(self, f"_value_{_NAMES.get(kind, kind)}")
        return make(*node[1:], local=local)

    def _value_constant(self, value: Any, local: frozenset[str]) -> _Value:
        return lambda scope, now, new: value

    def _value_none(self, local: frozenset[str]) -> _Value:
        def fail(scope: _Scope, now: State, new: State) -> Any:
            raise ValueError("no CASE fits")

        return fail

    def _value_prime(self, name: str, local: frozenset[str]) -> _Value:
        return lambda scope, now, new: new[name]

    def _value_name(self, name: str, *arguments: Node, local: frozenset[str]) -> _Value:
        values = [self._value(argument, local) for argument in arguments]
        if name in local and arguments:
            return lambda scope, now, new: scope[name].get()(*[value(scope, now, new) for value in values])
        if name in local or name == "@":
            return lambda scope, now, new: found.get() if isinstance(found := scope[name], _Later) else found
        if name in self._variables:
            return _variable(name)
        if name in self._constants:
            constant = self._constants[name]
            return lambda scope, now, new: constant
        if name in _FUNCTIONS:
            function = _FUNCTIONS[name]
            return lambda scope, now, new: function(*[value(scope, now, new) for value in values])
        definition = self._definitions[name]
        parameters = definition.parameters
        if self._is_constant(("name", name)):
            constant = self._value_of(name)({}, {}, {})
            return lambda scope, now, new: constant
        self._value_of(name)

        def call(scope: _Scope, now: State, new: State) -> Any:
            found = {key: value(scope, now, new) for key, value in zip(parameters, values, strict=True)}
            assert definition.value is not None, "it was compiled above"
            return definition.value(found, now, new)

        return call

    def _is_constant(self, node: Any) -> bool:
        """Return whether an expression is made of constants; False also if that is hard to see."""
        if isinstance(node, tuple) and node and node[0] == "name" and node[1] not in self._constants:
            definition = self._definitions.get(node[1])
            return definition is not None and not definition.parameters and self._is_constant(definition.body)
        if isinstance(node, tuple | list):
            return all(self._is_constant(part) for part in node)
        return node != "prime"

    def _value_and(self, left: Node, right: Node, local: frozenset[str]) -> _Value:
        first, second = self._value(left, local), self._value(right, local)
        return lambda scope, now, new: first(scope, now, new) and second(scope, now, new)

    def _value_or(self, left: Node, right: Node, local: frozenset[str]) -> _Value:
        first, second = self._value(left, local), self._value(right, local)
        return lambda scope, now, new: first(scope, now, new) or second(scope, now, new)

    def _value_implies(self, left: Node, right: Node, local: frozenset[str]) -> _Value:
        first, second = self._value(left, local), self._value(right, local)
        return lambda scope, now, new: not first(scope, now, new) or second(scope, now, new)

    def _value_not(self, part: Node, local: frozenset[str]) -> _Value:
        value = self._value(part, local)
        return lambda scope, now, new: not value(scope, now, new)

    def _value_if(self, test: Node, then: Node, otherwise: Node, local: frozenset[str]) -> _Value:
        first, second, third = (self._value(part, local) for part in (test, then, otherwise))
        return lambda scope, now, new: (second if first(scope, now, new) else third)(scope, now, new)

    def _bound(
        self, bound: list[tuple[str, Node]], local: frozenset[str]
    ) -> tuple[Callable[[_Scope, State, State], _Scope], frozenset[str]]:
        """Return a function that adds LET definitions to a scope, and the names in it."""
        compiled = []
        for name, node in bound:
            # Only an operator may use itself; without RECURSIVE its own name in its body is one of outside.
            compiled.append((name, self._value(node, local | {name} if node[0] == "operator" else local)))
            local |= {name}

        def bind(scope: _Scope, now: State, new: State) -> _Scope:
            inner = dict(scope)
            for name, value in compiled:
                inner[name] = _Later(lambda value=value: value(inner, now, new))  # type: ignore[misc]
            return inner

        return bind, local

    def _value_let(self, bound: list[tuple[str, Node]], body: Node, local: frozenset[str]) -> _Value:
        bind, inner = self._bound(bound, local)
        value = self._value(body, inner)
        return lambda scope, now, new: value(bind(scope, now, new), now, new)

    def _value_lambda(self, name: str, body: Node, local: frozenset[str]) -> _Value:
        value = self._value(body, local | {name})
        return lambda scope, now, new: lambda argument: value({**scope, name: argument}, now, new)

    def _value_operator(self, parameters: list[str], body: Node, local: frozenset[str]) -> _Value:
        value = self._value(body, local | set(parameters))

        def make(scope: _Scope, now: State, new: State) -> Any:
            return lambda *arguments: value({**scope, **dict(zip(parameters, arguments, strict=True))}, now, new)

        return make

    def _value_union(self, part: Node, local: frozenset[str]) -> _Value:
        sets = self._value(part, local)
        return lambda scope, now, new: frozenset(member for each in sets(scope, now, new) for member in each)

    def _value_functions(self, among: Node, values: Node, local: frozenset[str]) -> _Value:
        domain, image = self._value(among, local), self._value(values, local)

        def value(scope: _Scope, now: State, new: State) -> Iterator[Any]:
            keys = list(domain(scope, now, new))
            for chosen in product(list(image(scope, now, new)), repeat=len(keys)):
                yield _function(dict(zip(keys, chosen, strict=True)))

        return value

    def _value_image(self, name: str, among: Node, body: Node, local: frozenset[str]) -> _Value:
        each = self._each(name, among, body, local)
        return lambda scope, now, new: frozenset(value for _, value in each(scope, now, new))

    def _each(
        self, name: str, among: Node, body: Node, local: frozenset[str]
    ) -> Callable[[_Scope, State, State], Iterator[tuple[Any, Any]]]:
        """Return a function that yields each element of a set, and the value of ``body`` for it."""
        members, value = self._value(among, local), self._value(body, local | {name})

        def each(scope: _Scope, now: State, new: State) -> Iterator[tuple[Any, Any]]:
            for member in members(scope, now, new):
                yield member, value({**scope, name: member}, now, new)

        return each

    def _value_all(self, name: str, among: Node, body: Node, local: frozenset[str]) -> _Value:
        each = self._each(name, among, body, local)
        return lambda scope, now, new: all(value for _, value in each(scope, now, new))

    def _value_some(self, name: str, among: Node, body: Node, local: frozenset[str]) -> _Value:
        each = self._each(name, among, body, local)
        return lambda scope, now, new: any(value for _, value in each(scope, now, new))

    def _value_choose(self, name: str, among: Node, body: Node, local: frozenset[str]) -> _Value:
        each = self._each(name, among, body, local)
        return lambda scope, now, new: next(member for member, value in each(scope, now, new) if value)

    def _value_filter(self, name: str, among: Node, body: Node, local: frozenset[str]) -> _Value:
        each = self._each(name, among, body, local)
        return lambda scope, now, new: frozenset(member for member, value in each(scope, now, new) if value)

    def _value_function(self, name: str, among: Node, body: Node, local: frozenset[str]) -> _Value:
        each = self._each(name, among, body, local)

        return lambda scope, now, new: _function(dict(each(scope, now, new)))

    def _value_sequence(self, parts: list[Node], local: frozenset[str]) -> _Value:
        values = [self._value(part, local) for part in parts]
        return lambda scope, now, new: tuple([value(scope, now, new) for value in values])

    def _value_set(self, parts: list[Node], local: frozenset[str]) -> _Value:
        values = [self._value(part, local) for part in parts]
        return lambda scope, now, new: frozenset([value(scope, now, new) for value in values])

    def _value_record(self, fields: list[tuple[str, Node]], local: frozenset[str]) -> _Value:
        values = [(name, self._value(node, local)) for name, node in fields]
        return lambda scope, now, new: {name: value(scope, now, new) for name, value in values}

    def _value_except(self, whole: Node, changes: list[tuple[list[Node], Node]], local: frozenset[str]) -> _Value:
        base = self._value(whole, local)
        compiled = [([self._value(key, local) for key in path], self._value(new, local)) for path, new in changes]

        def value(scope: _Scope, now: State, new: State) -> Any:
            found = base(scope, now, new)
            for path, change in compiled:
                keys = [key(scope, now, new) for key in path]
                found = _changed(found, keys, lambda old, change=change: change({**scope, "@": old}, now, new))
            return found

        return value


def _function(found: dict[Any, Any]) -> Any:
    return tuple(found.values()) if list(found) == list(range(1, len(found) + 1)) else found


def _is_equal(left: Any, right: Any) -> bool:
    if isinstance(left, range) or isinstance(right, range):
        return frozenset(left) == frozenset(right)
    return bool(left == right)


def _is_temporal(chunk: list[_Token]) -> bool:
    return any(one.text == "[]" and two.text == "[" for one, two in pairwise(chunk))


def _variable(name: str) -> _Value:
    return lambda scope, now, new: now[name]


def _and_then(first: _Action, second: _Action) -> _Action:
    def act(scope: _Scope, now: State, new: State) -> Iterator[State]:
        for between in first(scope, now, new):
            yield from second(scope, now, between)

    return act


def _or_else(first: _Action, second: _Action) -> _Action:
    def act(scope: _Scope, now: State, new: State) -> Iterator[State]:
        yield from first(scope, now, new)
        yield from second(scope, now, new)

    return act


def _some(name: str, members: _Value, body: _Action) -> _Action:
    def act(scope: _Scope, now: State, new: State) -> Iterator[State]:
        for member in members(scope, now, new):
            yield from body({**scope, name: member}, now, new)

    return act


def _guard(test: _Value) -> _Action:
    def act(scope: _Scope, now: State, new: State) -> Iterator[State]:
        if test(scope, now, new):
            yield new

    return act


def _changed(whole: Any, keys: list[Any], change: Callable[[Any], Any]) -> Any:
    if not keys:
        return change(whole)
    key, *rest = keys
    if isinstance(whole, tuple):
        return (*whole[: key - 1], _changed(whole[key - 1], rest, change), *whole[key:])
    return {**whole, key: _changed(whole[key], rest, change)}


def _apply(function: Any, argument: Any) -> Any:
    if isinstance(function, tuple):
        if not 1 <= argument <= len(function):
            raise IndexError(f"{argument} is outside of the {len(function)} elements of a sequence")
        return function[argument - 1]
    return function[argument]


def _part(sequence: tuple[Any, ...], first: int, last: int) -> tuple[Any, ...]:
    if last >= first and (first < 1 or last > len(sequence)):
        raise IndexError(f"{first} to {last} are outside of the {len(sequence)} elements of a sequence")
    return sequence[first - 1 : last] if last >= first else ()


_NAMES = {"/\\": "and", "\\/": "or", "=>": "implies", "~": "not", "\\A": "all", "\\E": "some"}
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": _is_equal,
    "#": lambda left, right: not _is_equal(left, right),
    "<": lambda left, right: left < right,
    ">": lambda left, right: left > right,
    "<=": lambda left, right: left <= right,
    ">=": lambda left, right: left >= right,
    "\\in": lambda left, right: left in right,
    "\\notin": lambda left, right: left not in right,
    "\\cup": lambda left, right: frozenset(left) | frozenset(right),
    "\\cap": lambda left, right: frozenset(left) & frozenset(right),
    "\\": lambda left, right: frozenset(left) - frozenset(right),
    "..": lambda left, right: range(left, right + 1),
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "\\o": lambda left, right: left + right,
    "apply": _apply,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Len": len,
    "Head": lambda sequence: sequence[0],
    "Tail": lambda sequence: sequence[1:],
    "Append": lambda sequence, last: (*sequence, last),
    "SubSeq": _part,
    "SelectSeq": lambda sequence, test: tuple(item for item in sequence if test(item)),
    "Cardinality": len,
}
