"""Looks at calls: which of them suffer from what they are given."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence

from codeloupe.analysers.dataflow.expressions import Expressions
from codeloupe.analysers.dataflow.knowledge import (
    DATABASE_NAMES,
    FILTER_TEXT,
    HARMLESS_HASH,
    NOT_SECRET_NAMES,
    PATH_METHODS,
    SECRET_HASH,
    SECRET_NAMES,
    SHELLS,
    SINKS,
    SQL_TEXT,
    SUBPROCESS,
    XPATH_TEXT,
)
from codeloupe.analysers.dataflow.meanings import Harm
from codeloupe.analysers.dataflow.values import (
    NOTHING_KNOWN,
    UPLOAD,
    Flow,
    ParameterSink,
    Value,
    mix,
)

UNSAFE_PARSER = "<parser that resolves entities>"
_OTHER_TYPES = ("json", "plain", "csv", "image", "octet", "pdf", "xml", "javascript", "event-stream")
# Before version 5 their parser resolves entities unless it is told not to.
_LXML_READERS = frozenset({"fromstring", "parse", "XML", "iterparse", "fromstringlist"})
_SIGNATURE = re.compile(r"hmac\.(?:new\(\)\.(?:hex)?digest|digest)\(\)")
_SAFE_LOADERS = ("SafeLoader", "CSafeLoader", "BaseLoader", "CBaseLoader")


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


class Sinks(Expressions):
    """Looks at each call for harm. `context` are the names around it; `sinks` collects what parameters do."""

    context: tuple[str, ...] = ()
    sinks: list[ParameterSink]

    def look(self, node: ast.Call, receiver: Value | None, name: str, path: str, arguments: Arguments) -> None:
        """Note what the arguments of a call do in it."""
        if path in SUBPROCESS:
            self._subprocess(node, name, arguments)
        known = SINKS.get(path) or (SINKS.get(f".{name}") if receiver is not None else None)
        if known is not None and self._is_meant(node, known[0], receiver, name, path, arguments):
            harm, which = known
            for argument in arguments.pick(which):
                self._judge(node, harm, name, argument, is_call=True)
        if receiver is not None:
            self._look_at_method(node, receiver, name, arguments)
        self._look_at_parser(node, receiver or NOTHING_KNOWN, path, arguments)
        if path.startswith("hashlib."):
            self._hash(node, path, arguments)

    def _is_meant(
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
                kind = " ".join(
                    str(value.const) for value in arguments.pick(("content_type", "mimetype", "media_type"))
                )
                needs_type = path.startswith(("aiohttp", "starlette", "fastapi"))
                return not any(word in kind for word in _OTHER_TYPES) and (not needs_type or "html" in kind)
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
            self.notes.judge(node.lineno, harm, harmless=value.is_proven(harm))

    def hit(self, harm: Harm, node: ast.expr | ast.stmt, target: str, value: Value) -> None:
        """Note that a value reaches a place, if anything in it comes from outside or from a parameter."""
        if not value.can_do(harm) or (harm is Harm.PATH and value.path == UPLOAD):
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
            if origin.kind == "parameter" and harm not in origin.safe:
                self.sinks.append(ParameterSink(origin.text, harm, flow))

    def _subprocess(self, node: ast.Call, name: str, arguments: Arguments) -> None:
        command = next(iter(arguments.pick((0, "args"))), NOTHING_KNOWN)
        shell = arguments.named.get("shell")
        has_shell = shell is not None and shell.const is not False
        if isinstance(command.items, list) and command.items and not has_shell:
            first, *rest = command.items
            is_shell = first.harmless and any(map(SHELLS.fullmatch, first.pieces.split()))
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
        missing = (
            secure is None and "**" not in arguments.named and isinstance(label, str) and SECRET_NAMES.search(label)
        )
        if missing or (secure is not None and secure.const is False):
            self.notes.flows[Flow(Harm.COOKIE, node.lineno, node.end_lineno or node.lineno, "set_cookie")] = None

    def _look_at_parser(self, node: ast.Call, receiver: Value, path: str, arguments: Arguments) -> None:
        if path == "start_response":
            for argument in arguments.pick((1,)):
                self.hit(Harm.HEADER, node, path, argument)
        given = arguments.all()
        if path.startswith("lxml.") and path.rpartition(".")[2] in _LXML_READERS and len(given) == 1:
            self.hit(Harm.XML, node, path.rpartition(".")[2], given[0])
        if any(value.path == UNSAFE_PARSER for value in (*given, receiver)):
            for value in given:
                self.hit(Harm.XML, node, path.rpartition(".")[2], value)
        if path.endswith("setFeature") and isinstance(node.func, ast.Attribute):
            is_entities = any("feature_external" in value.path for value in given)
            if is_entities and any(value.is_known and value.const for value in given):
                self.bind(node.func.value, Value(path=UNSAFE_PARSER))

    def _hash(self, node: ast.Call, path: str, arguments: Arguments) -> None:
        """A weak hash is no matter where the names speak of caches and checksums, and of no secret."""
        words = " ".join((*self.context, *(ast.unparse(argument)[:60] for argument in node.args)))
        if HARMLESS_HASH.search(words) and not SECRET_HASH.search(words):
            self.notes.quiet[node.lineno].add("S324")
        kind = next((value.const for value in arguments.pick((0, "name"))), "")
        if (
            path == "hashlib.new"
            and isinstance(node.args[0] if node.args else None, ast.Name)
            and isinstance(kind, str)
        ):
            self.notes.known.setdefault("hashes", []).append((node.lineno, kind))

    def named_secret(self, name: str, value: Value, line: int) -> Value:
        """Look whether a secret is guessable, or a program comes from outside, by its name; gives the value back."""
        if name == "$where":
            self.hit(Harm.CODE, ast.Pass(lineno=line, end_lineno=line, col_offset=0), name, value)
        if value.origins and SECRET_NAMES.search(name) and not NOT_SECRET_NAMES.search(name):
            self.guessable(ast.Pass(lineno=line, end_lineno=line, col_offset=0), value, f"`{name}`")
        return value

    def compared(self, node: ast.Compare, values: Sequence[Value]) -> None:
        """Look whether a signature is compared character by character. A query that is only compared is not run."""
        for text in (node.left, *node.comparators):
            if isinstance(text, ast.JoinedStr):
                self.notes.quiet[text.lineno].add("S608")
        if isinstance(node.ops[0], (ast.Eq, ast.NotEq)) and any(_SIGNATURE.fullmatch(value.path) for value in values):
            self.notes.flows[Flow(Harm.TIMING, node.lineno, node.end_lineno or node.lineno, "the comparison")] = None

    def guessable(self, node: ast.expr | ast.stmt, value: Value, what: str) -> None:
        """Note a secret that was made by chance that can be guessed."""
        for origin in value.origins:
            if origin.kind == "random":
                end = node.end_lineno or node.lineno
                flow = Flow(Harm.RANDOM, node.lineno, end, what, origin.text, origin.line, value.lines)
                self.notes.flows[flow] = None


def _has_fixed_host(prefix: str, *, may_be_path: bool) -> bool:
    """Whether the constant start of an address leaves no choice of the host."""
    scheme, mark, rest = prefix.partition("://")
    if mark:
        return "/" in rest or "?" in rest
    return may_be_path and len(scheme) > 1 and scheme[0] == "/" and scheme[1] not in "/\\"
