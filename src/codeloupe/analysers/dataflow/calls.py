"""Reads calls: which of them let outside text in, hand it on, or make it harmless."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from codeloupe.analysers.dataflow.expressions import ENVIRONMENT, REQUEST, Expressions, environment, is_request, part
from codeloupe.analysers.dataflow.knowledge import ALL_TEXT, ESCAPERS, PATTERNS, WORDS, Harm
from codeloupe.analysers.dataflow.sinks import UNSAFE_PARSER, Call
from codeloupe.analysers.dataflow.syntax import F_STRING
from codeloupe.analysers.dataflow.values import (
    HARMLESS,
    NOTHING_KNOWN,
    UNKNOWN,
    UPLOAD,
    ClassNotes,
    Flow,
    Origin,
    Summary,
    Value,
)

_ARCHIVES = frozenset({"zipfile.ZipFile()", "tarfile.open()"})
_WITHOUT_CHANCE = frozenset({"seed", "getstate", "setstate", "SystemRandom", "Random", "shuffle"})


class Calls(Expressions):
    """Values of calls. `depth` counts the functions of this module that are being read."""

    depth: int = 0

    def _call(self, node: ast.Call) -> Value:
        """The value of a call; what outside text does in it is noted."""
        positional = [self.value(argument) for argument in node.args]
        named = {key.arg or "**": self.value(key.value) for key in node.keywords}
        for name, held in named.items():
            self.named_secret(name, held, node.lineno)
        if isinstance(node.func, ast.Attribute):
            receiver = self.value(node.func.value)
            own = isinstance(node.func.value, ast.Name) and node.func.value.id == "self"
            is_unnamed = is_request(receiver) or receiver.origins or own
            path = "" if is_unnamed else self.attribute(node.func, receiver).path
            call = Call(node, receiver, node.func.attr, path or f".{node.func.attr}", positional, named)
        else:
            path = self.value(node.func).path
            call = Call(node, None, path.rpartition(".")[2], path, positional, named)
        self.look(call)
        if path == F_STRING:
            return self.note_query(node, Value.concatenate(positional or [Value.constant("")], node.lineno))
        return self._result(call)

    def _result(self, call: Call) -> Value:
        line, path = call.line, call.path
        is_random = path.startswith(("random.", "numpy.random.")) and "SystemRandom" not in path
        if is_random and call.name not in _WITHOUT_CHANCE:
            return Value(origins=(Origin(line, path, "random"),), safe=ALL_TEXT, lines=(line,), harmless=True)
        if (helped := self._helper(call)) is not None:
            return helped
        if path in WORDS.cleaners:
            return Value.mix(call.given).number()
        for pattern, safe in ESCAPERS:
            if pattern.fullmatch(path.lstrip(".")):
                handed = Value.mix((*call.given, call.receiver or HARMLESS), line)
                return handed.but(safe=handed.safe | safe, proven=handed.proven | safe)
        if call.receiver is not None and (found := self._of_method(call, call.receiver)) is not None:
            return found
        if path.endswith("XMLParser") and _resolves_entities(call):
            return Value(path=UNSAFE_PARSER)
        if call.receiver is not None and (found := self._of_object(call, call.receiver)) is not None:
            return found
        return _handed_on(call)

    def _of_method(self, call: Call, receiver: Value) -> Value | None:
        """A method of the request, or of what gives a part of it."""
        line, name = call.line, call.name
        if is_request(receiver):
            if PATTERNS.reads_request.search(name) is not None and call.node.args:
                return Value.outside(line, f"request.{name}()")
            return self.attribute(call.node.func, receiver)  # type: ignore[arg-type]  # a method is an attribute
        if receiver.path == ENVIRONMENT and name == "get" and call.positional:
            return environment(call.positional[0], line)
        if "type" in call.named and call.named["type"].path in WORDS.cleaners:
            return receiver.number()
        is_handler = self.owner is not None and self.owner.kind
        if name in WORDS.network_methods or (name in WORDS.outside_methods and is_handler):
            return Value.outside(line, f"{name}()")
        return None

    def _of_object(self, call: Call, receiver: Value) -> Value | None:  # noqa: C901, PLR0911 - an answer a kind
        """A method of a container, an archive, a text, a path or another object that is known."""
        line, name, path = call.line, call.name, call.path
        target = call.node.func.value if isinstance(call.node.func, ast.Attribute) else call.node.func
        is_external = path.endswith("setFeature") and any("feature_external" in v.path for v in call.given)
        if is_external and any(value.is_known and value.const for value in call.given):
            self.bind(target, Value(path=UNSAFE_PARSER))
        if (kept := self._container(call, receiver)) is not None:
            return kept
        if receiver.path == UPLOAD and name in ("get", "getlist", "values"):
            return receiver
        is_archive = receiver.path in _ARCHIVES and receiver.origins
        if is_archive and name in ("namelist", "infolist", "getnames", "getmembers"):
            return Value.outside(line, f"{name}() of an archive")
        if name in WORDS.no_text_methods:
            return receiver.number().but(path=f"{path}()" if path.startswith("hmac.") else "")
        if name == "join" and isinstance(receiver.const, str):
            return Value.mix((receiver, *map(Value.element, call.given)), line)
        if name == "format" and (receiver.is_known or receiver.pieces):
            filled = Value.filled_text([receiver, *call.given], line)
            return self.note_query(call.node, filled.but(prefix=receiver.prefix.partition("{")[0]))
        if name == "replace" and call.first(0).const in ("'", '"'):
            return receiver.but_safe(frozenset({Harm.XPATH})).but(const=UNKNOWN, items=None)
        if receiver.path.startswith("pathlib."):
            if name in WORDS.path_methods:
                return NOTHING_KNOWN
            if name == "relative_to":  # it is inside of that directory, or there is an error
                self.bind(target, receiver.but_safe(frozenset({Harm.PATH})))
            return Value.mix((receiver, *call.positional), line).but(path=receiver.path, pieces=receiver.pieces)
        if receiver.origins:
            prefix = receiver.prefix if name in ("encode", "strip") else ""
            return Value.mix((receiver, *call.positional), line).but(pieces=receiver.pieces, prefix=prefix)
        return Value.mix((receiver, *call.given), line) if receiver.is_known or receiver.harmless else None

    def _container(self, call: Call, receiver: Value) -> Value | None:
        """Methods of dictionaries, lists and stores with two keys, such as those of configparser."""
        name, given = call.name, call.positional
        if isinstance(receiver.items, dict) and (found := _of_dictionary(receiver, receiver.items, name, given)):
            return found
        target = call.node.func.value if isinstance(call.node.func, ast.Attribute) else None
        if not isinstance(target, ast.Name):
            return None
        if isinstance(receiver.items, list):
            return self._of_list(target, receiver, name, given)
        if name == "set" and len(given) == 3 and given[0].is_known and given[1].is_known:
            items = {**(receiver.items or {}), (given[0].const, given[1].const): given[2]}
            self.bind(target, Value.container(items).but(path=receiver.path))
            return HARMLESS
        if name in ("append", "add", "extend", "update", "insert", "write") and any(value.origins for value in given):
            self.bind(target, Value.mix((receiver, *map(Value.element, given)), call.line).but(path=receiver.path))
            return HARMLESS
        return None

    def _of_list(self, target: ast.Name, receiver: Value, name: str, given: Sequence[Value]) -> Value | None:
        items: list[Value] = [*(receiver.items or ())]
        result = HARMLESS
        number = given[0].const if given and type(given[0].const) is int else None
        match name:
            case "append" if given:
                items.append(given[0])
            case "insert" if len(given) == 2 and number is not None:
                items.insert(number, given[1])
            case "extend" if given and isinstance(given[0].items, list):
                items.extend(given[0].items)
            case "pop" if receiver.has_index(Value.constant(-1 if number is None else number)):
                result = items.pop(-1 if number is None else number)
            case "extend" | "sort" | "reverse" | "remove" | "insert":
                self.bind(target, Value.mix((receiver, *map(Value.element, given))))
                return HARMLESS
            case _:
                return None
        self.bind(target, Value.container(items))
        return result

    # Functions of this module.

    def summary(self, function: Any, owner: ClassNotes | None) -> Summary | None:
        """What a call of a function of this module does, or None while it is being found out."""
        raise NotImplementedError

    def _helper(self, call: Call) -> Value | None:
        function = owner = None
        node, receiver = call.node, call.receiver
        if isinstance(node.func, ast.Name):
            function = self.value(node.func).function
            if isinstance(function, ClassNotes):
                return self._made(call, function).but(path=f"{node.func.id}()", function=function)
        elif isinstance(node.func, ast.Attribute) and receiver is not None:
            is_self = isinstance(node.func.value, ast.Name) and node.func.value.id in ("self", "cls")
            found = self.owner if is_self else receiver.function
            if isinstance(found, ClassNotes):
                function = found.methods.get(node.func.attr)
                decorators = [] if function is None else function.decorator_list
                if not any(isinstance(item, ast.Name) and item.id == "staticmethod" for item in decorators):
                    owner = found
        if function is None or self.depth >= 6:
            return None
        summary = self.summary(function, owner)
        return None if summary is None else self._applied(call, function, owner, summary)

    def _made(self, call: Call, kind: ClassNotes) -> Value:
        """A new object, with what it keeps of the values that it was given."""
        made = kind.methods.get("__init__")
        summary = None if made is None else self.summary(made, kind)
        if made is None or summary is None:
            targets = [item.target for item in kind.node.body if isinstance(item, ast.AnnAssign)]
            fields = [target.id for target in targets if isinstance(target, ast.Name)]
            return Value(items=_by_name(fields, call))
        self._applied(call, made, kind, summary)
        given = _given(made, kind, call)
        items = {name: _filled(value, given, call.line) for name, value in kind.made.items()}
        for name, value in items.items():
            if value.is_outside:
                kind.attributes[name] = Value.join([kind.attributes.get(name, value), value])
        return Value(items=items)

    def _applied(self, call: Call, function: Any, owner: ClassNotes | None, summary: Summary) -> Value:
        """The result of a function of this module; what its parameters do in it is noted."""
        returned, sinks = summary
        given = _given(function, owner, call)
        for name, inner in sinks:
            value = given.get(name, NOTHING_KNOWN)
            if not value.can_do(inner.harm) or (isinstance(value.items, dict) and inner.harm is Harm.HTML):
                continue
            lines = (*value.lines, call.line, *inner.lines)
            for origin in value.origins:
                place = (inner.harm, inner.line, inner.end_line, inner.target)
                self.reached(Flow(*place, origin.text, origin.line, lines), origin)
        return _filled(returned, given, call.line)


def _by_name(names: Sequence[str], call: Call) -> dict[str, Value]:
    return {**dict(zip(names, call.positional, strict=False)), **call.named}


def _given(function: Any, owner: ClassNotes | None, call: Call) -> dict[str, Value]:
    """The arguments by the names of the parameters; a method has its object before them."""
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    return _by_name(names if owner is None else names[1:], call)


def _resolves_entities(call: Call) -> bool:
    flags = (("resolve_entities", True), ("load_dtd", True), ("no_network", False))
    return any(name in call.named and call.named[name].const is flag for name, flag in flags)


def _handed_on(call: Call) -> Value:
    """The result of a function that is not in this module."""
    name, path, line, given = call.name, call.path, call.line, call.given
    if any(map(is_request, given)):
        if not PATTERNS.reads_request.search(name):
            return NOTHING_KNOWN
        is_wrapper = len(given) == 1
        return Value(path=REQUEST) if is_wrapper else Value.outside(line, f"{name}(request)")
    mixed = Value.mix(given, line)
    if PATTERNS.propagators.fullmatch(path):
        return _propagated(call, mixed)
    if mixed.origins and not PATTERNS.stops_by_name.match(name) and not name[:1].isupper():
        return mixed.but(path="", pieces="", prefix="")
    if f"{path}()" in _ARCHIVES:
        return mixed.but(path=f"{path}()")
    is_class = name[:1].isupper() or name in ("make_parser", "session")
    return Value(path=f"{path}()") if path and (is_class or path.count(".") <= 2) else NOTHING_KNOWN


def _propagated(call: Call, mixed: Value) -> Value:
    """The result of a function that hands on what it is given."""
    path, given = call.path, call.given
    if path in ("dict", "list") and not given:
        return HARMLESS.but(items={} if path == "dict" else [])
    if path == "dict" and "**" not in call.named and not call.positional:
        return mixed.but(items=dict(call.named))
    if path == "enumerate" and given:
        return mixed.but(items=[mixed.but(items=[HARMLESS, given[0].element()])])
    is_same = len(given) == 1 and path in ("str", "bytes", "list", "dict", "tuple", "set")
    result = given[0] if is_same and not isinstance(given[0].const, (int, float)) else mixed
    is_start = len(given) == 1 or (given and path in ("os.path.join", "pathlib.Path"))
    kind = f"{path}()" if path.startswith("pathlib.") or path.endswith(".Markup") else ""
    return result.but(path=kind, prefix=given[0].prefix if is_start else "")


def _filled(returned: Value, given: Mapping[str, Value], line: int) -> Value:
    """What a function returns, with the values that it was given in place of its parameters."""
    if not returned.origins:
        return returned
    sources = [
        given.get(origin.text, NOTHING_KNOWN).but_safe(origin.safe)
        if origin.kind == "parameter"
        else Value(origins=(origin,))
        for origin in returned.origins
    ]
    mixed = Value.mix(sources, line)
    items: Any = returned.items
    if isinstance(items, dict):
        items = {key: _filled(item, given, line) for key, item in items.items()}
    elif isinstance(items, list):
        items = [_filled(item, given, line) for item in items]
    is_constant = mixed.harmless and len(sources) == 1 and not returned.pieces
    return returned.but(
        origins=mixed.origins,
        safe=returned.safe | mixed.safe,
        lines=mixed.lines,
        items=items,
        harmless=mixed.harmless,
        const=sources[0].const if is_constant else UNKNOWN,
        pieces=f"{returned.pieces}{mixed.pieces}",
    )


def _of_dictionary(receiver: Value, items: dict[Any, Value], name: str, given: Sequence[Value]) -> Value | None:
    """What a method of a dictionary gives; a pair of constants is one key of a store with sections."""
    if name in ("values", "items", "copy"):
        return Value.mix(items.values()).but(items=items if name == "copy" else None)
    if name == "keys":
        return HARMLESS
    if name not in ("get", "pop", "setdefault") or not given:
        return None
    key, default = given[0], list(given[1:2])
    if key.is_known and len(given) == 2 and given[1].is_known and (key.const, given[1].const) in items:
        return items[key.const, given[1].const]
    if not key.is_known:
        return Value.join([part(receiver, key), *default])
    return items.get(key.const) or (default[0] if default else NOTHING_KNOWN)
