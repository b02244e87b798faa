"""Reads calls: which of them let outside text in, hand it on, make it harmless, or suffer from it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from codeloupe.analysers.dataflow.expressions import ENVIRONMENT, REQUEST, Expressions, part
from codeloupe.analysers.dataflow.knowledge import (
    ALL_TEXT,
    CLEANERS,
    DATABASE_NAMES,
    ESCAPERS,
    FILTER_TEXT,
    HARMLESS_HASH,
    NETWORK_METHODS,
    NOT_SECRET_NAMES,
    OUTSIDE_METHODS,
    PATH_METHODS,
    PROPAGATORS,
    READS_REQUEST,
    REQUEST_OBJECTS,
    SECRET_HASH,
    SECRET_NAMES,
    SHELLS,
    SINKS,
    SQL_TEXT,
    STOPS_BY_NAME,
    SUBPROCESS,
    XPATH_TEXT,
    Harm,
)
from codeloupe.analysers.dataflow.module import ClassNotes, Flow, ParameterSink, Summary
from codeloupe.analysers.dataflow.syntax import F_STRING
from codeloupe.analysers.dataflow.values import (
    HARMLESS,
    NOTHING_KNOWN,
    UNKNOWN,
    Origin,
    Value,
    concatenate,
    constant,
    element,
    join,
    mix,
    number_of,
    outside,
)

_UNSAFE_PARSER = "<parser that resolves entities>"
_NO_TEXT_METHODS = frozenset(
    """isdigit isalpha isalnum isnumeric isdecimal isidentifier startswith endswith count find index rfind rindex
    exists is_file is_dir keys_count hexdigest digest __len__ is_relative_to""".split()
)
_OTHER_TYPES = ("json", "plain", "csv", "image", "octet", "pdf", "xml", "javascript", "event-stream")
_SAFE_LOADERS = ("SafeLoader", "CSafeLoader", "BaseLoader", "CBaseLoader")
_WITHOUT_CHANCE = frozenset({"seed", "getstate", "setstate", "SystemRandom", "Random", "shuffle"})
_MOST_HELPERS = 6


class Arguments:
    """The values that a call is given."""

    def __init__(self, positional: Sequence[Value], named: Mapping[str, Value]) -> None:
        self.positional = positional
        self.named = named

    def all(self) -> list[Value]:
        """Every one of them."""
        return [*self.positional, *self.named.values()]

    def pick(self, which: Iterable[int | str]) -> list[Value]:
        """Those at these positions and with these names."""
        chosen = []
        for key in which:
            if isinstance(key, str):
                chosen += [self.named[key]] if key in self.named else []
            elif key < len(self.positional):
                chosen.append(self.positional[key])
        return chosen


class Calls(Expressions):
    """Values of calls, and the harm that they do."""

    context: tuple[str, ...] = ()
    depth: int = 0
    sinks: list[ParameterSink]

    def call(self, node: ast.Call) -> Value:
        """The value of a call; what outside text does in it is noted."""
        arguments = Arguments(
            [self.value(argument) for argument in node.args],
            {key.arg or "**": self.value(key.value) for key in node.keywords},
        )
        for name, held in arguments.named.items():
            self.named_secret(name, held, node.lineno)
        receiver, name, path = self._callee(node)
        self._look(node, receiver, name, path, arguments)
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
            path = "" if is_request or receiver.origins or own else self.value(node.func).path
            return receiver, node.func.attr, path or f".{node.func.attr}"
        path = self.value(node.func).path
        return None, path.rpartition(".")[2], path

    # What suffers.

    def _look(self, node: ast.Call, receiver: Value | None, name: str, path: str, arguments: Arguments) -> None:
        if path in SUBPROCESS:
            self._subprocess(node, name, arguments)
        known = SINKS.get(path) or (SINKS.get(f".{name}") if receiver is not None else None)
        if known is not None and self._is_meant(node, known[0], receiver, name, path, arguments):
            harm, which = known
            for argument in arguments.pick(which):
                self._judge(node, harm, name, argument, is_call=True)
        if receiver is not None:
            self._look_at_method(node, receiver, name, arguments)
        self._look_at_parser(node, path, arguments)
        if path.startswith("hashlib."):
            self._hash(node, path, arguments)

    def _is_meant(  # noqa: PLR0911, PLR0913 - one answer for each kind of harm
        self, node: ast.Call, harm: Harm, receiver: Value | None, name: str, path: str, arguments: Arguments
    ) -> bool:
        """Whether a function of this name does here what the table says."""
        text = " ".join(argument.pieces for argument in arguments.all())
        match harm:
            case Harm.SQL if receiver is not None and path not in SINKS and name != "extra":
                about = ast.unparse(node.func.value)[-80:] if isinstance(node.func, ast.Attribute) else ""
                return bool(SQL_TEXT.search(text) or DATABASE_NAMES.search(about))
            case Harm.XPATH if name.startswith(("find", "iterfind")):
                return bool(XPATH_TEXT.search(text))
            case Harm.LDAP:
                return bool(FILTER_TEXT.search(text))
            case Harm.OBJECT if name in ("load", "load_all") and path.startswith("yaml."):
                loader = " ".join(value.path for value in arguments.pick((1, "Loader")))
                return not loader.endswith(_SAFE_LOADERS)
            case Harm.HTML if name in ("HttpResponse", "Response", "make_response"):
                about = arguments.pick(("content_type", "mimetype", "media_type"))
                is_html = not any(word in str(value.const) for value in about for word in _OTHER_TYPES)
                needs_type = path.startswith(("aiohttp", "starlette", "fastapi"))
                return is_html and (not needs_type or any("html" in str(value.const) for value in about))
            case Harm.CODE if name == "compile":
                return receiver is None
        return True

    def _judge(self, node: ast.Call, harm: Harm, target: str, value: Value, *, is_call: bool = False) -> None:
        """Note what a value does at a call; and for ruff's own rules, whether it is harmless there."""
        if harm in (Harm.REDIRECT, Harm.FETCH) and _has_fixed_host(value.prefix, may_be_path=harm is Harm.REDIRECT):
            return
        if isinstance(value.items, (dict, list)) and harm is Harm.HTML:
            return
        self.hit(harm, node, target, value)
        if is_call and harm in (Harm.SHELL, Harm.CODE, Harm.OBJECT):
            is_safe = value.harmless or harm in value.safe
            self.notes.judge(node.lineno, harm, harmless=is_safe and harm is not Harm.OBJECT)

    def hit(self, harm: Harm, node: ast.expr | ast.stmt, target: str, value: Value) -> None:
        """Note that a value reaches a place, if anything in it comes from outside or from a parameter."""
        if not value.can_do(harm):
            return
        for origin in value.origins:
            flow = Flow(
                harm=harm,
                line=node.lineno,
                end_line=node.end_lineno or node.lineno,
                target=target,
                source=origin.text,
                source_line=origin.line,
                lines=value.lines,
            )
            if origin.kind == "outside":
                self.notes.flows[flow] = None
                return
            if origin.kind == "parameter":
                self.sinks.append(ParameterSink(origin.text, harm, flow))

    def _subprocess(self, node: ast.Call, name: str, arguments: Arguments) -> None:
        command = next(iter(arguments.pick((0, "args"))), NOTHING_KNOWN)
        shell = arguments.named.get("shell")
        has_shell = shell is not None and shell.const is not False
        if isinstance(command.items, list) and command.items and not has_shell:
            first, *rest = command.items
            is_shell = isinstance(first.const, str) and SHELLS.fullmatch(first.const) is not None
            has_flag = any(isinstance(word.const, str) and word.const.startswith("-") for word in rest)
            command = mix((first, *(rest if is_shell and has_flag else ())), node.lineno)
        elif not has_shell and not isinstance(command.items, list) and not command.prefix:
            # A list that was put together elsewhere: what is in it are arguments, as far as one can tell.
            command = command if command.pieces or command.is_known else NOTHING_KNOWN
        self._judge(node, Harm.SHELL, name, command, is_call=has_shell)

    def _look_at_method(self, node: ast.Call, receiver: Value, name: str, arguments: Arguments) -> None:
        if name in PATH_METHODS and receiver.path.startswith("pathlib."):
            self.hit(Harm.PATH, node, name, receiver)
        if name == "save" and receiver.origins:
            for argument in arguments.pick((0, "dst")):
                self.hit(Harm.PATH, node, name, argument)
        if name == "set_cookie":
            self._cookie(node, arguments)
        if self.owner is not None and self.owner.kind:
            self._look_at_handler(node, name, arguments)

    def _look_at_handler(self, node: ast.Call, name: str, arguments: Arguments) -> None:
        """The methods of tornado's and the standard library's request handlers."""
        if name == "redirect":
            for argument in arguments.pick((0,)):
                self._judge(node, Harm.REDIRECT, name, argument)
        if name == "send_header":
            for argument in arguments.pick((1,)):
                self.hit(Harm.HEADER, node, name, argument)
        if name == "write":
            for argument in arguments.pick((0,)):
                if "<" in argument.pieces:
                    self.hit(Harm.HTML, node, name, argument)

    def _cookie(self, node: ast.Call, arguments: Arguments) -> None:
        for value in arguments.pick((1, "value")):
            self.guessable(node, value, "the cookie")
        secure = arguments.named.get("secure")
        label = next((value.const for value in arguments.pick((0, "key", "name"))), "")
        missing = secure is None and "**" not in arguments.named and isinstance(label, str) and SECRET_NAMES.search(label)
        if missing or (secure is not None and secure.const is False):
            self.notes.flows[Flow(Harm.COOKIE, node.lineno, node.end_lineno or node.lineno, "set_cookie")] = None

    def _look_at_parser(self, node: ast.Call, path: str, arguments: Arguments) -> None:
        if path == "start_response":
            for argument in arguments.pick((1,)):
                self.hit(Harm.HEADER, node, path, argument)
        given = arguments.all()
        receiver = self.value(node.func.value) if isinstance(node.func, ast.Attribute) else NOTHING_KNOWN
        if any(value.path == _UNSAFE_PARSER for value in (*given, receiver)):
            for value in given:
                self.hit(Harm.XML, node, path.rpartition(".")[2], value)
        if path.endswith("setFeature") and isinstance(node.func, ast.Attribute):
            is_entities = any("feature_external" in value.path for value in given)
            if is_entities and any(value.is_known and value.const for value in given):
                self.bind(node.func.value, Value(path=_UNSAFE_PARSER))

    def _hash(self, node: ast.Call, path: str, arguments: Arguments) -> None:
        """A weak hash is no matter where the names speak of caches and checksums, and of no secret."""
        words = " ".join((*self.context, *(ast.unparse(argument)[:60] for argument in node.args)))
        if HARMLESS_HASH.search(words) and not SECRET_HASH.search(words):
            self.notes.quiet[node.lineno].add("S324")
        kind = next((value.const for value in arguments.pick((0, "name"))), "")
        if path == "hashlib.new" and isinstance(node.args[0] if node.args else None, ast.Name) and isinstance(kind, str):
            self.notes.known.setdefault("hashes", []).append((node.lineno, kind))

    def named_secret(self, name: str, value: Value, line: int) -> Value:
        """Look whether a guessable value gets the name of a secret; the value is given back."""
        if value.origins and SECRET_NAMES.search(name) and not NOT_SECRET_NAMES.search(name):
            self.guessable(ast.Pass(lineno=line, end_lineno=line, col_offset=0), value, f"`{name}`")
        return value

    def guessable(self, node: ast.expr | ast.stmt, value: Value, what: str) -> None:
        """Note a secret that was made by chance that can be guessed."""
        for origin in value.origins:
            if origin.kind == "random":
                end = node.end_lineno or node.lineno
                flow = Flow(Harm.RANDOM, node.lineno, end, what, origin.text, origin.line, value.lines)
                self.notes.flows[flow] = None

    # What comes out.

    def _result(  # noqa: PLR0911 - one answer for each kind of function
        self, node: ast.Call, receiver: Value | None, name: str, path: str, arguments: Arguments
    ) -> Value:
        if path.startswith(("random.", "numpy.random.")) and name not in _WITHOUT_CHANCE and "SystemRandom" not in path:
            return Value(origins=(Origin(node.lineno, path, "random"),), safe=ALL_TEXT, lines=(node.lineno,), harmless=True)
        helper = self._helper(node, receiver, arguments)
        if helper is not None:
            return helper
        if path in CLEANERS:
            return number_of(mix(arguments.all()))
        safe = next((safe for pattern, safe in ESCAPERS if pattern.fullmatch(path.lstrip("."))), None)
        if safe is not None:
            handed = mix((*arguments.all(), receiver or HARMLESS), node.lineno)
            return handed.but(safe=handed.safe | safe)
        if receiver is not None:
            return self._method(node, receiver, name, path, arguments)
        if path.endswith("XMLParser") and self._resolves_entities(arguments):
            return Value(path=_UNSAFE_PARSER)
        return self._handed_on(node, name, path, arguments)

    @staticmethod
    def _resolves_entities(arguments: Arguments) -> bool:
        named = arguments.named
        return any(name in named and named[name].const is flag for name, flag in
                   (("resolve_entities", True), ("load_dtd", True), ("no_network", False)))  # fmt: skip

    def _method(  # noqa: PLR0911, PLR0913 - one answer for each kind of object
        self, node: ast.Call, receiver: Value, name: str, path: str, arguments: Arguments
    ) -> Value:
        if receiver.path == REQUEST or receiver.path in REQUEST_OBJECTS:
            return self.value(node.func)
        if receiver.path == ENVIRONMENT and name == "get" and arguments.positional:
            return self.environment(arguments.positional[0], node.lineno)
        if name in NETWORK_METHODS or (name in OUTSIDE_METHODS and self.owner is not None and self.owner.kind):
            return outside(node.lineno, f"{name}()")
        if path.endswith("XMLParser") and self._resolves_entities(arguments):
            return Value(path=_UNSAFE_PARSER)
        kept = self._container(node, receiver, name, arguments)
        if kept is not None:
            return kept
        if name in _NO_TEXT_METHODS:
            return number_of(receiver)
        if name == "join" and isinstance(receiver.const, str):
            return mix((receiver, *map(element, arguments.all())), node.lineno).but(path="")
        if name == "format" and (receiver.is_known or receiver.pieces):
            result = concatenate([receiver, *arguments.all()], node.lineno).but(prefix=receiver.prefix.partition("{")[0])
            self.note_query(node, result)
            return result
        if receiver.origins:
            keeps_path = receiver.path if receiver.path.startswith("pathlib.") else ""
            return mix((receiver, *arguments.positional), node.lineno).but(
                path=keeps_path, pieces=receiver.pieces, prefix=receiver.prefix if name in ("encode", "strip") else ""
            )
        if receiver.is_known or receiver.harmless:
            return mix((receiver, *arguments.all()), node.lineno)
        return self._handed_on(node, name, path, arguments)

    def _container(self, node: ast.Call, receiver: Value, name: str, arguments: Arguments) -> Value | None:
        """Methods of dictionaries, lists and stores with two keys, such as those of configparser."""
        given = arguments.positional
        if isinstance(receiver.items, dict):
            if name in ("get", "pop", "setdefault") and given:
                key = given[0]
                found = receiver.items.get(key.const) if key.is_known else None
                keys_known = key.is_known and isinstance(key.const, (str, int, tuple))
                if len(given) == 2 and (given[0].is_known and given[1].is_known) and found is None:
                    found = receiver.items.get((given[0].const, given[1].const))
                if found is None:
                    default = given[1:2] if name != "pop" else []
                    found = NOTHING_KNOWN if keys_known and not default else join([part(receiver, key), *default])
                return found
            if name in ("values", "items", "copy"):
                return mix(receiver.items.values()).but(items=receiver.items if name == "copy" else None)
            if name == "keys":
                return HARMLESS
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
            kind = f"{path}()" if path.startswith("pathlib.") else ""
            known = given[0] if len(given) == 1 and path in ("str", "bytes", "list", "dict", "tuple", "set") else mixed
            result = known if len(given) == 1 and not isinstance(known.const, (int, float)) else mixed
            if path in ("dict", "list") and not given:
                return HARMLESS.but(items={} if path == "dict" else [])
            if path == "dict" and "**" not in arguments.named and not arguments.positional:
                return mixed.but(items=dict(arguments.named))
            is_start = path in ("os.path.join", "pathlib.Path") and given
            return result.but(path=kind, prefix=given[0].prefix if is_start or len(given) == 1 else "")
        if mixed.origins and not STOPS_BY_NAME.match(name) and not name[:1].isupper():
            return mixed.but(path="", pieces="", prefix="")
        is_class = name[:1].isupper() or name in ("make_parser", "session")
        return Value(path=f"{path}()") if path and (is_class or path.count(".") <= 2) else NOTHING_KNOWN

    # Functions of this module.

    def _helper(self, node: ast.Call, receiver: Value | None, arguments: Arguments) -> Value | None:
        function = None
        skip = 0
        if isinstance(node.func, ast.Name):
            function = self.value(node.func).function
            if isinstance(function, ClassNotes):
                return Value(path=f"{node.func.id}()", function=function)
        elif isinstance(node.func, ast.Attribute) and receiver is not None:
            is_self = isinstance(node.func.value, ast.Name) and node.func.value.id in ("self", "cls")
            owner = self.owner if is_self else receiver.function
            if isinstance(owner, ClassNotes):
                function = owner.methods.get(node.func.attr)
                skip = 0 if function is None or _is_static(function) else 1
        if function is None or self.depth >= _MOST_HELPERS:
            return None
        summary = self.summary(function, self.owner if skip else None)
        return None if summary is None else self._applied(node, function, skip, summary, arguments)

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
                flow = Flow(sink.harm, sink.flow.line, sink.flow.end_line, sink.flow.target, origin.text, origin.line, lines)
                if origin.kind == "outside":
                    self.notes.flows[flow] = None
                elif origin.kind == "parameter":
                    self.sinks.append(ParameterSink(origin.text, sink.harm, flow))
        returned = summary.returned
        if not returned.origins:
            return returned
        sources = [given.get(o.text, NOTHING_KNOWN) if o.kind == "parameter" else Value(origins=(o,)) for o in returned.origins]
        mixed = mix(sources, node.lineno)
        harmless = all(source.harmless for source in sources)
        return returned.but(
            origins=mixed.origins,
            safe=returned.safe | mixed.safe,
            lines=mixed.lines,
            items=None,
            harmless=harmless,
            const=sources[0].const if harmless and len(sources) == 1 and not returned.pieces else UNKNOWN,
            pieces=f"{returned.pieces}{mixed.pieces}",
        )


def _is_static(function: Any) -> bool:
    return any(isinstance(item, ast.Name) and item.id == "staticmethod" for item in function.decorator_list)


def _has_fixed_host(prefix: str, *, may_be_path: bool) -> bool:
    """Whether the constant start of an address leaves no choice of the host."""
    scheme, mark, rest = prefix.partition("://")
    if mark:
        return "/" in rest or "?" in rest
    return may_be_path and len(scheme) > 1 and scheme[0] == "/" and scheme[1] not in "/\\"
