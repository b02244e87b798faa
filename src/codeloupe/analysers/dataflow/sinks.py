"""Looks at what values do where they arrive: which calls, names and comparisons suffer from what they are given."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from codeloupe.analysers.dataflow.knowledge import PATTERNS, SINKS, WORDS, Harm
from codeloupe.analysers.dataflow.values import (
    NOTHING_KNOWN,
    UPLOAD,
    ClassNotes,
    Flow,
    Notes,
    Origin,
    ParameterSink,
    Value,
)
from codeloupe.system.regex import regex

UNSAFE_PARSER = "<parser that resolves entities>"
_SUBPROCESS = frozenset(f"subprocess.{name}" for name in ("run", "call", "check_call", "check_output", "Popen"))
_SHELLS = regex(r"(?:/\w+)*/?(?:sh|bash|dash|zsh|ksh|cmd|cmd\.exe|powershell|pwsh)$")
_FILTER_TEXT = regex(r"\([&|!]?\(?[\w-]*=|(?:^|,)\s*(?:ou|dc|cn|uid|o)=")
_XPATH_TEXT = regex(r"//|\[@?|\./|/\w+/|::")
_SIGNATURE = regex(r"hmac\.(?:new\(\)\.(?:hex)?digest|digest)\(\)")
_OTHER_TYPES = ("json", "plain", "csv", "image", "octet", "pdf", "xml", "javascript", "event-stream")


class Call(Struct):
    """A call: the object whose method it is, the last part of the name, the full name, and the values it is given."""

    node: ast.Call
    receiver: Value | None
    name: str
    path: str
    positional: list[Value]
    named: dict[str, Value]

    @property
    def line(self) -> int:
        """Where it begins."""
        return self.node.lineno

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


class Sinks:
    """Notes harm. `context` are the names around the code; `sinks` collects what the parameters of a function do."""

    def __init__(self, notes: Notes, owner: ClassNotes | None) -> None:
        self.notes = notes
        self.owner = owner
        self.context: tuple[str, ...] = ()
        self.sinks: list[ParameterSink] = []

    def note(self, harm: Harm, node: ast.expr | ast.stmt, target: str) -> None:
        """Note something that does harm whatever the values are."""
        self.notes.flows[Flow(harm, node.lineno, node.end_lineno or node.lineno, target)] = None

    def hit(self, harm: Harm, node: ast.expr | ast.stmt, target: str, value: Value) -> None:
        """Note that a value reaches a place, if anything in it comes from outside or from a parameter."""
        self._hit(harm, (node.lineno, node.end_lineno or node.lineno), target, value)

    def _hit(self, harm: Harm, lines: tuple[int, int], target: str, value: Value) -> None:
        if value.can_do(harm) and not (harm is Harm.PATH and value.path == UPLOAD):
            for origin in value.origins:
                self.reached(Flow(harm, *lines, target, origin.text, origin.line, value.lines), origin)
                if origin.kind == "outside":
                    return

    def reached(self, flow: Flow, origin: Origin) -> None:
        """Note a flow from outside, or from a parameter of the function that is being read."""
        if origin.kind == "outside":
            self.notes.flows[flow] = None
        elif origin.kind == "parameter" and flow.harm not in origin.safe:
            self.sinks.append((origin.text, flow))

    def judge(self, node: ast.expr, harm: Harm, value: Value) -> None:
        """Note, for ruff's own rules, whether a value is harmless at its line."""
        (self.notes.harmless if value.is_proven(harm) else self.notes.doubtful)[node.lineno].add(harm)

    def guessable(self, lines: tuple[int, int], value: Value, what: str) -> None:
        """Note a secret that was made by chance that can be guessed."""
        for origin in value.origins:
            if origin.kind == "random":
                self.notes.flows[Flow(Harm.RANDOM, *lines, what, origin.text, origin.line, value.lines)] = None

    def named_secret(self, name: str, value: Value, line: int) -> Value:
        """Look whether a secret is guessable, or a program comes from outside, by its name; gives the value back."""
        if name == "$where":
            self._hit(Harm.CODE, (line, line), name, value)
        if value.origins and PATTERNS.secret_names.search(name) and not PATTERNS.not_secret_names.search(name):
            self.guessable((line, line), value, f"`{name}`")
        return value

    def compared(self, node: ast.Compare, values: Iterable[Value]) -> None:
        """Look whether a signature is compared character by character. A query that is only compared is not run."""
        for text in (node.left, *node.comparators):
            if isinstance(text, ast.JoinedStr):
                self.notes.quiet[text.lineno].add("S608")
        if isinstance(node.ops[0], (ast.Eq, ast.NotEq)) and any(_SIGNATURE.fullmatch(value.path) for value in values):
            self.note(Harm.TIMING, node, "the comparison")

    def look(self, call: Call) -> None:
        """Note what the arguments of a call do in it."""
        node, name, path, given = call.node, call.name, call.path, call.given
        if path in _SUBPROCESS:
            self._subprocess(call)
        known = SINKS.get(path) or (SINKS.get(f".{name}") if call.receiver is not None else None)
        if known is not None and _is_meant(call, known[0]):
            for argument in call.pick(*known[1]):
                self._arrives(node, known[0], name, argument, is_call=True)
        if call.receiver is not None:
            self._look_at_method(call, call.receiver)
        last = path.rpartition(".")[2]
        if path == "start_response":
            self.hit(Harm.HEADER, node, path, call.first(1))
        # Before version 5 the parser of lxml resolves entities by default.
        is_lxml = path.startswith("lxml.") and last in ("fromstring", "parse", "XML", "iterparse", "fromstringlist")
        is_unsafe = any(value.path == UNSAFE_PARSER for value in (*given, call.receiver or NOTHING_KNOWN))
        for value in given if is_unsafe or (is_lxml and len(given) == 1) else ():
            self.hit(Harm.XML, node, last, value)
        if path.startswith("hashlib."):
            # A weak hash is no matter where the names speak of caches and checksums, and of no secret.
            words = " ".join((*self.context, *(ast.unparse(argument)[:60] for argument in node.args)))
            if PATTERNS.harmless_hash.search(words) and not PATTERNS.secret_hash.search(words):
                self.notes.quiet[node.lineno].add("S324")

    def _arrives(self, node: ast.Call, harm: Harm, target: str, value: Value, *, is_call: bool = False) -> None:
        """Note what a value does at a call; and for ruff's own rules, whether it is harmless there."""
        if harm in (Harm.REDIRECT, Harm.FETCH) and _has_fixed_host(value.prefix, may_be_path=harm is Harm.REDIRECT):
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
            is_shell = first.harmless and any(map(_SHELLS.fullmatch, first.pieces.split()))
            has_flag = any(isinstance(word.const, str) and word.const.startswith("-") for word in rest)
            command = Value.mix((first, *(rest if is_shell and has_flag else ())), call.line)
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
                    self.guessable((node.lineno, node.end_lineno or node.lineno), value, "the cookie")
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


def _is_meant(call: Call, harm: Harm) -> bool:
    """Whether a function of this name does here what the table says."""
    name, path = call.name, call.path
    text = " ".join(argument.pieces for argument in call.given)
    match harm:
        case Harm.SQL if call.receiver is not None and path not in SINKS and name != "extra":
            about = ast.unparse(call.node.func.value)[-80:] if isinstance(call.node.func, ast.Attribute) else ""
            return bool(PATTERNS.sql_text.search(text) or PATTERNS.database_names.search(about))
        case Harm.XPATH if name.startswith(("find", "iterfind")):
            return bool(_XPATH_TEXT.search(text))
        case Harm.LDAP:
            return bool(_FILTER_TEXT.search(text))
        case Harm.OBJECT if name in ("load", "load_all") and path.startswith("yaml."):
            loader = " ".join(value.path for value in call.pick(1, "Loader"))
            return not loader.endswith(("SafeLoader", "BaseLoader"))
        case Harm.HTML if name in ("HttpResponse", "Response", "make_response"):
            kind = " ".join(str(value.const) for value in call.pick("content_type", "mimetype", "media_type"))
            needs_type = path.startswith(("aiohttp", "starlette", "fastapi"))
            return not any(word in kind for word in _OTHER_TYPES) and (not needs_type or "html" in kind)
        case Harm.CODE if name == "compile":
            return call.receiver is None
    return True


def _has_fixed_host(prefix: str, *, may_be_path: bool) -> bool:
    """Whether the constant start of an address leaves no choice of the host."""
    scheme, mark, rest = prefix.partition("://")
    if mark:
        return "/" in rest or "?" in rest
    return may_be_path and len(scheme) > 1 and scheme[0] == "/" and scheme[1] not in "/\\"
