"""What is in the parameters of a function when it is called, by a web framework or by other code; and in a class."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Any

from codeloupe.analysers.dataflow.calls import Calls
from codeloupe.analysers.dataflow.expressions import ENVIRONMENT, REQUEST
from codeloupe.analysers.dataflow.knowledge import (
    PRIVILEGES,
    ROUTE_METHODS,
    SECRET_NAMES,
    captured,
    fits,
    is_plain,
    made_safe,
    name_of,
    settled,
)
from codeloupe.analysers.dataflow.meanings import Harm
from codeloupe.analysers.dataflow.values import (
    HARMLESS,
    NOTHING_KNOWN,
    UNKNOWN,
    UPLOAD,
    ClassNotes,
    Flow,
    Notes,
    Origin,
    ParameterSink,
    Summary,
    Value,
    concatenate,
    constant,
    element,
    join,
    mix,
    outside,
)

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_NUMBERS_IN_ROUTE = re.compile(r"<(?:int|float|uuid)(?:\([^)]*\))?:(\w+)>|\{(\w+):(?:int|float|uuid)\}")
_NUMBER = re.compile(r"(?:^|\[)(?:int|float|bool|(?:uuid\.)?UUID)\b")
_NOT_FROM_ADDRESS = frozenset(
    ["obj", "form", "queryset", "response", "exception", "template", "context", "model_admin", "view_func", "change"]
)


def route_of(function: _Function) -> str | None:
    """The address that a decorator gives a function, or None when no web framework calls it."""
    for decorator in function.decorator_list:
        match decorator:
            case ast.Call(func=ast.Attribute(attr=name), args=[ast.Constant(value=str(address)), *_]):
                if name in ROUTE_METHODS and (address.startswith("/") or not address):
                    return address
            case ast.Call(func=ast.Name(id="route" | "get" | "post"), args=[ast.Constant(value=str(address)), *_]):
                return address
    return None


def returns_page(function: _Function) -> bool:
    """Whether a decorator says that the text it returns is a page."""
    decorators = (item for item in function.decorator_list if isinstance(item, ast.Call))
    kinds = (word.value for item in decorators for word in item.keywords if word.arg == "response_class")
    return any(ast.unparse(kind)[-60:].endswith("HTMLResponse") for kind in kinds)


def parameters(function: _Function, notes: Notes, owner: ClassNotes | None) -> dict[str, Value]:
    """What is in the parameters of a function when it is called."""
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    names = [argument.arg for argument in arguments]
    positional = [*function.args.posonlyargs, *function.args.args]
    defaults = dict(zip([a.arg for a in positional][::-1], function.args.defaults[::-1], strict=False))
    defaults |= {a.arg: d for a, d in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True) if d}
    route = route_of(function)
    numbers = {name for pair in _NUMBERS_IN_ROUTE.findall(route or "") for name in pair}
    is_handler = owner is not None and bool(owner.kind) and function.name in ("get", "post", "put", "delete", "patch")
    is_view = notes.is_django and owner is None and names[:1] == ["request"]
    values: dict[str, Value] = {}
    for argument in arguments:
        name = argument.arg
        annotation = "" if argument.annotation is None else ast.unparse(argument.annotation)[:80]
        comes_in = route is not None or is_handler or (is_view and name not in _NOT_FROM_ADDRESS)
        if name in ("self", "cls"):
            continue
        if name in ("request", "req") or annotation.rpartition(".")[2] in ("Request", "HttpRequest"):
            values[name] = Value(path=REQUEST)
        elif name == "environ" and "start_response" in names:
            values[name] = Value(path=ENVIRONMENT)
        elif name == "start_response":
            values[name] = Value(path=name)
        elif is_plain(annotation) or name in numbers:
            is_number = name in numbers or _NUMBER.search(annotation) is not None
            values[name] = HARMLESS if is_number else NOTHING_KNOWN
        elif comes_in and not _is_injected(defaults.get(name), annotation):
            values[name] = _sent(argument, annotation, notes)
        else:
            values[name] = Value(origins=(Origin(argument.lineno, name, "parameter"),))
    return values


def _sent(argument: ast.arg, annotation: str, notes: Notes) -> Value:
    """What the framework makes of a part of the request, by the annotation of its parameter."""
    kind = notes.globals[annotation].function if annotation in notes.globals else None
    if isinstance(kind, ClassNotes) and any("Enum" in ast.unparse(base)[-60:] for base in kind.node.bases):
        return HARMLESS
    path = UPLOAD if annotation.endswith("UploadFile") else ""
    return outside(argument.lineno, f"the parameter {argument.arg}").but(function=kind, path=path)


def _is_injected(default: ast.expr | None, annotation: str) -> bool:
    """Whether the framework, not the request, gives the value."""
    text = annotation if default is None else f"{annotation} {ast.unparse(default)[:80]}"
    return "Depends(" in text or "Security(" in text


def constants(node: ast.ClassDef) -> dict[str, Value]:
    """The constants of a class that none of its methods changes."""
    changed = {
        part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store)
    }
    return {
        target.id: constant(item.value.value)
        for item in node.body
        if isinstance(item, ast.Assign) and isinstance(item.value, ast.Constant)
        for target in item.targets
        if isinstance(target, ast.Name) and target.id not in changed
    }


_DEEPEST_REPEATED_LOOP = 3
_ENDS = frozenset({"abort", "flask.abort", "sys.exit", "exit", "quit", "os._exit", "bottle.abort"})
_ADDRESS = re.compile(r"(?:^|\.)(?:urlparse|urlsplit|make_url|parse_url)$")
_VIEWS = re.compile(r"\b(?:MethodView|APIView|HTTPEndpoint|Resource)\b")
_PAGE_FRAMEWORKS = frozenset({"flask", "quart", "bottle"})


class Reader(Calls):
    """Reads statements. `env` is None where the code cannot be reached."""

    def __init__(self, notes: Notes, env: dict[str, Value], owner: ClassNotes | None = None) -> None:
        super().__init__(notes, env, owner)
        self.sinks: list[ParameterSink] = []
        self.returned: list[Value] = []
        self.waiting: list[_Function] = []
        self.ended = False
        self.is_page = False
        self.is_wsgi = False
        self._loops: list[list[dict[str, Value]]] = []
        self._made_from: dict[str, str] = {}
        self._shared: set[str] = set()
        self._statements: dict[type[ast.AST], Any] = {
            ast.Expr: self._expression,
            ast.Assign: self._assign,
            ast.AnnAssign: self._annotated,
            ast.AugAssign: self._augmented,
            ast.Return: self._return,
            ast.If: self._if,
            ast.For: self._for,
            ast.AsyncFor: self._for,
            ast.While: self._while,
            ast.With: self._with,
            ast.AsyncWith: self._with,
            ast.Try: self._try,
            ast.Match: self._match,
            ast.Raise: self._raise,
            ast.Break: self._leave_loop,
            ast.Continue: self._leave_loop,
            ast.Assert: self._assert,
            ast.Delete: self._delete,
            ast.Global: lambda node: self._shared.update(node.names),
            ast.Import: self._import,
            ast.ImportFrom: self._import_from,
            ast.FunctionDef: self._function,
            ast.AsyncFunctionDef: self._function,
            ast.ClassDef: self._class,
        }
        if trystar := getattr(ast, "TryStar", None):
            self._statements[trystar] = self._try

    def block(self, statements: Sequence[ast.stmt]) -> None:
        """Read statements until the end, or until one that leaves."""
        for statement in statements:
            if self.ended:
                return
            reader = self._statements.get(type(statement))
            if reader is not None:
                reader(statement)

    # Simple statements.

    def _expression(self, node: ast.Expr) -> None:
        self.value(node.value)
        match node.value:
            case ast.Call(func=ast.Name() | ast.Attribute(value=ast.Name()) as function):
                self.ended = self.value(function).path in _ENDS

    def _assign(self, node: ast.Assign) -> None:
        self.context = (*self.context[:2], *(ast.unparse(target)[:60] for target in node.targets))
        value = self.value(node.value)
        self.context = self.context[:2]
        for target in node.targets:
            self._look_at_target(node, target, value)
            self.bind(target, value)
            match target, node.value:
                case ast.Name(id=name), ast.Call(args=[ast.Name(id=source), *_]) as call if _ADDRESS.search(
                    ast.unparse(call.func)
                ):
                    self._made_from[name] = source
                case ast.Name(id=name), ast.Call(args=[ast.Constant(value=str(pattern)), *_]) if (
                    value.path == "re.compile()"
                ):
                    self.notes.patterns[name] = pattern

    def _look_at_target(self, node: ast.stmt, target: ast.expr, value: Value) -> None:
        match target:
            case ast.Attribute(attr="verify_mode") if value.path == "ssl.CERT_NONE":
                self.notes.flows[Flow(Harm.TLS, node.lineno, node.end_lineno or node.lineno, "verify_mode")] = None
            case ast.Subscript(slice=ast.Constant(value="Location")):
                self.hit(Harm.REDIRECT, node, "Location", value)
            case ast.Subscript(slice=key):
                label = self.value(key).const if value.origins else UNKNOWN
                self.named_secret(label if isinstance(label, str) else name_of(key), value, node.lineno)
            case ast.Name() | ast.Attribute():
                self.named_secret(getattr(target, "id", "") or getattr(target, "attr", ""), value, node.lineno)

    def _annotated(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            value = self.value(node.value)
            self._look_at_target(node, node.target, value)
            self.bind(node.target, value)

    def _augmented(self, node: ast.AugAssign) -> None:
        before, added = self.value(node.target), self.value(node.value)
        if isinstance(node.op, ast.Add) and before.items is None:
            result = concatenate([before, added], node.lineno)
        else:
            result = mix((before, added), node.lineno)
        self.bind(node.target, result)

    def bind(self, target: ast.expr, value: Value) -> None:
        """Give a target its value; an item of a list or dictionary changes the variable that holds it."""
        match target:
            case ast.Name(id=name):
                self.env[name] = value
                if name in self._shared:
                    self.notes.globals[name] = join([self.notes.globals.get(name, value), value])
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                items = value.items if isinstance(value.items, list) and len(value.items) == len(parts) else None
                for position, place in enumerate(parts):
                    self.bind(place, items[position] if items is not None else element(value))
            case ast.Starred(value=place):
                self.bind(place, value.but(items=None))
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if self.owner is not None:
                self.env[f"self.{name}"] = value
                if self.context[:1] == ("__init__",):
                    self.owner.made[name] = value
                if any(origin.kind == "outside" for origin in value.origins):
                    known = self.owner.attributes.get(name)
                    self.owner.attributes[name] = value if known is None else join([known, value])
            case ast.Subscript(value=ast.Name() as holder, slice=key):
                self._put(holder, self.value(key), value)

    def _put(self, holder: ast.Name, key: Value, value: Value) -> None:
        base = self.value(holder)
        items: Any = None
        if isinstance(base.items, dict) and key.is_known:
            items = {**base.items, key.const: value}
        elif (
            isinstance(base.items, list) and type(key.const) is int and -len(base.items) <= key.const < len(base.items)
        ):
            items = [*base.items]
            items[key.const] = value
        if items is not None:
            self.env[holder.id] = mix(items.values() if isinstance(items, dict) else items).but(items=items)
        elif value.origins:
            self.env[holder.id] = mix((base, value)).but(path=base.path)

    def _delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            match target:
                case ast.Subscript(value=ast.Name(id=name) as holder, slice=key):
                    base, at = self.value(holder), self.value(key).const
                    if isinstance(base.items, list) and type(at) is int and -len(base.items) <= at < len(base.items):
                        items = [*base.items]
                        del items[at]
                        self.env[name] = mix(items).but(items=items)
                case ast.Name(id=name):
                    self.env.pop(name, None)

    def _assert(self, node: ast.Assert) -> None:
        self.value(node.test)
        names = (part.attr for part in ast.walk(node.test) if isinstance(part, ast.Attribute))
        if any(PRIVILEGES.match(name) for name in names):
            self.notes.flows[Flow(Harm.ASSERT, node.lineno, node.end_lineno or node.lineno, "assert")] = None
        self.env = self.refined(node.test, truth=True)

    def _raise(self, node: ast.Raise) -> None:
        if node.exc is not None:
            self.value(node.exc)
        self.ended = True

    def _return(self, node: ast.Return) -> None:
        value = HARMLESS if node.value is None else self.value(node.value)
        if self.is_page and node.value is not None:
            self._page(node, value)
        if self.is_wsgi and "<" in value.pieces:
            self.hit(Harm.HTML, node, "the response", value)
        if value.origins and SECRET_NAMES.search(self.context[0] if self.context else ""):
            self.guessable(node, value, f"what `{self.context[0]}` returns")
        self.returned.append(value)
        self.ended = True

    def _page(self, node: ast.Return, value: Value) -> None:
        """A text that a route of flask returns is a page."""
        if isinstance(node.value, ast.Tuple) and isinstance(value.items, list) and value.items:
            if any(word in part.pieces for part in value.items[1:] for word in ("json", "plain")):
                return
            value = value.items[0]
        if not isinstance(value.items, (dict, list)):
            self.hit(Harm.HTML, node, "the response", value)

    # Branches.

    def refined(self, test: ast.expr, *, truth: bool) -> dict[str, Value]:
        """The variables as they are where a test came out this way."""
        self.notes.budget -= len(self.env) // 4
        return made_safe(self.env, settled(test, self.notes.patterns, truth=truth), self._made_from)

    def _run(self, env: dict[str, Value], statements: Sequence[ast.stmt]) -> dict[str, Value] | None:
        """The variables after a branch, or None when it leaves."""
        self.env, self.ended = env, False
        self.block(statements)
        return None if self.ended else self.env

    def _merge(self, ends: Sequence[dict[str, Value] | None]) -> None:
        open_ends = [env for env in ends if env is not None]
        self.ended = not open_ends
        if open_ends:
            self.env = self._joined(open_ends)

    def _joined(self, ends: Sequence[dict[str, Value]]) -> dict[str, Value]:
        first = ends[0]
        if len(ends) == 1:
            return first
        self.notes.budget -= len(ends) * len(first) // 4
        names = dict.fromkeys(name for env in ends for name in env)
        return {name: join([env[name] for env in ends if name in env]) for name in names}

    def _if(self, node: ast.If) -> None:
        test = self.value(node.test)
        if test.is_known:
            self.block(node.body if test.const else node.orelse)
            return
        then, other = self.refined(node.test, truth=True), self.refined(node.test, truth=False)
        self._merge([self._run(then, node.body), self._run(other, node.orelse)])

    def _loop(self, body: Sequence[ast.stmt], before: dict[str, Value], start: Any) -> None:
        times = 2 if len(self._loops) < _DEEPEST_REPEATED_LOOP else 1
        exits: list[dict[str, Value]] = [before]
        self._loops.append(exits)
        env: dict[str, Value] | None = dict(before)
        for _ in range(times):
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
        each = element(self.value(node.iter))
        self._loop(node.body, dict(self.env), lambda: self.bind(node.target, each))
        self.block(node.orelse)

    def _while(self, node: ast.While) -> None:
        def start() -> None:
            self.value(node.test)
            self.env = self.refined(node.test, truth=True)

        self._loop(node.body, dict(self.env), start)
        if not self.ended:
            self.env = self.refined(node.test, truth=False)
        self.block(node.orelse)

    def _leave_loop(self, _node: ast.stmt) -> None:
        if self._loops:
            self._loops[-1].append(dict(self.env))
        self.ended = True

    def _with(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            value = self.value(item.context_expr)
            if item.optional_vars is not None:
                self.bind(item.optional_vars, value)
        self.block(node.body)

    def _try(self, node: ast.Try) -> None:
        before = dict(self.env)
        done = self._run(dict(before), [*node.body, *node.orelse])
        reached = self._joined([before, self.env])
        ends = [done]
        for handler in node.handlers:
            env = dict(reached)
            if handler.name:
                env[handler.name] = NOTHING_KNOWN
            ends.append(self._run(env, handler.body))
        self._merge(ends)
        if self.ended and node.finalbody:
            self._run(dict(reached), node.finalbody)
            self.ended = True
        else:
            self.block(node.finalbody)

    def _match(self, node: ast.Match) -> None:
        subject = self.value(node.subject)
        before = self.env
        ends: list[dict[str, Value] | None] = []
        for case in node.cases:
            chosen = fits(case.pattern, subject.const) if subject.is_known and case.guard is None else None
            if chosen is False:
                continue
            env = dict(before)
            for name in captured(case.pattern):
                env[name] = subject
            ends.append(self._run(env, case.body))
            if chosen:
                break
        else:
            ends.append(before)
        self._merge(ends)

    # Names, functions, classes.

    def _import(self, node: ast.Import) -> None:
        for name in node.names:
            first = name.name.partition(".")[0]
            self._recognise(first)
            self.env[name.asname or first] = Value(path=name.name if name.asname else first)

    def _recognise(self, package: str) -> None:
        self.notes.is_page_framework = self.notes.is_page_framework or package in _PAGE_FRAMEWORKS
        self.notes.is_django = self.notes.is_django or package == "django"

    def _import_from(self, node: ast.ImportFrom) -> None:
        self._recognise((node.module or "").partition(".")[0])
        for name in node.names:
            self.env[name.asname or name.name] = Value(path=f"{node.module or ''}.{name.name}".lstrip("."))

    def _class(self, node: ast.ClassDef) -> None:
        methods = {item.name: item for item in node.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))}
        bases = " ".join(ast.unparse(base)[-60:] for base in node.bases)
        kind = "handler" if "HTTPRequestHandler" in bases else "tornado" if "RequestHandler" in bases else ""
        is_view = _VIEWS.search(bases) or (self.notes.is_django and bases.endswith("View"))
        kind = kind or ("view" if is_view else "")
        known = ClassNotes(node, kind, methods, constants(node))
        self.notes.classes[f"{node.name}:{node.lineno}"] = known
        self.env[node.name] = Value(path=node.name, function=known)

    def _function(self, node: _Function) -> None:
        self.env[node.name] = Value(path=node.name, function=node)
        if self.env is self.notes.globals:
            self.waiting.append(node)
        else:
            self.summary(node, self.owner)

    def summary(self, function: Any, owner: ClassNotes | None) -> Summary | None:
        """What a call of a function of this module does, or None while it is being found out."""
        key = id(function)
        if key in self.notes.summaries:
            return self.notes.summaries[key]
        self.notes.summaries[key] = None
        is_inner = self.env is not self.notes.globals and owner is self.owner and function.name in self.env
        reader = Reader(self.notes, dict(self.env) if is_inner else {}, owner)
        reader.depth = self.depth + 1
        reader.context = (function.name, owner.node.name if owner else "")
        is_route = self.notes.is_page_framework and route_of(function) is not None
        reader.is_page = is_route or returns_page(function)
        reader.is_wsgi = any(argument.arg == "start_response" for argument in function.args.args)
        reader.env.update(parameters(function, self.notes, owner))
        reader.block(function.body)
        returned = join(reader.returned) if reader.returned else NOTHING_KNOWN
        summary = Summary(returned, tuple(reader.sinks))
        self.notes.summaries[key] = summary
        return summary
