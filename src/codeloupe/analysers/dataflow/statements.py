"""Statements: the variables on every way through the code."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from codeloupe.analysers.dataflow.calls import Calls
from codeloupe.analysers.dataflow.doubts import bound_names
from codeloupe.analysers.dataflow.guards import fits, name_of, reads_lines
from codeloupe.analysers.dataflow.harms import Harm
from codeloupe.analysers.dataflow.knowledge import (
    ADDRESS_PARSERS,
    CONSTANT_NAME,
    ENDING_FUNCTIONS,
    PERMISSION_CHECKS,
    VIEW_CLASSES,
    names_a_secret,
)
from codeloupe.analysers.dataflow.notes import ClassNotes, Environment, Function, Notes, Summary, classes_in
from codeloupe.analysers.dataflow.parameters import parameters_of, returns_page
from codeloupe.analysers.dataflow.values import (
    ENUM_MEMBER,
    HARMLESS,
    NOTHING_KNOWN,
    Value,
    concatenate,
    container,
    join,
    mix,
)

# The method of a reader for each kind of statement. All other statements change nothing.
_METHODS: Mapping[type[ast.AST], str] = {
    ast.AnnAssign: "_annotated_assignment",
    ast.Assert: "_assert",
    ast.Assign: "_assignment",
    ast.AsyncFor: "_for",
    ast.AsyncFunctionDef: "_function",
    ast.AsyncWith: "_with",
    ast.AugAssign: "_augmented_assignment",
    ast.Break: "_leave_turn",
    ast.ClassDef: "_class",
    ast.Continue: "_leave_turn",
    ast.Delete: "_delete",
    ast.Expr: "_expression",
    ast.For: "_for",
    ast.FunctionDef: "_function",
    ast.Global: "_global",
    ast.If: "_if",
    ast.Import: "_import",
    ast.ImportFrom: "_import_from",
    ast.Match: "_match",
    ast.Raise: "_raise",
    ast.Return: "_return",
    ast.Try: "_try",
    ast.TryStar: "_try",
    ast.While: "_while",
    ast.With: "_with",
}
# Loops that are nested deeper are read once.
_DEEPEST_LOOP = 3
_LEAST_TURNS = 2
_MOST_TURNS = 6


class Reader(Calls):
    """Reads the statements of one function, or of the module. `ended` is true after a statement that leaves.

    `is_page` says that a returned text is shown as a page, `is_wsgi` that the function is a WSGI application.
    `turn_ends` contains, for each loop around the statement, the variables at the ends of its turns.
    """

    def __init__(self, notes: Notes, env: Environment, owner: ClassNotes | None = None) -> None:
        super().__init__(notes, env, owner)
        self.ended = False
        self.is_page = False
        self.is_wsgi = False
        self.turn_ends: list[list[Environment]] = []

    @property
    def is_module(self) -> bool:
        """Whether this reader reads the statements of the module itself, outside of any block."""
        return self.env is self.notes.globals

    def read(self, statements: Sequence[ast.stmt]) -> None:
        """Read statements until the end, or until one that leaves."""
        for statement in statements:
            if self.ended:
                return
            method = _METHODS.get(type(statement))
            if method is not None:
                getattr(self, method)(statement)

    # Simple statements.

    def _expression(self, node: ast.Expr) -> None:
        self.value(node.value)
        match node.value:
            case ast.Call(func=ast.Name() | ast.Attribute(value=ast.Name()) as function):
                self.ended = self.value(function).path in ENDING_FUNCTIONS

    def _raise(self, node: ast.Raise) -> None:
        if node.exc is not None:
            self.value(node.exc)
        self.ended = True

    def _leave_turn(self, _: ast.Break | ast.Continue) -> None:
        if self.turn_ends:
            self.turn_ends[-1].append(dict(self.env))
        self.ended = True

    def _global(self, node: ast.Global) -> None:
        self.shared.update(node.names)

    def _assignment(self, node: ast.Assign) -> None:
        around = self.targets
        self.targets = node.targets
        value = self.value(node.value)
        self.targets = around
        for target in node.targets:
            self._assign(node, target, value)
            if isinstance(target, ast.Name) and isinstance(node.value, ast.Call):
                self._remember_call(target.id, node.value, value)

    def _annotated_assignment(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._assign(node, node.target, self.value(node.value))

    def _remember_call(self, name: str, call: ast.Call, value: Value) -> None:
        """Remember the text of an address whose parts get this name, or the pattern that is compiled under it."""
        match call.args:
            case [ast.Name(id=source), *_] if _is_address_parser(call.func):
                self.address_of[name] = source
            case [ast.Constant(value=str(pattern)), *_] if value.path == "re.compile()" and not reads_lines(call):
                self.patterns[name] = pattern
                if self.is_module:
                    self.notes.patterns[name] = pattern

    def _assign(self, node: ast.stmt, target: ast.expr, value: Value) -> None:
        match target:
            case ast.Attribute(attr="verify_mode") if value.path == "ssl.CERT_NONE":
                self.report(Harm.TLS, node, "verify_mode")
            case ast.Subscript(slice=ast.Constant(value="Location")):
                self.arrive(Harm.REDIRECT, node, "Location", value)
            case ast.Subscript(slice=key) if value.origins:
                label = self.value(key).const
                self.check_name(label if isinstance(label, str) else name_of(key), value, node.lineno)
            case ast.Name(id=name) | ast.Attribute(attr=name):
                self.check_name(name, value, node.lineno)
        self.bind(target, value)

    def _augmented_assignment(self, node: ast.AugAssign) -> None:
        before = self.value(node.target)
        added = self.value(node.value)
        if isinstance(node.op, ast.Add) and before.items is None:
            self.bind(node.target, concatenate([before, added], node.lineno))
        else:
            self.bind(node.target, mix([before, added], node.lineno))

    def _delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            match target:
                case ast.Name(id=name):
                    self.env.pop(name, None)
                case ast.Subscript(value=ast.Name(id=name) as holder, slice=index):
                    base = self.value(holder)
                    key = self.value(index)
                    if isinstance(base.items, list) and base.has_index(key.const):
                        items = list(base.items)
                        del items[key.const]
                        self.env[name] = container(items)

    def _assert(self, node: ast.Assert) -> None:
        self.value(node.test)
        for part in ast.walk(node.test):
            if isinstance(part, ast.Attribute) and PERMISSION_CHECKS.match(part.attr):
                self.report(Harm.ASSERT, node, "assert")
        self.env = self.refined(node.test, truth=True)

    def _return(self, node: ast.Return) -> None:
        value = HARMLESS if node.value is None else self.value(node.value)
        if self.is_page:
            self._check_page(node, value)
        if self.is_wsgi and "<" in value.pieces:
            self.arrive(Harm.HTML, node, "the response", value)
        name = self.context[0] if self.context else ""
        if value.origins and names_a_secret(name):
            self.report_guessable(node, value, f"the return value of `{name}`")
        self.returned.append(value)
        self.ended = True

    def _check_page(self, node: ast.Return, value: Value) -> None:
        """Check a text that a route returns: alone, or as the first item of a tuple with status and headers."""
        page = value
        if isinstance(node.value, ast.Tuple) and isinstance(value.items, list) and value.items:
            page = value.items[0]
            for part in value.items[1:]:
                if "json" in part.pieces or "plain" in part.pieces:
                    return
        if page.items is None:
            self.arrive(Harm.HTML, node, "the response", page)

    # Branches.

    def _run(self, env: Environment, statements: Sequence[ast.stmt]) -> Environment | None:
        """Return the variables after a branch, or None if the branch leaves."""
        self.env = env
        self.ended = False
        self.read(statements)
        return None if self.ended else self.env

    def _merge(self, ends: Sequence[Environment | None]) -> None:
        """Continue with the variables that any of these branches ends with."""
        open_ends = [env for env in ends if env is not None]
        self.ended = not open_ends
        if open_ends:
            self.env = self._joined(open_ends)

    def _joined(self, ends: Sequence[Environment]) -> Environment:
        if len(ends) == 1:
            return ends[0]
        self.notes.spend(len(ends) * len(ends[0]) // 4)
        joined = dict(ends[0])
        changed: dict[str, None] = {}
        for env in ends[1:]:
            for name, value in env.items():
                if joined.get(name) is not value:
                    changed[name] = None
        for name in changed:
            joined[name] = join([env[name] for env in ends if name in env])
        return joined

    def _if(self, node: ast.If) -> None:
        test = self.value(node.test)
        if test.is_known:
            self.read(node.body if test.const else node.orelse)
            return
        then = self.refined(node.test, truth=True)
        otherwise = self.refined(node.test, truth=False)
        self._merge([self._run(then, node.body), self._run(otherwise, node.orelse)])

    def _loop(self, body: Sequence[ast.stmt], start_turn: Callable[[], None]) -> None:
        """Read the body of a loop until another turn cannot make another variable doubtful, and at least twice.

        If a limit ends this before, each variable that the body assigns is doubtful.
        """
        exits = [dict(self.env)]
        self.turn_ends.append(exits)
        is_deep = len(self.turn_ends) > _DEEPEST_LOOP
        last_turn = 1 if is_deep else _MOST_TURNS
        doubtful: set[str] = set()
        for turn in range(1, last_turn + 1):
            self.env = dict(self._joined(exits))
            known = doubtful
            doubtful = {name for name, value in self.env.items() if not value.harmless}
            if turn > _LEAST_TURNS and doubtful <= known:
                break
            if turn == last_turn:
                self.env = _doubting(self.env, bound_names(body))
            start_turn()
            end = self._run(self.env, body)
            if end is not None:
                exits.append(dict(end))
        self.turn_ends.pop()
        self._merge(exits)

    def _for(self, node: ast.For | ast.AsyncFor) -> None:
        each = self.value(node.iter).element()
        self._loop(node.body, lambda: self.bind(node.target, each))
        self.read(node.orelse)

    def _while(self, node: ast.While) -> None:
        def start_turn() -> None:
            self.value(node.test)
            self.env = self.refined(node.test, truth=True)

        self._loop(node.body, start_turn)
        has_break = any(isinstance(part, ast.Break) for statement in node.body for part in ast.walk(statement))
        if not self.ended and not has_break:
            self.env = self.refined(node.test, truth=False)
        self.read(node.orelse)

    def _with(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            value = self.value(item.context_expr)
            if item.optional_vars is not None:
                self.bind(item.optional_vars, value)
        self.read(node.body)

    def _try(self, node: ast.Try | ast.TryStar) -> None:
        before = dict(self.env)
        ends = [self._run(dict(before), [*node.body, *node.orelse])]
        interrupted = _bound_at_unknown_times(node.body)
        reached = _doubting(self._joined([before, self.env]), interrupted)
        for handler in node.handlers:
            caught = dict(reached)
            if handler.name:
                caught[handler.name] = NOTHING_KNOWN
            ends.append(self._run(caught, handler.body))
        self._merge(ends)
        if self.ended and node.finalbody:
            self._run(dict(reached), node.finalbody)
            self.ended = True
        elif node.finalbody:
            self._finally(node, interrupted)

    def _finally(self, node: ast.Try | ast.TryStar, interrupted: AbstractSet[str]) -> None:
        """Read the end of a try statement, which also runs after an error at any place of the statement."""
        after = self.env
        for handler in node.handlers:
            interrupted |= bound_names(handler.body)
        doubted = _doubting(after, interrupted | bound_names(node.body))
        self.env = dict(doubted)
        self.read(node.finalbody)
        for name, value in after.items():
            if self.env.get(name) is doubted[name]:
                self.env[name] = value

    def _match(self, node: ast.Match) -> None:
        subject = self.value(node.subject)
        before = self.env
        ends: list[Environment | None] = []
        is_decided = False
        for case in node.cases:
            chosen = None
            if subject.is_known and case.guard is None:
                chosen = fits(case.pattern, subject.const)
            if chosen is False:
                continue
            captured = dict(before)
            for part in ast.walk(case.pattern):
                name = part.rest if isinstance(part, ast.MatchMapping) else getattr(part, "name", None)
                if name:
                    captured[name] = subject
            ends.append(self._run(captured, case.body))
            if chosen:
                is_decided = True
                break
        if not is_decided:
            ends.append(before)
        self._merge(ends)

    # Names, functions, classes.

    def _import(self, node: ast.Import) -> None:
        for alias in node.names:
            first = alias.name.partition(".")[0]
            if alias.asname:
                self.env[alias.asname] = Value(path=alias.name)
            else:
                self.env[first] = Value(path=first)

    def _import_from(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        for alias in node.names:
            path = f"{module}.{alias.name}".lstrip(".")
            # By its name, it is a constant of the program.
            is_constant = CONSTANT_NAME.fullmatch(alias.name) is not None
            self.env[alias.asname or alias.name] = Value(path=path, harmless=is_constant)

    def _class(self, node: ast.ClassDef) -> None:
        bases = " ".join(ast.unparse(base)[-60:] for base in node.bases)
        kind = ""
        if "HTTPRequestHandler" in bases:
            kind = "handler"
        elif "RequestHandler" in bases:
            kind = "tornado"
        elif VIEW_CLASSES.search(bases) or (self.notes.is_django and bases.endswith("View")):
            kind = "view"
        known = ClassNotes(node, kind=kind, is_enum="Enum" in bases)
        known.constants = self._constants(node, is_enum=known.is_enum)
        self.notes.classes.append(known)
        around = self.env
        self.env = dict(around)
        for inner in classes_in(node.body):
            self._class(inner)
        self.env = around
        self.env[node.name] = Value(path=node.name, function=known)

    def _constants(self, node: ast.ClassDef, *, is_enum: bool) -> Environment:
        """Return the harmless values that the body of a class assigns without a call."""
        around = self.env
        self.env = dict(around)
        names: list[str] = []
        for item in node.body:
            if isinstance(item, (ast.Assign, ast.AnnAssign)) and item.value is not None and not _has_call(item.value):
                value = self.value(item.value)
                targets = item.targets if isinstance(item, ast.Assign) else [item.target]
                for target in targets:
                    if isinstance(target, ast.Name):
                        self.env[target.id] = value
                        names.append(target.id)
        constants = {name: self.env[name] for name in names if self.env[name].harmless}
        self.env = around
        if is_enum:
            return {name: value.but(path=ENUM_MEMBER) for name, value in constants.items()}
        return constants

    def _function(self, node: Function) -> None:
        self.env[node.name] = Value(path=node.name, function=node)
        if not self.is_module and id(node) not in self.notes.summaries:
            self.read_function(node, self.owner)

    def read_function(self, function: Function, owner: ClassNotes | None) -> None:
        """Read a function of this module, so that its summary is known. A nested one sees the variables around it."""
        key = id(function)
        self.notes.summaries[key] = None
        is_nested = not self.is_module and owner is self.owner and function.name in self.env
        reader = Reader(self.notes, dict(self.env) if is_nested else {}, owner)
        if is_nested:
            reader.patterns = dict(self.patterns)
        reader.depth = self.depth + 1
        reader.context = (function.name, owner.node.name if owner else "")
        reader.is_page = returns_page(function, self.notes)
        reader.is_wsgi = any(argument.arg == "start_response" for argument in function.args.args)
        reader.env.update(parameters_of(function, self.notes, owner))
        reader.read(function.body)
        returned = join(reader.returned) if reader.returned else NOTHING_KNOWN
        self.notes.summaries[key] = Summary(returned, tuple(reader.sinks))


def _doubting(env: Environment, names: AbstractSet[str]) -> Environment:
    """Return variables of which those with these names are doubtful."""
    doubting = dict(env)
    for name in names & env.keys():
        doubting[name] = env[name].doubted()
    return doubting


def _bound_at_unknown_times(statements: Sequence[ast.stmt]) -> AbstractSet[str]:
    """Return the names that statements bind more than once or under a condition."""
    once: set[str] = set()
    several: set[str] = set()
    for statement in statements:
        names = bound_names([statement])
        several |= names & once
        if isinstance(statement, (ast.Assign, ast.AnnAssign)):
            once |= names
        else:
            several |= names
    return several


def _is_address_parser(function: ast.expr) -> bool:
    if isinstance(function, ast.Attribute):
        return function.attr in ADDRESS_PARSERS
    return isinstance(function, ast.Name) and function.id in ADDRESS_PARSERS


def _has_call(node: ast.expr) -> bool:
    return any(isinstance(part, ast.Call) for part in ast.walk(node))
