"""Reads statements, functions and classes: the variables on every way through the code."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from codeloupe.analysers.dataflow import values as tables
from codeloupe.analysers.dataflow.calls import Calls
from codeloupe.analysers.dataflow.guards import fits, name_of
from codeloupe.analysers.dataflow.values import HARMLESS, NOTHING_KNOWN, PATTERNS, UNKNOWN, WORDS, Harm, Value

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Env = dict[str, Value]


def _route_of(function: _Function) -> str | None:
    """The address that a decorator gives a function, or None when no web framework calls it."""
    for decorator in function.decorator_list:
        match decorator:
            case ast.Call(func=ast.Attribute(attr=name), args=[ast.Constant(value=str(address)), *_]):
                if name in WORDS.route_methods and (address.startswith("/") or not address):
                    return address
            case ast.Call(func=ast.Name(id="route" | "get" | "post"), args=[ast.Constant(value=str(address)), *_]):
                return address
    return None


def _parameters(function: _Function, notes: tables.Notes, owner: tables.ClassNotes | None) -> _Env:
    """What is in the parameters of a function when it is called, by a web framework or by other code."""
    positional = [*function.args.posonlyargs, *function.args.args]
    arguments = [*positional, *function.args.kwonlyargs]
    names = [argument.arg for argument in arguments]
    defaults = dict(zip([a.arg for a in positional][::-1], function.args.defaults[::-1], strict=False))
    defaults |= {a.arg: d for a, d in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True) if d}
    route = _route_of(function)
    numbers = {name for pair in PATTERNS.numbers_in_route.findall(route or "") for name in pair}
    is_handler = owner is not None and bool(owner.kind) and function.name in ("get", "post", "put", "delete", "patch")
    is_view = notes.is_django and owner is None and names[:1] == ["request"]
    values: _Env = {}
    for argument in arguments:
        name = argument.arg
        annotation = "" if argument.annotation is None else ast.unparse(argument.annotation)[:80]
        comes_in = route is not None or is_handler or (is_view and name not in WORDS.not_from_address)
        default = f"{annotation} {ast.unparse(defaults[name])[:80]}" if name in defaults else annotation
        is_injected = "Depends(" in default or "Security(" in default
        if name in ("self", "cls"):
            continue
        if name in ("request", "req") or annotation.rpartition(".")[2] in ("Request", "HttpRequest"):
            values[name] = Value(path=tables.REQUEST)
        elif name == "environ" and "start_response" in names:
            values[name] = Value(path=tables.ENVIRONMENT)
        elif name == "start_response":
            values[name] = Value(path=name)
        elif tables.is_plain(annotation) or name in numbers:
            is_number = name in numbers or PATTERNS.number.search(annotation) is not None
            values[name] = HARMLESS if is_number else NOTHING_KNOWN
        elif comes_in and not is_injected:
            # What the framework makes of a part of the request, by the annotation.
            kind = notes.globals[annotation].function if annotation in notes.globals else None
            bases = kind.node.bases if isinstance(kind, tables.ClassNotes) else ()
            path = tables.UPLOAD if annotation.endswith("UploadFile") else ""
            sent = Value.outside(argument.lineno, f"the parameter `{name}`").but(function=kind, path=path)
            values[name] = HARMLESS if any("Enum" in ast.unparse(base)[-60:] for base in bases) else sent
        else:
            values[name] = Value(origins=(tables.Origin(argument.lineno, name, "parameter"),))
    return values


class Reader(Calls):
    """Reads statements; the method for a kind of them is called after its class, as those for expressions are."""

    def block(self, statements: Sequence[ast.stmt]) -> None:
        """Read statements until the end, or until one that leaves."""
        for statement in statements:
            if self.ended:
                return
            match statement:
                case ast.AnnAssign(target=target, value=ast.expr() as value):
                    self._assigned(statement, target, self.value(value))
                case ast.Raise():
                    if statement.exc is not None:
                        self.value(statement.exc)
                    self.ended = True
                case ast.Break() | ast.Continue():
                    if self._loops:
                        self._loops[-1].append(dict(self.env))
                    self.ended = True
                case ast.Global():
                    self.shared.update(statement.names)
                case _:
                    reader = self.reader(statement)
                    if reader is not None:
                        reader(statement)

    # Simple statements.

    def _expr(self, node: ast.Expr) -> None:
        self.value(node.value)
        match node.value:
            case ast.Call(func=ast.Name() | ast.Attribute(value=ast.Name()) as function):
                self.ended = self.value(function).path in WORDS.ends

    def _assign(self, node: ast.Assign) -> None:
        self.context = (*self.context[:2], *(ast.unparse(target)[:60] for target in node.targets))
        value = self.value(node.value)
        self.context = self.context[:2]
        for target in node.targets:
            self._assigned(node, target, value)
            match target, node.value:
                case ast.Name(id=name), ast.Call(args=[ast.Name(id=source), *_]) as call:
                    if PATTERNS.address.search(ast.unparse(call.func)):
                        self.made_from[name] = source
                case ast.Name(id=name), ast.Call(args=[ast.Constant(value=str(pattern)), *_]):
                    if value.path == "re.compile()":
                        self.notes.patterns[name] = pattern

    def _assigned(self, node: ast.stmt, target: ast.expr, value: Value) -> None:
        match target:
            case ast.Attribute(attr="verify_mode") if value.path == "ssl.CERT_NONE":
                self.note(Harm.TLS, node, "verify_mode")
            case ast.Subscript(slice=ast.Constant(value="Location")):
                self.hit(Harm.REDIRECT, node, "Location", value)
            case ast.Subscript(slice=key):
                label = self.value(key).const if value.origins else UNKNOWN
                self.named_secret(label if isinstance(label, str) else name_of(key), value, node.lineno)
            case ast.Name(id=name) | ast.Attribute(attr=name):
                self.named_secret(name, value, node.lineno)
        self.bind(target, value)

    def _augassign(self, node: ast.AugAssign) -> None:
        parts = [self.value(node.target), self.value(node.value)]
        is_text = isinstance(node.op, ast.Add) and parts[0].items is None
        self.bind(node.target, Value.concatenate(parts, node.lineno) if is_text else Value.mix(parts, node.lineno))

    def _delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            match target:
                case ast.Subscript(value=ast.Name(id=name) as holder, slice=at):
                    base, key = self.value(holder), self.value(at)
                    if isinstance(base.items, list) and base.has_index(key):
                        items = [*base.items]
                        del items[key.const]
                        self.env[name] = Value.container(items)
                case ast.Name(id=name):
                    self.env.pop(name, None)

    def _assert(self, node: ast.Assert) -> None:
        self.value(node.test)
        names = (part.attr for part in ast.walk(node.test) if isinstance(part, ast.Attribute))
        if any(PATTERNS.privileges.match(name) for name in names):
            self.note(Harm.ASSERT, node, "assert")
        self.env = self.refined(node.test, truth=True)

    def _return(self, node: ast.Return) -> None:
        value = page = HARMLESS if node.value is None else self.value(node.value)
        if self.is_page:  # a text that a route of flask returns is a page
            is_other = False
            if isinstance(node.value, ast.Tuple) and isinstance(value.items, list) and value.items:
                page, *rest = value.items
                is_other = any(word in part.pieces for part in rest for word in ("json", "plain"))
            if page.items is None and not is_other:
                self.hit(Harm.HTML, node, "the response", page)
        if self.is_wsgi and "<" in value.pieces:
            self.hit(Harm.HTML, node, "the response", value)
        if value.origins and PATTERNS.secret_names.search(self.context[0] if self.context else ""):
            self.guessable(node, value, f"the return value of `{self.context[0]}`")
        self.returned.append(value)
        self.ended = True

    # Branches.

    def _run(self, env: _Env, statements: Sequence[ast.stmt]) -> _Env | None:
        """The variables after a branch, or None when it leaves."""
        self.env, self.ended = env, False
        self.block(statements)
        return None if self.ended else self.env

    def _merge(self, ends: Sequence[_Env | None]) -> None:
        open_ends = [env for env in ends if env is not None]
        self.ended = not open_ends
        if open_ends:
            self.env = self._joined(open_ends)

    def _joined(self, ends: Sequence[_Env]) -> _Env:
        if len(ends) == 1:
            return ends[0]
        self.notes.budget -= len(ends) * len(ends[0]) // 4
        names = dict.fromkeys(name for env in ends for name in env)
        return {name: Value.join([env[name] for env in ends if name in env]) for name in names}

    def _if(self, node: ast.If) -> None:
        test = self.value(node.test)
        if test.is_known:
            self.block(node.body if test.const else node.orelse)
            return
        then, other = self.refined(node.test, truth=True), self.refined(node.test, truth=False)
        self._merge([self._run(then, node.body), self._run(other, node.orelse)])

    def _loop(self, body: Sequence[ast.stmt], start: Callable[[], None]) -> None:
        """Read a body twice, for what one turn leaves to the next; deep inside of other loops once."""
        env: _Env | None = dict(self.env)
        exits: list[_Env] = [dict(self.env)]
        self._loops.append(exits)
        for _ in range(2 if len(self._loops) <= 3 else 1):
            if env is None:
                break
            self.env = env
            start()
            env = self._run(self.env, body)
            if env is not None:
                exits.append(dict(env))
        self._loops.pop()
        self._merge(exits)

    def _for(self, node: ast.For | ast.AsyncFor) -> None:
        each = self.value(node.iter).element()
        self._loop(node.body, lambda: self.bind(node.target, each))
        self.block(node.orelse)

    def _while(self, node: ast.While) -> None:
        def start() -> None:
            self.value(node.test)
            self.env = self.refined(node.test, truth=True)

        self._loop(node.body, start)
        if not self.ended:
            self.env = self.refined(node.test, truth=False)
        self.block(node.orelse)

    def _with(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            value = self.value(item.context_expr)
            if item.optional_vars is not None:
                self.bind(item.optional_vars, value)
        self.block(node.body)

    def _try(self, node: ast.Try) -> None:
        before = dict(self.env)
        ends = [self._run(dict(before), [*node.body, *node.orelse])]
        reached = self._joined([before, self.env])
        for handler in node.handlers:
            caught = {handler.name: NOTHING_KNOWN} if handler.name else {}
            ends.append(self._run({**reached, **caught}, handler.body))
        self._merge(ends)
        if self.ended and node.finalbody:
            self._run(dict(reached), node.finalbody)
            self.ended = True
        else:
            self.block(node.finalbody)

    def _match(self, node: ast.Match) -> None:
        subject = self.value(node.subject)
        before = self.env
        ends: list[_Env | None] = []
        for case in node.cases:
            chosen = fits(case.pattern, subject.const) if subject.is_known and case.guard is None else None
            if chosen is False:
                continue
            parts = [part for part in ast.walk(case.pattern) if isinstance(part, (ast.MatchAs, ast.MatchStar))]
            captured = {part.name: subject for part in parts if part.name}
            ends.append(self._run({**before, **captured}, case.body))
            if chosen:
                break
        else:
            ends.append(before)
        self._merge(ends)

    # Names, functions, classes.

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for name in node.names:
            module = name.name if isinstance(node, ast.Import) else node.module or ""
            first = module.partition(".")[0]
            self.notes.is_page_framework |= first in ("flask", "quart", "bottle")
            self.notes.is_django |= first == "django"
            if isinstance(node, ast.ImportFrom):
                self.env[name.asname or name.name] = Value(path=f"{module}.{name.name}".lstrip("."))
            else:
                self.env[name.asname or first] = Value(path=module if name.asname else first)

    def _classdef(self, node: ast.ClassDef) -> None:
        methods = {item.name: item for item in node.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))}
        bases = " ".join(ast.unparse(base)[-60:] for base in node.bases)
        is_view = PATTERNS.views.search(bases) or (self.notes.is_django and bases.endswith("View"))
        kind = "tornado" if "RequestHandler" in bases else "view" if is_view else ""
        attributes = (part for part in ast.walk(node) if isinstance(part, ast.Attribute))
        changed = {part.attr for part in attributes if isinstance(part.ctx, ast.Store)}
        constants = {
            target.id: Value.constant(item.value.value)
            for item in node.body
            if isinstance(item, ast.Assign) and isinstance(item.value, ast.Constant)
            for target in item.targets
            if isinstance(target, ast.Name) and target.id not in changed
        }
        known = tables.ClassNotes(node, "handler" if "HTTPRequestHandler" in bases else kind, methods, constants)
        self.notes.classes[f"{node.name}:{node.lineno}"] = known
        self.env[node.name] = Value(path=node.name, function=known)

    def _functiondef(self, node: _Function) -> None:
        self.env[node.name] = Value(path=node.name, function=node)
        if self.env is self.notes.globals:
            self.waiting.append(node)
        else:
            self.summary(node, self.owner)

    def summary(self, function: Any, owner: tables.ClassNotes | None) -> tables.Summary | None:
        """What a call of a function of this module does, or None while it is being found out."""
        key = id(function)
        if key in self.notes.summaries:
            return self.notes.summaries[key]
        self.notes.summaries[key] = None
        is_inner = self.env is not self.notes.globals and owner is self.owner and function.name in self.env
        reader = Reader(self.notes, dict(self.env) if is_inner else {}, owner)
        reader.depth = self.depth + 1
        reader.context = (function.name, owner.node.name if owner else "")
        calls = (item for item in function.decorator_list if isinstance(item, ast.Call))
        kinds = (ast.unparse(word.value) for item in calls for word in item.keywords if word.arg == "response_class")
        is_route = self.notes.is_page_framework and _route_of(function) is not None
        reader.is_page = is_route or any(kind.endswith("HTMLResponse") for kind in kinds)
        reader.is_wsgi = any(argument.arg == "start_response" for argument in function.args.args)
        reader.env.update(_parameters(function, self.notes, owner))
        reader.block(function.body)
        returned = Value.join(reader.returned) if reader.returned else NOTHING_KNOWN
        summary = self.notes.summaries[key] = (returned, tuple(reader.sinks))
        return summary
