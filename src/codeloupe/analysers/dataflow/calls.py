"""Calls: arguments that reach a sink, and functions and classes of this module."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from codeloupe.analysers.dataflow.expressions import is_request
from codeloupe.analysers.dataflow.harms import JUDGED_CALLS, Harm
from codeloupe.analysers.dataflow.knowledge import (
    DATABASE_NAMES,
    HARMLESS_HASH,
    LDAP_FILTER,
    LXML_FUNCTIONS,
    OTHER_CONTENT_TYPES,
    PATH_METHODS,
    SECRET_HASH,
    SHELL_PROGRAMS,
    SINKS,
    SQL_TEXT,
    SUBPROCESS_FUNCTIONS,
    XPATH_TEXT,
    names_a_secret,
)
from codeloupe.analysers.dataflow.notes import ClassNotes, Flow, Function, Summary
from codeloupe.analysers.dataflow.results import Call, Results, random_result
from codeloupe.analysers.dataflow.syntax import F_STRING
from codeloupe.analysers.dataflow.values import (
    NOTHING_KNOWN,
    UNKNOWN,
    UNSAFE_PARSER,
    Items,
    Value,
    concatenate,
    constant,
    join,
    mix,
)

# A function is read when it is first called, up to this many functions deep.
_DEEPEST_CALL = 6


class Calls(Results):
    """Calls. The reader of statements knows how to read a function of this module."""

    def _call(self, node: ast.Call) -> Value:
        positional = [self.value(argument) for argument in node.args]
        named: dict[str, Value] = {}
        for keyword in node.keywords:
            value = self.value(keyword.value)
            name = keyword.arg or "**"
            named[name] = value
            self.check_name(name, value, node.lineno)
        receiver = None
        if isinstance(node.func, ast.Attribute):
            receiver = self.value(node.func.value)
            path = self._method_path(node.func, receiver) or f".{node.func.attr}"
        else:
            path = self.value(node.func).path
        call = Call(node, receiver, path, positional, named)
        self._check_sinks(call)
        if path == F_STRING:
            text = concatenate(positional or [constant("")], node.lineno)
            self.judge_query(node, text)
            return text
        result = random_result(call)
        if result is None:
            result = self._own_result(call)
        return self.library_result(call) if result is None else result

    def _method_path(self, function: ast.Attribute, receiver: Value) -> str:
        is_own = isinstance(function.value, ast.Name) and function.value.id == "self"
        if is_own or receiver.origins or is_request(receiver):
            return ""
        return self.attribute_of(receiver, function).path

    # Sinks.

    def _check_sinks(self, call: Call) -> None:
        """Note what the arguments of a call do in it."""
        if call.path in SUBPROCESS_FUNCTIONS:
            self._check_subprocess(call)
        sink = SINKS.get(call.path)
        if sink is None and call.receiver is not None:
            sink = SINKS.get(f".{call.name}")
        if sink is not None and _is_sink(call, sink.harm):
            self._check_arguments(call, sink.harm, *sink.arguments)
        if call.receiver is not None:
            self._check_method(call, call.receiver)
        if call.path == "start_response":
            self.arrive(Harm.HEADER, call.node, call.path, call.first(1))
        if _is_unsafe_xml(call):
            for value in call.given:
                self.arrive(Harm.XML, call.node, call.path.rpartition(".")[2], value)
        if call.path.startswith("hashlib."):
            self._check_hash(call)

    def _check_arguments(self, call: Call, harm: Harm, *keys: int | str) -> None:
        for argument in call.pick(*keys):
            self._check_argument(call, harm, argument)
            if harm in JUDGED_CALLS:
                self.judge(call.node, harm, argument, call.expressions(*keys))

    def _check_argument(self, call: Call, harm: Harm, value: Value) -> None:
        if harm in (Harm.REDIRECT, Harm.FETCH) and _has_fixed_host(value.prefix, harm):
            return
        if harm is Harm.HTML and value.items is not None:
            return
        self.arrive(harm, call.node, call.name, value)

    def _check_subprocess(self, call: Call) -> None:
        command = call.first(0, "args")
        shell = call.named.get("shell")
        if shell is not None and shell.const is not False:
            self._check_arguments(call, Harm.SHELL, 0 if call.positional else "args")
            return
        if isinstance(command.items, list) and command.items:
            command = _program_of(command.items, call.line)
        elif command.items is None and not command.is_known and not command.prefix and not command.pieces:
            # A list that was built elsewhere: outside data in it is most likely an argument.
            command = NOTHING_KNOWN
        self._check_argument(call, Harm.SHELL, command)

    def _check_method(self, call: Call, receiver: Value) -> None:
        node = call.node
        name = call.name
        if name in PATH_METHODS and receiver.path.startswith("pathlib."):
            self.arrive(Harm.PATH, node, name, receiver)
        if name == "save" and receiver.origins:
            for argument in call.pick(0, "dst"):
                self.arrive(Harm.PATH, node, name, argument)
        if name == "set_cookie":
            self._check_cookie(call)
        if not self.is_in_handler:
            return
        if name == "redirect":
            self._check_argument(call, Harm.REDIRECT, call.first(0))
        elif name == "send_header":
            self.arrive(Harm.HEADER, node, name, call.first(1))
        elif name == "write" and "<" in call.first(0).pieces:
            self.arrive(Harm.HTML, node, name, call.first(0))

    def _check_cookie(self, call: Call) -> None:
        for value in call.pick(1, "value"):
            self.report_guessable(call.node, value, "the cookie")
        secure = call.named.get("secure")
        if secure is not None:
            is_insecure = secure.const is False
        else:
            label = call.first(0, "key", "name").const
            is_insecure = "**" not in call.named and isinstance(label, str) and names_a_secret(label)
        if is_insecure:
            self.report(Harm.COOKIE, call.node, "set_cookie")

    def _check_hash(self, call: Call) -> None:
        """Silence ruff about a weak hash if the names around it speak of caches or checksums, and of no secret."""
        nearby = [ast.unparse(node)[:60] for node in (*self.targets, *call.node.args)]
        words = " ".join([*self.context, *nearby])
        if HARMLESS_HASH.search(words) and not SECRET_HASH.search(words):
            self.notes.quiet[call.line].add("S324")

    # Functions and classes of this module.

    def _own_result(self, call: Call) -> Value | None:
        """Return the result of a function or class of this module, or None if it is not one or is not known."""
        called = call.node.func
        if isinstance(called, ast.Name):
            function = self._name(called.id).function
            if isinstance(function, ClassNotes):
                return self._new_object(call, function).but(path=f"{called.id}()", function=function)
            return self._function_result(call, function, None)
        if not isinstance(called, ast.Attribute) or call.receiver is None:
            return None
        kind = call.receiver.function
        if isinstance(called.value, ast.Name) and called.value.id in ("self", "cls"):
            kind = self.owner
        if not isinstance(kind, ClassNotes):
            return None
        method = kind.methods.get(called.attr)
        owner = None if method is None or _is_static(method) else kind
        return self._function_result(call, method, owner)

    def _function_result(self, call: Call, function: Function | None, owner: ClassNotes | None) -> Value | None:
        if function is None:
            return None
        summary = self.summary(function, owner)
        if summary is None:
            return None
        return self._apply(call, _arguments_by_name(function, owner, call), summary)

    def summary(self, function: Function, owner: ClassNotes | None) -> Summary | None:
        """Return the effect of calling a function, or None while it is being read or if it is too deep."""
        key = id(function)
        if key not in self.notes.summaries and self.depth < _DEEPEST_CALL:
            self.read_function(function, owner)
        return self.notes.summaries.get(key)

    def _new_object(self, call: Call, kind: ClassNotes) -> Value:
        """Return a new object, with the arguments that it stores."""
        made = kind.methods.get("__init__")
        summary = None if made is None else self.summary(made, kind)
        if made is None or summary is None:
            targets = [item.target for item in kind.node.body if isinstance(item, ast.AnnAssign)]
            fields = [target.id for target in targets if isinstance(target, ast.Name)]
            return Value(items={**dict(zip(fields, call.positional, strict=False)), **call.named})
        given = _arguments_by_name(made, kind, call)
        self._apply(call, given, summary)
        items: dict[str, Value] = {}
        for name, value in kind.initial_attributes.items():
            stored = _filled(value, given, call.line)
            items[name] = stored
            if stored.is_outside:
                kind.outside_attributes[name] = join([kind.outside_attributes.get(name, stored), stored])
                self.notes.stored_outside += 1
        return Value(items=items)

    def _apply(self, call: Call, given: Mapping[str, Value], summary: Summary) -> Value:
        """Return the result of a function of this module, and note what the arguments do in it."""
        for name, inner in summary.sinks:
            value = given.get(name, NOTHING_KNOWN)
            if not value.can_do(inner.harm):
                continue
            if inner.harm is Harm.HTML and isinstance(value.items, dict):
                continue
            lines = (*value.lines, call.line, *inner.lines)
            for origin in value.origins:
                flow = Flow(inner.harm, inner.line, inner.end_line, inner.target, origin.text, origin.line, lines)
                self.connect(flow, origin)
        return _filled(summary.returned, given, call.line)


def _is_sink(call: Call, harm: Harm) -> bool:
    """Return whether a function with the name of a sink is one here."""
    text = " ".join(argument.pieces for argument in call.given)
    match harm:
        case Harm.SQL if call.receiver is not None and call.path not in SINKS and call.name != "extra":
            about = ast.unparse(call.target)[-80:]
            return bool(SQL_TEXT.search(text) or DATABASE_NAMES.search(about))
        case Harm.XPATH if call.name.startswith(("find", "iterfind")):
            return XPATH_TEXT.search(text) is not None
        case Harm.LDAP:
            return LDAP_FILTER.search(text) is not None
        case Harm.OBJECT if call.path in ("yaml.load", "yaml.load_all"):
            loaders = " ".join(value.path for value in call.pick(1, "Loader"))
            return not loaders.endswith(("SafeLoader", "BaseLoader"))
        case Harm.HTML if call.name in ("HttpResponse", "Response", "make_response"):
            return _is_page(call)
        case Harm.CODE if call.name == "compile":
            return call.receiver is None
    return True


def _is_page(call: Call) -> bool:
    """Return whether a browser shows a response as a page."""
    types = call.pick("content_type", "mimetype", "media_type")
    content_type = " ".join(str(value.const) for value in types)
    if any(word in content_type for word in OTHER_CONTENT_TYPES):
        return False
    needs_type = call.path.startswith(("aiohttp", "starlette", "fastapi"))
    return not needs_type or "html" in content_type


def _has_fixed_host(prefix: str, harm: Harm) -> bool:
    """Return whether the constant start of an address leaves no choice of the host."""
    start, scheme_end, rest = prefix.partition("://")
    if scheme_end:
        return "/" in rest or "?" in rest
    return harm is Harm.REDIRECT and len(start) > 1 and start[0] == "/" and start[1] not in "/\\"


def _program_of(words: list[Value], line: int) -> Value:
    """Return the part of a command that is run: its program, and for a shell also the text it is given."""
    program = words[0]
    arguments = words[1:]
    is_shell = program.harmless and any(SHELL_PROGRAMS.fullmatch(word) for word in program.pieces.split())
    has_flag = any(isinstance(word.const, str) and word.const.startswith("-") for word in arguments)
    if is_shell and has_flag:
        return mix(words, line)
    return mix([program], line)


def _is_unsafe_xml(call: Call) -> bool:
    """Return whether a call parses XML and resolves entities. Before version 5, lxml's default parser does."""
    for value in (*call.given, call.receiver or NOTHING_KNOWN):
        if value.path == UNSAFE_PARSER:
            return True
    return len(call.given) == 1 and call.path.startswith("lxml.") and call.name in LXML_FUNCTIONS


def _is_static(method: Function) -> bool:
    for decorator in method.decorator_list:
        if isinstance(decorator, ast.Name) and decorator.id == "staticmethod":
            return True
    return False


def _arguments_by_name(function: Function, owner: ClassNotes | None, call: Call) -> dict[str, Value]:
    """Return the arguments by the names of the parameters. The first parameter of a method is its object."""
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    if owner is not None:
        names = names[1:]
    return {**dict(zip(names, call.positional, strict=False)), **call.named}


def _filled(returned: Value, given: Mapping[str, Value], line: int) -> Value:
    """Return what a function returns, with the arguments in place of its parameters."""
    if not returned.origins:
        return returned
    sources: list[Value] = []
    for origin in returned.origins:
        if origin.kind == "parameter":
            sources.append(given.get(origin.text, NOTHING_KNOWN).but_safe(origin.safe))
        else:
            sources.append(Value(origins=(origin,), followed=True))
    mixed = mix(sources, line)
    is_harmless = mixed.harmless and returned.followed
    is_constant = is_harmless and len(sources) == 1 and not returned.pieces
    return returned.but(
        origins=mixed.origins,
        safe=returned.safe | mixed.safe,
        lines=mixed.lines,
        items=_filled_items(returned.items, given, line),
        harmless=is_harmless,
        followed=mixed.followed and returned.followed,
        const=sources[0].const if is_constant else UNKNOWN,
        pieces=f"{returned.pieces}{mixed.pieces}",
    )


def _filled_items(items: Items | None, given: Mapping[str, Value], line: int) -> Items | None:
    if items is None:
        return None
    if isinstance(items, dict):
        return {key: _filled(item, given, line) for key, item in items.items()}
    return [_filled(item, given, line) for item in items]
