"""Doubts: names whose values the reader of statements cannot know, because it does not follow all that changes them.

The data flow follows the statements of a function in their order. It does not follow a change that takes place
elsewhere: in another function, through another name of the same list, or by a text that names a variable. A sink is
called safe only if none of the names that its text is built from can change like that. Names are compared by their
spelling in the whole file, so that a doubt is raised too often rather than too rarely.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

from codeloupe.analysers.dataflow.knowledge import is_textless_annotation

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_LONGEST_ANNOTATION = 80
_Scope = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_DISPLAYS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.SetComp, ast.DictComp)
_CONTAINER_TYPES = frozenset({"list", "dict", "set", "sorted", "bytearray"})
# Builtin functions that neither change nor return a container that they are given.
_READING_FUNCTIONS = frozenset(
    {"len", "sorted", "list", "tuple", "set", "dict", "enumerate", "zip", "str", "repr", "min", "max", "any", "all"}
)
_READING_METHODS = frozenset({"get", "items", "keys", "values", "copy", "index", "count"})
# Methods whose effect on a variable of a function is followed.
_FOLLOWED_METHODS = frozenset({"append", "extend", "insert", "update", "add", "pop", "sort", "reverse", "remove"})
# Functions and attributes that bind names which are given as text.
_BINDS_BY_TEXT = frozenset({"globals", "vars", "setattr", "exec"})
_PLAIN_DECORATORS = frozenset({"staticmethod", "classmethod"})


class Doubts:
    """The names of one module that may have values which are not followed; those of attributes begin with a dot."""

    def __init__(self, tree: ast.Module) -> None:
        self._doubted: set[str] = set()
        # The statements that use a name, and the names that a statement binds.
        self._users: dict[str, list[int]] = defaultdict(list)
        self._bound_by: list[set[str]] = []
        self._containers: set[str] = set()
        self._functions: Counter[str] = Counter()
        self._fields: set[str] = set()
        self._captured: set[str] = set()
        self._stored: Counter[str] = Counter()
        self._parents: dict[ast.AST, ast.AST] = {}
        for parent in ast.walk(tree):
            for child in ast.iter_child_nodes(parent):
                self._parents[child] = parent
        nodes = [tree, *self._parents]
        module_names = Counter(_bound_in(tree.body))
        for node in nodes:
            self._read(node)
        shared = module_names.keys() | self._captured
        for node in nodes:
            self._read_container(node, shared)
        self._doubted.update(name for name, count in module_names.items() if count > 1)
        self._doubted.update(name for name, count in self._functions.items() if count > 1)
        for name, count in self._stored.items():
            if count > 1 or name in self._fields or name in self._functions:
                self._doubted.add(name)
        if any(_binds_by_text(node) for node in nodes):
            self._doubted.update(module_names, self._fields)
        self._spread()

    def about(self, expressions: Iterable[ast.AST]) -> bool:
        """Return whether a name that these expressions are built from, directly or through others, is in doubt."""
        return any(not self._doubted.isdisjoint(_names_in(expression)) for expression in expressions)

    def _spread(self) -> None:
        """Doubt every name that is built from a doubted one."""
        waiting = list(self._doubted)
        while waiting:
            for statement in self._users.pop(waiting.pop(), ()):
                reached = self._bound_by[statement] - self._doubted
                self._doubted |= reached
                waiting += reached
                self._bound_by[statement] = set()

    def _note_use(self, names: set[str], used: set[str]) -> None:
        """Note that a statement builds names from other names."""
        for name in used:
            self._users[name].append(len(self._bound_by))
        self._bound_by.append(names)

    def _read(self, node: ast.AST) -> None:
        """Note which names a statement builds from which others, and the names that it makes doubtful."""
        match node:
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                self._doubted.update(names)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._read_function(node)
            case ast.ClassDef():
                self._read_class(node)
            case ast.Attribute(attr=name, ctx=ast.Store() | ast.Del()):
                self._stored[f".{name}"] += 1
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._read_binding(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._read_binding(target, value)
            case ast.AugAssign() | ast.NamedExpr():
                self._read_binding(node.target, node.value)
            case ast.For() | ast.AsyncFor() | ast.comprehension():
                self._read_binding(node.target, node.iter)

    def _read_binding(self, target: ast.expr, value: ast.expr) -> None:
        self._note_use(_names_in(target), _names_in(value))
        if isinstance(target, ast.Name) and _makes_container(value):
            self._containers.add(target.id)
            if sum(_is_container(part) for part in ast.walk(value)) > 1:
                # A container inside of another one has no name by which its changes can be found.
                self._doubted.add(target.id)

    def _read_function(self, function: _Function) -> None:
        is_method = isinstance(self._parents[function], ast.ClassDef)
        name = f".{function.name}" if is_method else function.name
        self._functions[name] += 1
        if any(not _is_plain(decorator) for decorator in function.decorator_list):
            self._doubted.add(name)
        bound = Counter(_bound_in(function.body))
        arguments = function.args
        bound.update(argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs))
        in_loops = set(_bound_in_loops(function))
        for node in ast.walk(function):
            if isinstance(node, ast.Return) and node.value is not None:
                self._note_use({name}, _names_in(node.value))
            if node is not function and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                # An inner function runs at another time than the statements around it.
                captured = _names_in(node) & bound.keys()
                self._captured |= captured
                self._doubted.update(each for each in captured if bound[each] > 1 or each in in_loops)

    def _read_class(self, kind: ast.ClassDef) -> None:
        bound = Counter(_bound_in(kind.body))
        for item in kind.body:
            if isinstance(item, ast.Assign):
                targets = item.targets
            elif isinstance(item, ast.AnnAssign):
                targets = [item.target]
            else:
                continue
            for target in targets:
                if not isinstance(target, ast.Name):
                    continue
                name = f".{target.id}"
                self._fields.add(name)
                if item.value is not None:
                    self._note_use({name}, _names_in(item.value))
                has_call = any(isinstance(part, ast.Call) for part in ast.walk(item))
                if bound[target.id] > 1 or has_call or _is_field(item):
                    self._doubted.add(name)

    def _read_container(self, node: ast.AST, shared: AbstractSet[str]) -> None:
        """Doubt a list or dictionary that is used in another way than to read it or to change it where it was made."""
        if not isinstance(node, ast.Name) or node.id not in self._containers or not isinstance(node.ctx, ast.Load):
            return
        is_shared = node.id in shared
        parent = self._parents[node]
        match parent:
            case ast.Attribute(attr=method):
                call = self._parents[parent]
                is_called = isinstance(call, ast.Call) and call.func is parent
                is_known = method in _READING_METHODS or (not is_shared and method in _FOLLOWED_METHODS)
                is_read = is_called and is_known
            case ast.Subscript():
                is_read = parent.value is not node or not is_shared or isinstance(parent.ctx, ast.Load)
            case ast.Call(func=ast.Attribute(attr="join" | "format")):
                is_read = True
            case ast.Call(func=ast.Name(id=function)):
                is_read = function in _READING_FUNCTIONS
            case ast.Return():
                is_read = not is_shared
            case _:
                readers = (ast.Compare, ast.For, ast.AsyncFor, ast.comprehension, ast.BinOp, ast.FormattedValue)
                is_read = isinstance(parent, (*readers, ast.Starred, ast.If, ast.While, ast.AugAssign))
        if not is_read:
            self._doubted.add(node.id)


def _names_in(node: ast.AST) -> set[str]:
    """Return the names of variables and functions in a node, and those of attributes with a dot before them."""
    names: set[str] = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            names.add(part.id)
        elif isinstance(part, ast.Attribute):
            names.add(f".{part.attr}")
    return names


def bound_names(statements: Iterable[ast.AST]) -> set[str]:
    """Return the names that statements bind in their own scope."""
    return set(_bound_in(statements))


def _bound_in(statements: Iterable[ast.AST]) -> Iterator[str]:
    """Yield each name that statements bind in their own scope, as often as they bind it."""
    waiting = list(statements)
    while waiting:
        node = waiting.pop()
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.ExceptHandler(name=str(name)):
                yield name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                yield name
            case ast.alias():
                yield (node.asname or node.name).partition(".")[0]
        if not isinstance(node, _Scope):
            waiting += ast.iter_child_nodes(node)


def _bound_in_loops(function: _Function) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            yield from _bound_in(node.body)


def _makes_container(value: ast.expr) -> bool:
    """Return whether an expression may make a list, a dictionary or an object of a class of this module."""
    # A sum may be long, so it is read without recursion.
    while isinstance(value, ast.BinOp):
        if _is_container(value.right):
            return True
        value = value.left
    return _is_container(value)


def _is_container(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=name)):
            return name in _CONTAINER_TYPES or name[:1].isupper()
    return isinstance(node, _DISPLAYS)


def _is_field(item: ast.Assign | ast.AnnAssign) -> bool:
    """Return whether a statement of a class gives the default of a field, whose value each object chooses.

    An annotation such as `int` is trusted, as it is for parameters: whichever number it is, it contains no text.
    """
    if isinstance(item, ast.Assign):
        return False
    if is_textless_annotation(ast.unparse(item.annotation)[:_LONGEST_ANNOTATION]):
        return False
    names = _names_in(item.annotation)
    return names.isdisjoint({"ClassVar", ".ClassVar", "Final", ".Final"})


def _is_plain(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Name) and decorator.id in _PLAIN_DECORATORS


def _binds_by_text(node: ast.AST) -> bool:
    """Return whether a node may bind any name of the module, or any attribute."""
    match node:
        case ast.Call(func=ast.Name(id=name)):
            return name in _BINDS_BY_TEXT
        case ast.Attribute(attr="__dict__" | "modules"):
            return True
        case ast.ImportFrom(names=[ast.alias(name="*")]):
            return True
    return False
