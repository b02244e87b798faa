"""Reads calls: which of them let outside text in, hand it on, or make it harmless."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from codeloupe.analysers.dataflow.expressions import ENVIRONMENT, REQUEST, part
from codeloupe.analysers.dataflow.knowledge import (
    CLEANERS,
    ESCAPERS,
    NETWORK_METHODS,
    OUTSIDE_METHODS,
    PATH_METHODS,
    PROPAGATORS,
    READS_REQUEST,
    REQUEST_OBJECTS,
    STOPS_BY_NAME,
)
from codeloupe.analysers.dataflow.meanings import ALL_TEXT, Harm, words
from codeloupe.analysers.dataflow.sinks import UNSAFE_PARSER, Arguments, Sinks
from codeloupe.analysers.dataflow.syntax import F_STRING
from codeloupe.analysers.dataflow.values import (
    HARMLESS,
    NOTHING_KNOWN,
    UNKNOWN,
    UPLOAD,
    ClassNotes,
    Flow,
    Origin,
    ParameterSink,
    Summary,
    Value,
    concatenate,
    constant,
    element,
    filled_text,
    join,
    mix,
    number_of,
    outside,
)

_NO_TEXT_METHODS = words(
    "isdigit isalpha isalnum isnumeric isdecimal isidentifier startswith endswith count find index rfind rindex "
    "exists is_file is_dir keys_count hexdigest digest __len__ is_relative_to"
)
_ARCHIVES = frozenset({"zipfile.ZipFile()", "tarfile.open()"})
_MEMBERS = frozenset({"namelist", "infolist", "getnames", "getmembers"})
_WITHOUT_CHANCE = frozenset({"seed", "getstate", "setstate", "SystemRandom", "Random", "shuffle"})
_MOST_HELPERS = 6


class Calls(Sinks):
    """Values of calls. `depth` counts the functions of this module that are being read."""

    depth: int = 0

    def call(self, node: ast.Call) -> Value:
        """The value of a call; what outside text does in it is noted."""
        arguments = Arguments(
            [self.value(argument) for argument in node.args],
            {key.arg or "**": self.value(key.value) for key in node.keywords},
        )
        for name, held in arguments.named.items():
            self.named_secret(name, held, node.lineno)
        receiver, name, path = self._callee(node)
        self.look(node, receiver, name, path, arguments)
        if path == F_STRING:
            result = concatenate(arguments.positional or [constant("")], node.lineno)
            self.note_query(node, result)
            return result
        return self._result(node, receiver, name, path, arguments)

    def _callee(self, node: ast.Call) -> tuple[Value | None, str, str]:
        """The object whose method is called, the last part of the name, and the full name."""
        if isinstance(node.func, ast.Attribute):
            receiver = self.value(node.func.value)
            is_request = receiver.path == REQUEST or receiver.path in REQUEST_OBJECTS
            own = isinstance(node.func.value, ast.Name) and node.func.value.id == "self"
            path = "" if is_request or receiver.origins or own else self.attribute(node.func, receiver).path
            return receiver, node.func.attr, path or f".{node.func.attr}"
        path = self.value(node.func).path
        return None, path.rpartition(".")[2], path

    # What comes out.

    def _result(self, node: ast.Call, receiver: Value | None, name: str, path: str, arguments: Arguments) -> Value:
        if path.startswith(("random.", "numpy.random.")) and name not in _WITHOUT_CHANCE and "SystemRandom" not in path:
            return Value(
                origins=(Origin(node.lineno, path, "random"),), safe=ALL_TEXT, lines=(node.lineno,), harmless=True
            )
        helper = self._helper(node, receiver, arguments)
        if helper is not None:
            return helper
        if path in CLEANERS:
            return number_of(mix(arguments.all()))
        safe = next((safe for pattern, safe in ESCAPERS if pattern.fullmatch(path.lstrip("."))), None)
        if safe is not None:
            handed = mix((*arguments.all(), receiver or HARMLESS), node.lineno)
            return handed.but(safe=handed.safe | safe, proven=handed.proven | safe)
        if receiver is not None:
            return self._method(node, receiver, name, path, arguments)
        if path.endswith("XMLParser") and self._resolves_entities(arguments):
            return Value(path=UNSAFE_PARSER)
        return self._handed_on(node, name, path, arguments)

    @staticmethod
    def _resolves_entities(arguments: Arguments) -> bool:
        named = arguments.named
        return any(name in named and named[name].const is flag for name, flag in
                   (("resolve_entities", True), ("load_dtd", True), ("no_network", False)))  # fmt: skip

    def _method(  # noqa: C901, PLR0911, PLR0912 - one answer for each kind of object
        self, node: ast.Call, receiver: Value, name: str, path: str, arguments: Arguments
    ) -> Value:
        if receiver.path == REQUEST or receiver.path in REQUEST_OBJECTS:
            reads = READS_REQUEST.search(name) is not None and bool(node.args)
            return outside(node.lineno, f"request.{name}()") if reads else self._of_request(node, receiver)
        if receiver.path == ENVIRONMENT and name == "get" and arguments.positional:
            return self.environment(arguments.positional[0], node.lineno)
        if "type" in arguments.named and arguments.named["type"].path in CLEANERS:
            return number_of(receiver)
        if name in NETWORK_METHODS or (name in OUTSIDE_METHODS and self.owner is not None and self.owner.kind):
            return outside(node.lineno, f"{name}()")
        if path.endswith("XMLParser") and self._resolves_entities(arguments):
            return Value(path=UNSAFE_PARSER)
        kept = self._container(node, receiver, name, arguments)
        if kept is not None:
            return kept
        if receiver.path == UPLOAD and name in ("get", "getlist", "values"):
            return receiver
        if receiver.path in _ARCHIVES and receiver.origins and name in _MEMBERS:
            return outside(node.lineno, f"{name}() of an archive")
        if name in _NO_TEXT_METHODS:
            return number_of(receiver).but(path=f"{path}()" if path.startswith("hmac.") else "")
        if name == "join" and isinstance(receiver.const, str):
            return mix((receiver, *map(element, arguments.all())), node.lineno).but(path="")
        if name == "format" and (receiver.is_known or receiver.pieces):
            result = filled_text([receiver, *arguments.all()], node.lineno).but(
                prefix=receiver.prefix.partition("{")[0]
            )
            self.note_query(node, result)
            return result
        if name == "replace" and _is_quote(arguments):
            return receiver.but(safe=receiver.safe | {Harm.XPATH}, const=UNKNOWN, items=None)
        if receiver.path.startswith("pathlib."):
            return self._of_path(node, receiver, name, arguments)
        if receiver.origins:
            return mix((receiver, *arguments.positional), node.lineno).but(
                pieces=receiver.pieces, prefix=receiver.prefix if name in ("encode", "strip") else ""
            )
        if receiver.is_known or receiver.harmless:
            return mix((receiver, *arguments.all()), node.lineno)
        return self._handed_on(node, name, path, arguments)

    def _of_path(self, node: ast.Call, receiver: Value, name: str, arguments: Arguments) -> Value:
        """Methods of paths; one that is relative to a directory, or there is an error, is inside of it."""
        if name in PATH_METHODS:
            return NOTHING_KNOWN
        result = mix((receiver, *arguments.positional), node.lineno).but(path=receiver.path, pieces=receiver.pieces)
        if name == "relative_to" and isinstance(node.func, ast.Attribute):
            self.bind(node.func.value, receiver.but(safe=receiver.safe | {Harm.PATH}))
        return result

    def _of_request(self, node: ast.Call, receiver: Value) -> Value:
        return self.attribute(node.func, receiver) if isinstance(node.func, ast.Attribute) else NOTHING_KNOWN

    def _container(self, node: ast.Call, receiver: Value, name: str, arguments: Arguments) -> Value | None:
        """Methods of dictionaries, lists and stores with two keys, such as those of configparser."""
        given = arguments.positional
        if isinstance(receiver.items, dict) and (found := _of_dictionary(receiver, receiver.items, name, given)):
            return found
        target = node.func.value if isinstance(node.func, ast.Attribute) else None
        if not isinstance(target, ast.Name):
            return None
        if isinstance(receiver.items, list):
            return self._list_method(target, receiver, name, given)
        if name == "set" and len(given) == 3 and given[0].is_known and given[1].is_known:
            items = {**(receiver.items or {}), (given[0].const, given[1].const): given[2]}
            self.bind(target, mix(items.values()).but(items=items, path=receiver.path))
            return HARMLESS
        if name in ("append", "add", "extend", "update", "insert", "write") and any(value.origins for value in given):
            self.bind(target, mix((receiver, *map(element, given)), node.lineno).but(path=receiver.path))
            return HARMLESS
        return None

    def _list_method(self, target: ast.Name, receiver: Value, name: str, given: Sequence[Value]) -> Value | None:
        items = list(receiver.items or ())
        result = HARMLESS
        position = given[0].const if given and type(given[0].const) is int else -1
        if name == "append" and given:
            items.append(given[0])
        elif name == "insert" and len(given) == 2 and type(given[0].const) is int:
            items.insert(position, given[1])
        elif name == "extend" and given and isinstance(given[0].items, list):
            items.extend(given[0].items)
        elif name == "pop" and items and -len(items) <= position < len(items):
            result = items.pop(position)
        elif name in ("extend", "sort", "reverse", "remove", "insert"):
            self.bind(target, mix((receiver, *map(element, given))).but(items=None))
            return HARMLESS
        else:
            return None
        self.bind(target, mix(items).but(items=items) if items else HARMLESS.but(items=items))
        return result

    def _handed_on(self, node: ast.Call, name: str, path: str, arguments: Arguments) -> Value:
        """The result of a function that is not in this module."""
        given = arguments.all()
        if any(value.path == REQUEST or value.path in REQUEST_OBJECTS for value in given):
            if not READS_REQUEST.search(name):
                return NOTHING_KNOWN
            is_wrapper = len(given) == 1
            return Value(path=REQUEST) if is_wrapper else outside(node.lineno, f"{name}(request)")
        mixed = mix(given, node.lineno)
        if PROPAGATORS.fullmatch(path):
            return _propagated(path, mixed, arguments)
        if mixed.origins and not STOPS_BY_NAME.match(name) and not name[:1].isupper():
            return mixed.but(path="", pieces="", prefix="")
        is_class = name[:1].isupper() or name in ("make_parser", "session")
        if f"{path}()" in _ARCHIVES:
            return mixed.but(path=f"{path}()")
        return Value(path=f"{path}()") if path and (is_class or path.count(".") <= 2) else NOTHING_KNOWN

    # Functions of this module.

    def _helper(self, node: ast.Call, receiver: Value | None, arguments: Arguments) -> Value | None:
        function = owner = None
        skip = 0
        if isinstance(node.func, ast.Name):
            function = self.value(node.func).function
            if isinstance(function, ClassNotes):
                return self._made(node, function, arguments).but(path=f"{node.func.id}()", function=function)
        elif isinstance(node.func, ast.Attribute) and receiver is not None:
            is_self = isinstance(node.func.value, ast.Name) and node.func.value.id in ("self", "cls")
            owner = self.owner if is_self else receiver.function
            if isinstance(owner, ClassNotes):
                function = owner.methods.get(node.func.attr)
                skip = 0 if function is None or _is_static(function) else 1
        if function is None or self.depth >= _MOST_HELPERS:
            return None
        summary = self.summary(function, owner if skip else None)
        return None if summary is None else self._applied(node, function, skip, summary, arguments)

    def _made(self, node: ast.Call, kind: ClassNotes, arguments: Arguments) -> Value:
        """A new object, with what it keeps of the values that it was given."""
        made = kind.methods.get("__init__")
        summary = None if made is None else self.summary(made, kind)
        if made is None or summary is None:
            fields = [item.target.id for item in kind.node.body if isinstance(item, ast.AnnAssign)
                      and isinstance(item.target, ast.Name)]  # fmt: skip
            return Value(items={**dict(zip(fields, arguments.positional, strict=False)), **arguments.named})
        self._applied(node, made, 1, summary, arguments)
        names = [argument.arg for argument in (*made.args.posonlyargs, *made.args.args)][1:]
        given = {**dict(zip(names, arguments.positional, strict=False)), **arguments.named}
        items = {name: _filled(value, given, node.lineno) for name, value in kind.made.items()}
        for name, value in items.items():
            if any(origin.kind == "outside" for origin in value.origins):
                kind.attributes[name] = join([kind.attributes.get(name, value), value])
        return Value(items=items)

    def summary(self, function: Any, owner: ClassNotes | None) -> Summary | None:
        """What a call of a function of this module does, or None while it is being found out."""
        raise NotImplementedError

    def _applied(self, node: ast.Call, function: Any, skip: int, summary: Summary, arguments: Arguments) -> Value:
        names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)][skip:]
        given = {**dict(zip(names, arguments.positional, strict=False)), **arguments.named}
        for sink in summary.sinks:
            value = given.get(sink.name, NOTHING_KNOWN)
            if not value.can_do(sink.harm) or (isinstance(value.items, dict) and sink.harm is Harm.HTML):
                continue
            lines = (*value.lines, node.lineno, *sink.flow.lines)
            for origin in value.origins:
                flow = Flow(
                    sink.harm, sink.flow.line, sink.flow.end_line, sink.flow.target, origin.text, origin.line, lines
                )
                if origin.kind == "outside":
                    self.notes.flows[flow] = None
                elif origin.kind == "parameter" and sink.harm not in origin.safe:
                    self.sinks.append(ParameterSink(origin.text, sink.harm, flow))
        return _filled(summary.returned, given, node.lineno)


def _propagated(path: str, mixed: Value, arguments: Arguments) -> Value:
    """The result of a function that hands on what it is given."""
    given = arguments.all()
    kind = f"{path}()" if path.startswith("pathlib.") or path.endswith(".Markup") else ""
    known = given[0] if len(given) == 1 and path in ("str", "bytes", "list", "dict", "tuple", "set") else mixed
    result = known if len(given) == 1 and not isinstance(known.const, (int, float)) else mixed
    if path in ("dict", "list") and not given:
        return HARMLESS.but(items={} if path == "dict" else [])
    if path == "dict" and "**" not in arguments.named and not arguments.positional:
        return mixed.but(items=dict(arguments.named))
    if path == "enumerate" and given:
        return mixed.but(items=[mixed.but(items=[HARMLESS, element(given[0])])])
    is_start = path in ("os.path.join", "pathlib.Path") and given
    return result.but(path=kind, prefix=given[0].prefix if is_start or len(given) == 1 else "")


def _filled(returned: Value, given: Mapping[str, Value], line: int) -> Value:
    """What a function returns, with the values that it was given in place of its parameters."""
    if not returned.origins:
        return returned
    sources = [
        _with_safe(given.get(o.text, NOTHING_KNOWN), o.safe) if o.kind == "parameter" else Value(origins=(o,))
        for o in returned.origins
    ]
    mixed = mix(sources, line)
    harmless = all(source.harmless for source in sources)
    items: Any = returned.items
    if isinstance(items, dict):
        items = {key: _filled(item, given, line) for key, item in items.items()}
    elif isinstance(items, list):
        items = [_filled(item, given, line) for item in items]
    return returned.but(
        origins=mixed.origins,
        safe=returned.safe | mixed.safe,
        lines=mixed.lines,
        items=items,
        harmless=harmless,
        const=sources[0].const if harmless and len(sources) == 1 and not returned.pieces else UNKNOWN,
        pieces=f"{returned.pieces}{mixed.pieces}",
    )


def _with_safe(value: Value, safe: frozenset[Harm]) -> Value:
    return value.but(safe=value.safe | safe) if safe else value


def _of_dictionary(receiver: Value, items: dict[Any, Value], name: str, given: Sequence[Value]) -> Value | None:
    """What a method of a dictionary gives; a pair of constants is one key of a store with sections."""
    if name in ("values", "items", "copy"):
        return mix(items.values()).but(items=items if name == "copy" else None)
    if name == "keys":
        return HARMLESS
    if name not in ("get", "pop", "setdefault") or not given:
        return None
    key, default = given[0], list(given[1:2])
    if key.is_known and len(given) == 2 and given[1].is_known and (key.const, given[1].const) in items:
        return items[key.const, given[1].const]
    if not key.is_known:
        return join([part(receiver, key), *default])
    return items.get(key.const) or (default[0] if default else NOTHING_KNOWN)


def _is_quote(arguments: Arguments) -> bool:
    """Whether the first argument is a quotation mark."""
    return bool(arguments.positional) and arguments.positional[0].const in ("'", '"')


def _is_static(function: Any) -> bool:
    return any(isinstance(item, ast.Name) and item.id == "staticmethod" for item in function.decorator_list)
