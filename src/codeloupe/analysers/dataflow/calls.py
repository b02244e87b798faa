"""Reads calls: which of them let outside text in, hand it on, make it harmless, or suffer from it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from codeloupe.analysers.dataflow import values as tables
from codeloupe.analysers.dataflow.expressions import Expressions, environment, is_request
from codeloupe.analysers.dataflow.syntax import F_STRING
from codeloupe.analysers.dataflow.values import HARMLESS, NOTHING_KNOWN, PATTERNS, UNKNOWN, WORDS, Harm, Value


class Call(Struct):
    """A call: the object whose method it is, the last part of the name, the full name, and the values it is given."""

    node: ast.Call
    receiver: Value | None
    name: str
    path: str
    positional: list[Value]
    named: dict[str, Value]

    @property
    def given(self) -> list[Value]:
        """Every value that it is given."""
        return [*self.positional, *self.named.values()]

    def pick(self, *which: int | str) -> list[Value]:
        """The values at these positions and with these names."""
        known: dict[Any, Value] = {**dict(enumerate(self.positional)), **self.named}
        return [known[key] for key in which if key in known]

    def first(self, *which: int | str) -> Value:
        """The first of those that is there."""
        return next(iter(self.pick(*which)), NOTHING_KNOWN)

    def is_meant(self, harm: Harm) -> bool:
        """Whether a function of this name does here what the table of sinks says."""
        name, path = self.name, self.path
        text = " ".join(argument.pieces for argument in self.given)
        match harm:
            case Harm.SQL if self.receiver is not None and path not in tables.SINKS and name != "extra":
                about = ast.unparse(self.node.func.value)[-80:] if isinstance(self.node.func, ast.Attribute) else ""
                return bool(PATTERNS.sql_text.search(text) or PATTERNS.database_names.search(about))
            case Harm.XPATH if name.startswith(("find", "iterfind")):
                return bool(PATTERNS.xpath_text.search(text))
            case Harm.LDAP:
                return bool(PATTERNS.filter_text.search(text))
            case Harm.OBJECT if name in ("load", "load_all") and path.startswith("yaml."):
                loader = " ".join(value.path for value in self.pick(1, "Loader"))
                return not loader.endswith(("SafeLoader", "BaseLoader"))
            case Harm.HTML if name in ("HttpResponse", "Response", "make_response"):
                kind = " ".join(str(value.const) for value in self.pick("content_type", "mimetype", "media_type"))
                needs_type = path.startswith(("aiohttp", "starlette", "fastapi"))
                return not any(word in kind for word in WORDS.other_types) and (not needs_type or "html" in kind)
            case Harm.CODE if name == "compile":
                return self.receiver is None
        return True


class Calls(Expressions):
    """Values of calls. `summary` says what a call of a function of this module does, if that is known yet."""

    summary: Callable[[Any, tables.ClassNotes | None], tables.Summary | None]

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
        self._look(call)
        if path == F_STRING:
            return self.note_query(node, Value.concatenate(positional or [Value.constant("")], node.lineno))
        return self._result(call)

    # What the arguments of a call do in it.

    def _look(self, call: Call) -> None:
        node, name, path, given = call.node, call.name, call.path, call.given
        if PATTERNS.subprocess.fullmatch(path):
            self._subprocess(call)
        known = tables.SINKS.get(path) or (tables.SINKS.get(f".{name}") if call.receiver is not None else None)
        if known is not None and call.is_meant(known[0]):
            for argument in call.pick(*known[1]):
                self._arrives(node, known[0], name, argument, is_call=True)
        if call.receiver is not None:
            self._look_at_method(call, call.receiver)
        if path == "start_response":
            self.hit(Harm.HEADER, node, path, call.first(1))
        # Before version 5 the parser of lxml resolves entities by default.
        is_unsafe = any(value.path == tables.UNSAFE_PARSER for value in (*given, call.receiver or NOTHING_KNOWN))
        for value in given if is_unsafe or (len(given) == 1 and PATTERNS.lxml.fullmatch(path)) else ():
            self.hit(Harm.XML, node, path.rpartition(".")[2], value)
        if path.startswith("hashlib."):
            # A weak hash is no matter where the names speak of caches and checksums, and of no secret.
            words = " ".join((*self.context, *(ast.unparse(argument)[:60] for argument in node.args)))
            if PATTERNS.harmless_hash.search(words) and not PATTERNS.secret_hash.search(words):
                self.notes.quiet[node.lineno].add("S324")

    def _arrives(self, node: ast.Call, harm: Harm, target: str, value: Value, *, is_call: bool = False) -> None:
        """Note what a value does at a call; and for ruff's own rules, whether it is harmless there."""
        # Whether the constant start of an address leaves no choice of the host.
        scheme, mark, rest = value.prefix.partition("://")
        is_path = harm is Harm.REDIRECT and len(scheme) > 1 and scheme[0] == "/" and scheme[1] not in "/\\"
        if harm in (Harm.REDIRECT, Harm.FETCH) and ("/" in rest or "?" in rest if mark else is_path):
            return
        if value.items is not None and harm is Harm.HTML:
            return
        self.hit(harm, node, target, value)
        if is_call and harm in (Harm.SHELL, Harm.CODE, Harm.OBJECT):
            self.judge(node, harm, value)

    def _subprocess(self, call: Call) -> None:
        command = call.first(0, "args")
        shell = call.named.get("shell")
        has_shell = shell is not None and shell.const is not False
        if isinstance(command.items, list) and command.items and not has_shell:
            first, *rest = command.items
            is_shell = first.harmless and any(map(PATTERNS.shells.fullmatch, first.pieces.split()))
            has_flag = any(isinstance(word.const, str) and word.const.startswith("-") for word in rest)
            command = Value.mix((first, *(rest if is_shell and has_flag else ())), call.node.lineno)
        elif not has_shell and not isinstance(command.items, list) and not command.prefix:
            # A list that was put together elsewhere: what is in it are most likely arguments.
            command = command if command.pieces or command.is_known else NOTHING_KNOWN
        self._arrives(call.node, Harm.SHELL, call.name, command, is_call=has_shell)

    def _look_at_method(self, call: Call, receiver: Value) -> None:
        node, name = call.node, call.name
        if name in WORDS.path_methods and receiver.path.startswith("pathlib."):
            self.hit(Harm.PATH, node, name, receiver)
        # Of tornado's and the standard library's request handlers.
        is_handler = self.owner is not None and self.owner.kind
        match name:
            case "save" if receiver.origins:
                for argument in call.pick(0, "dst"):
                    self.hit(Harm.PATH, node, name, argument)
            case "set_cookie":
                for value in call.pick(1, "value"):
                    self.guessable(node, value, "the cookie")
                secure, label = call.named.get("secure"), call.first(0, "key", "name").const
                is_secret = isinstance(label, str) and PATTERNS.secret_names.search(label)
                is_missing = secure is None and "**" not in call.named and is_secret
                if is_missing or (secure is not None and secure.const is False):
                    self.note(Harm.COOKIE, node, "set_cookie")
            case "redirect" if is_handler:
                self._arrives(node, Harm.REDIRECT, name, call.first(0))
            case "send_header" if is_handler:
                self.hit(Harm.HEADER, node, name, call.first(1))
            case "write" if is_handler and "<" in call.first(0).pieces:
                self.hit(Harm.HTML, node, name, call.first(0))

    # What a call gives.

    def _result(self, call: Call) -> Value:
        line, path, receiver = call.node.lineno, call.path, call.receiver
        is_random = path.startswith(("random.", "numpy.random.")) and "SystemRandom" not in path
        if is_random and call.name not in WORDS.without_chance:
            chance = (tables.Origin(line, path, "random"),)
            return Value(origins=chance, safe=tables.ALL_TEXT, lines=(line,), harmless=True)
        if (helped := self._helper(call)) is not None:
            return helped
        if path in WORDS.cleaners:
            return Value.mix(call.given).number()
        for pattern, safe in tables.ESCAPERS:
            if pattern.fullmatch(path.lstrip(".")):
                handed = Value.mix((*call.given, receiver or HARMLESS), line)
                return handed.but_safe(*safe).but(proven=handed.proven | safe)
        if receiver is not None and (found := self._of_request(call, receiver)) is not None:
            return found
        flags = (("resolve_entities", True), ("load_dtd", True), ("no_network", False))
        resolves_entities = any(name in call.named and call.named[name].const is flag for name, flag in flags)
        if path.endswith("XMLParser") and resolves_entities:
            return Value(path=tables.UNSAFE_PARSER)
        if receiver is not None and (found := self._of_object(call, receiver)) is not None:
            return found
        return _handed_on(call)

    def _of_request(self, call: Call, receiver: Value) -> Value | None:
        """A method of the request, or of what gives a part of it."""
        line, name = call.node.lineno, call.name
        if is_request(receiver):
            if PATTERNS.reads_request.search(name) is not None and call.node.args:
                return Value.outside(line, f"request.{name}()")
            return self.attribute(call.node.func, receiver)  # type: ignore[arg-type]  # a method is an attribute
        if receiver.path == tables.ENVIRONMENT and name == "get" and call.positional:
            return environment(call.positional[0], line)
        if "type" in call.named and call.named["type"].path in WORDS.cleaners:
            return receiver.number()
        is_handler = self.owner is not None and self.owner.kind
        if name in WORDS.network_methods or (name in WORDS.outside_methods and is_handler):
            return Value.outside(line, f"{name}()")
        return None

    def _of_object(self, call: Call, receiver: Value) -> Value | None:  # noqa: C901, PLR0911 - an answer a kind
        """A method of a container, an archive, a text, a path or another object that is known."""
        line, name, path = call.node.lineno, call.name, call.path
        target = call.node.func.value if isinstance(call.node.func, ast.Attribute) else call.node.func
        is_external = path.endswith("setFeature") and any("feature_external" in v.path for v in call.given)
        if is_external and any(value.is_known and value.const for value in call.given):
            self.bind(target, Value(path=tables.UNSAFE_PARSER))
        if (kept := self._container(call, receiver)) is not None:
            return kept
        if receiver.path == tables.UPLOAD and name in ("get", "getlist", "values"):
            return receiver
        is_archive = receiver.path in WORDS.archives and receiver.origins
        if is_archive and name in ("namelist", "infolist", "getnames", "getmembers"):
            return Value.outside(line, f"an archive's {name}()")
        if name in WORDS.no_text_methods:
            return receiver.number().but(path=f"{path}()" if path.startswith("hmac.") else "")
        if name == "join" and isinstance(receiver.const, str):
            return Value.mix((receiver, *map(Value.element, call.given)), line)
        if name == "format" and (receiver.is_known or receiver.pieces):
            filled = Value.filled_text([receiver, *call.given], line)
            return self.note_query(call.node, filled.but(prefix=receiver.prefix.partition("{")[0]))
        if name == "replace" and call.first(0).const in ("'", '"'):
            return receiver.but_safe(Harm.XPATH).but(const=UNKNOWN, items=None)
        if receiver.path.startswith("pathlib."):
            if name in WORDS.path_methods:
                return NOTHING_KNOWN
            if name == "relative_to":  # it is inside of that directory, or there is an error
                self.bind(target, receiver.but_safe(Harm.PATH))
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
            mixed = Value.mix((receiver, *map(Value.element, given)), call.node.lineno)
            self.bind(target, mixed.but(path=receiver.path))
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

    def _helper(self, call: Call) -> Value | None:
        function = owner = None
        called = call.node.func
        if isinstance(called, ast.Name):
            function = self.value(called).function
            if isinstance(function, tables.ClassNotes):
                return self._made(call, function).but(path=f"{called.id}()", function=function)
        elif isinstance(called, ast.Attribute) and call.receiver is not None:
            is_self = isinstance(called.value, ast.Name) and called.value.id in ("self", "cls")
            found = self.owner if is_self else call.receiver.function
            if isinstance(found, tables.ClassNotes):
                function = found.methods.get(called.attr)
                decorators = [] if function is None else function.decorator_list
                if not any(isinstance(item, ast.Name) and item.id == "staticmethod" for item in decorators):
                    owner = found
        if function is None or self.depth >= 6:
            return None
        summary = self.summary(function, owner)
        return None if summary is None else self._applied(call, _given(function, owner, call), summary)

    def _made(self, call: Call, kind: tables.ClassNotes) -> Value:
        """A new object, with what it keeps of the values that it was given."""
        made = kind.methods.get("__init__")
        summary = None if made is None else self.summary(made, kind)
        if made is None or summary is None:
            targets = [item.target for item in kind.node.body if isinstance(item, ast.AnnAssign)]
            fields = [target.id for target in targets if isinstance(target, ast.Name)]
            return Value(items={**dict(zip(fields, call.positional, strict=False)), **call.named})
        given = _given(made, kind, call)
        self._applied(call, given, summary)
        items = {name: _filled(value, given, call.node.lineno) for name, value in kind.made.items()}
        for name, value in items.items():
            if value.is_outside:
                kind.attributes[name] = Value.join([kind.attributes.get(name, value), value])
        return Value(items=items)

    def _applied(self, call: Call, given: Mapping[str, Value], summary: tables.Summary) -> Value:
        """The result of a function of this module; what its parameters do in it is noted."""
        returned, sinks = summary
        for name, inner in sinks:
            value = given.get(name, NOTHING_KNOWN)
            if not value.can_do(inner.harm) or (isinstance(value.items, dict) and inner.harm is Harm.HTML):
                continue
            lines = (*value.lines, call.node.lineno, *inner.lines)
            for origin in value.origins:
                place = (inner.harm, inner.line, inner.end_line, inner.target)
                self.reached(tables.Flow(*place, origin.text, origin.line, lines), origin)
        return _filled(returned, given, call.node.lineno)


def _given(function: Any, owner: tables.ClassNotes | None, call: Call) -> dict[str, Value]:
    """The arguments by the names of the parameters; a method has its object before them."""
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    return {**dict(zip(names if owner is None else names[1:], call.positional, strict=False)), **call.named}


def _handed_on(call: Call) -> Value:
    """The result of a function that is not in this module."""
    name, path, line, given = call.name, call.path, call.node.lineno, call.given
    if any(map(is_request, given)):
        if not PATTERNS.reads_request.search(name):
            return NOTHING_KNOWN
        is_wrapper = len(given) == 1
        return Value(path=tables.REQUEST) if is_wrapper else Value.outside(line, f"{name}(request)")
    mixed = Value.mix(given, line)
    if PATTERNS.propagators.fullmatch(path):
        return _propagated(call, mixed)
    if mixed.origins and not PATTERNS.stops_by_name.match(name) and not name[:1].isupper():
        return mixed.but(path="", pieces="", prefix="")
    if f"{path}()" in WORDS.archives:
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
        given.get(origin.text, NOTHING_KNOWN).but_safe(*origin.safe)
        if origin.kind == "parameter"
        else Value(origins=(origin,))
        for origin in returned.origins
    ]
    mixed = Value.mix(sources, line)
    items: Any = returned.items
    if items is not None:
        pairs = items.items() if isinstance(items, dict) else enumerate(items)
        filled = {key: _filled(item, given, line) for key, item in pairs}
        items = filled if isinstance(items, dict) else [*filled.values()]
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
        return Value.join([receiver.part(key), *default])
    return items.get(key.const) or (default[0] if default else NOTHING_KNOWN)
