"""Results of calls: functions and methods that let outside data in, pass it on, or make it harmless."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from codeloupe.analysers.dataflow.expressions import Expressions, environment_variable, is_request
from codeloupe.analysers.dataflow.harms import ALL_TEXT, NO_HARMS, Harm
from codeloupe.analysers.dataflow.knowledge import (
    ARCHIVES,
    HANDLER_METHODS,
    NETWORK_METHODS,
    PATH_METHODS,
    READING_MODULES,
    READS_REQUEST,
    TEXTLESS_FUNCTIONS,
    TEXTLESS_METHODS,
    TRUSTED_TO_BE_TEXTLESS,
    WITHOUT_CHANCE,
    passes_on,
    sanitised_harms,
    stops_by_name,
)
from codeloupe.analysers.dataflow.values import (
    ENVIRONMENT,
    HARMLESS,
    NOTHING_KNOWN,
    REQUEST,
    UNKNOWN,
    UNSAFE_PARSER,
    UPLOAD,
    Origin,
    Value,
    container,
    fill_in,
    join,
    mix,
    outside,
)

_PATH = frozenset({Harm.PATH})
_XPATH = frozenset({Harm.XPATH})
# Options with which a parser of XML resolves entities.
_UNSAFE_OPTIONS = {"resolve_entities": True, "load_dtd": True, "no_network": False}


class Call:
    """One call: the object whose method it is, the last part of the name, the full name, and the arguments."""

    def __init__(
        self, node: ast.Call, receiver: Value | None, path: str, positional: list[Value], named: dict[str, Value]
    ) -> None:
        self.node = node
        self.line = node.lineno
        self.receiver = receiver
        self.path = path
        self.positional = positional
        self.named = named
        self.given = [*positional, *named.values()]
        if isinstance(node.func, ast.Attribute):
            self.name = node.func.attr
            self.target: ast.expr = node.func.value
        else:
            self.name = path.rpartition(".")[2]
            self.target = node.func

    def pick(self, *keys: int | str) -> list[Value]:
        """Return the arguments at these positions and with these names."""
        picked: list[Value] = []
        for key in keys:
            if isinstance(key, str):
                if key in self.named:
                    picked.append(self.named[key])
            elif key < len(self.positional):
                picked.append(self.positional[key])
        return picked

    def expressions(self, *keys: int | str) -> list[ast.expr]:
        """Return the expressions of these arguments; those after an unpacked one may be any of them."""
        node = self.node
        if "**" in self.named or any(isinstance(argument, ast.Starred) for argument in node.args):
            return [node]
        chosen = [argument for position, argument in enumerate(node.args) if position in keys]
        return chosen + [keyword.value for keyword in node.keywords if keyword.arg in keys]

    def first(self, *keys: int | str) -> Value:
        """Return the first of these arguments that is given."""
        picked = self.pick(*keys)
        return picked[0] if picked else NOTHING_KNOWN


class Results(Expressions):
    """Values that calls of functions outside of this module return."""

    @property
    def is_in_handler(self) -> bool:
        """Whether this code is in a class whose methods a web server calls."""
        return self.owner is not None and bool(self.owner.kind)

    def library_result(self, call: Call) -> Value:
        """Return the value of a call of a function that is not in this module."""
        path = call.path
        if path in TEXTLESS_FUNCTIONS:
            number = mix(call.given).number()
            return number.doubted() if path in TRUSTED_TO_BE_TEXTLESS else number
        sanitised = sanitised_harms(path.lstrip("."))
        if sanitised:
            passed = mix([*call.given, call.receiver or HARMLESS], call.line)
            return passed.but(safe=passed.safe | sanitised, proven=passed.proven | sanitised)
        result = None
        if call.receiver is not None:
            result = self._from_request(call, call.receiver)
        if result is None and path.endswith("XMLParser") and _resolves_entities(call):
            result = Value(path=UNSAFE_PARSER)
        if result is None and call.receiver is not None:
            result = self._from_object(call, call.receiver)
        return _from_function(call) if result is None else result

    def _from_request(self, call: Call, receiver: Value) -> Value | None:
        """Return the result of a method of the request or of a connection, or None for other objects."""
        if is_request(receiver):
            if call.node.args and READS_REQUEST.search(call.name):
                return outside(call.line, f"request.{call.name}()")
            return self.attribute_of(receiver, call.node.func)  # type: ignore[arg-type]  # a method is an attribute
        if receiver.path == ENVIRONMENT and call.name == "get" and call.positional:
            return environment_variable(call.positional[0], call.line)
        if "type" in call.named and call.named["type"].path in TEXTLESS_FUNCTIONS:
            return receiver.number()
        if call.name in NETWORK_METHODS:
            return outside(call.line, f"{call.name}()")
        if call.name in HANDLER_METHODS and self.is_in_handler:
            return outside(call.line, f"{call.name}()")
        return None

    def _from_object(self, call: Call, receiver: Value) -> Value | None:
        """Return the result of a method of a container, an archive, a text or a path, or None for other objects."""
        self._note_unsafe_parser(call)
        result = self._from_container(call, receiver)
        if result is not None:
            return result
        if receiver.path == UPLOAD and call.name in ("get", "getlist", "values"):
            return receiver
        is_archive = receiver.path in ARCHIVES and receiver.origins
        if is_archive and call.name in ("namelist", "infolist", "getnames", "getmembers"):
            return outside(call.line, f"an archive's {call.name}()")
        if call.name in TEXTLESS_METHODS:
            path = f"{call.path}()" if call.path.startswith("hmac.") else ""
            number = receiver.number().but(path=path)
            is_text = receiver.harmless or bool(receiver.pieces)
            return number.doubted() if call.name in TRUSTED_TO_BE_TEXTLESS and not is_text else number
        if receiver.path.startswith("pathlib."):
            return self._from_path(call, receiver)
        return self._from_text(call, receiver)

    def _note_unsafe_parser(self, call: Call) -> None:
        """Note that a parser of XML is set to resolve external entities."""
        if not call.path.endswith("setFeature"):
            return
        is_external = any("feature_external" in value.path for value in call.given)
        if is_external and any(value.is_known and value.const for value in call.given):
            self.bind(call.target, Value(path=UNSAFE_PARSER))

    def _from_text(self, call: Call, receiver: Value) -> Value | None:
        """Return the result of a method of a text, or of any object with outside data, or None for unknown objects."""
        if call.name == "join" and isinstance(receiver.const, str):
            return mix([receiver, *map(Value.element, call.given)], call.line)
        if call.name == "format" and (receiver.is_known or receiver.pieces):
            filled = fill_in(receiver, call.given, call.line).but(prefix=receiver.prefix.partition("{")[0])
            self.judge_query(call.node, filled)
            return filled
        if call.name == "replace" and call.first(0).const in ("'", '"'):
            return receiver.but_safe(_XPATH).but(const=UNKNOWN, items=None, proven=NO_HARMS)
        if receiver.origins:
            prefix = receiver.prefix if call.name in ("encode", "strip") else ""
            mixed = mix([receiver, *call.positional], call.line)
            return mixed.but(pieces=receiver.pieces, prefix=prefix, proven=NO_HARMS)
        if receiver.is_known or receiver.harmless:
            return mix([receiver, *call.given], call.line)
        return None

    def _from_path(self, call: Call, receiver: Value) -> Value:
        if call.name in PATH_METHODS:
            return NOTHING_KNOWN
        if call.name == "relative_to":
            # The path is inside of that directory, or there is an error.
            self.bind(call.target, receiver.but_safe(_PATH))
        return mix([receiver, *call.positional], call.line).but(path=receiver.path, pieces=receiver.pieces)

    # Containers.

    def _from_container(self, call: Call, receiver: Value) -> Value | None:
        """Return the result of a method of a dictionary, a list, or a store with two keys as in configparser."""
        given = call.positional
        if isinstance(receiver.items, dict):
            found = _from_dictionary(receiver, receiver.items, call.name, given)
            if found is not None:
                return found
        if not isinstance(call.target, ast.Name) or not isinstance(call.node.func, ast.Attribute):
            return None
        if isinstance(receiver.items, list):
            return self._from_list(call.target, receiver, receiver.items, call)
        if call.name == "set" and len(given) == 3 and given[0].is_known and given[1].is_known:
            items: dict[Any, Value] = dict(receiver.items or {})
            items[given[0].const, given[1].const] = given[2]
            self.bind(call.target, container(items).but(path=receiver.path))
            return HARMLESS
        is_adding = call.name in ("append", "add", "extend", "update", "insert", "write")
        if is_adding and any(value.origins for value in given):
            mixed = mix([receiver, *map(Value.element, given)], call.line)
            self.bind(call.target, mixed.but(path=receiver.path))
            return HARMLESS
        if is_adding and not all(value.harmless for value in call.given):
            self.bind(call.target, receiver.doubted())
            return HARMLESS
        return None

    def _from_list(self, target: ast.Name, receiver: Value, known: list[Value], call: Call) -> Value | None:
        given = call.positional
        items = list(known)
        result = HARMLESS
        index = None
        if given and type(given[0].const) is int:
            index = given[0].const
        last = -1 if index is None else index
        match call.name:
            case "append" if given:
                items.append(given[0])
            case "insert" if len(given) == 2 and index is not None:
                items.insert(index, given[1])
            case "extend" if given and isinstance(given[0].items, list):
                items.extend(given[0].items)
            case "pop" if receiver.has_index(last):
                result = items.pop(last)
            case "extend" | "sort" | "reverse" | "remove" | "insert":
                self.bind(target, mix([receiver, *map(Value.element, given)]))
                return HARMLESS
            case _:
                return None
        self.bind(target, container(items))
        return result


def _resolves_entities(call: Call) -> bool:
    for option, unsafe in _UNSAFE_OPTIONS.items():
        if option in call.named and call.named[option].const is unsafe:
            return True
    return False


def _from_dictionary(receiver: Value, items: dict[Any, Value], name: str, given: Sequence[Value]) -> Value | None:
    """Return the result of a method of a dictionary. A pair of constants is one key of a store with sections."""
    if name in ("values", "items", "copy"):
        return mix(items.values()).but(items=items if name == "copy" else None)
    if name == "keys":
        return HARMLESS
    if name not in ("get", "pop", "setdefault") or not given:
        return None
    key = given[0]
    default = given[1:2]
    if not key.is_known:
        return join([receiver.part(key), *default])
    if len(given) == 2 and given[1].is_known:
        pair = (key.const, given[1].const)
        if pair in items:
            return items[pair]
    if key.const in items:
        return items[key.const]
    return default[0] if default else NOTHING_KNOWN


def random_result(call: Call) -> Value | None:
    """Return the result of a predictable random generator, or None for other functions."""
    if not call.path.startswith(("random.", "numpy.random.")) or "SystemRandom" in call.path:
        return None
    if call.name in WITHOUT_CHANCE:
        return None
    origin = Origin(call.line, call.path, "random")
    return Value(origins=(origin,), safe=ALL_TEXT, lines=(call.line,), harmless=True)


def _from_function(call: Call) -> Value:
    """Return the result of a function of another module, by its name."""
    name = call.name
    path = call.path
    if any(is_request(value) for value in call.given):
        if not READS_REQUEST.search(name):
            return NOTHING_KNOWN
        is_wrapper = len(call.given) == 1
        return Value(path=REQUEST) if is_wrapper else outside(call.line, f"{name}(request)")
    mixed = mix(call.given, call.line)
    if passes_on(path):
        return _passed_on(call, mixed)
    if path == "compile" and mixed.harmless:
        return HARMLESS
    is_class = name[:1].isupper()
    if mixed.origins and not is_class and not stops_by_name(name):
        return mixed.doubted().but(path="", pieces="")
    if f"{path}()" in ARCHIVES:
        return mixed.but(path=f"{path}()")
    is_object = is_class or name in ("make_parser", "session") or path.count(".") <= 2
    return Value(path=f"{path}()") if path and is_object else NOTHING_KNOWN


def _passed_on(call: Call, mixed: Value) -> Value:
    """Return the result of a function that passes on what it is given."""
    path = call.path
    given = call.given
    if path in ("dict", "list") and not given:
        return HARMLESS.but(items={} if path == "dict" else [])
    if path == "dict" and "**" not in call.named and not call.positional:
        return mixed.but(items=dict(call.named))
    if path == "enumerate" and given:
        pair = mixed.but(items=[HARMLESS, given[0].element()])
        return mixed.but(items=[pair])
    result = mixed
    is_conversion = len(given) == 1 and path in ("str", "bytes", "list", "dict", "tuple", "set")
    if is_conversion and not isinstance(given[0].const, (int, float)):
        result = given[0]
    prefix = ""
    if len(given) == 1 or (given and path in ("os.path.join", "pathlib.Path")):
        prefix = given[0].prefix
    if path.rpartition(".")[0] in READING_MODULES:
        result = result.doubted()
    is_typed = path.startswith("pathlib.") or path.endswith(".Markup")
    return result.but(path=f"{path}()" if is_typed else "", prefix=prefix)
