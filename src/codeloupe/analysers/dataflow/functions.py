"""What is in the parameters of a function when it is called, by a web framework or by other code; and in a class."""

from __future__ import annotations

import ast
import re

from codeloupe.analysers.dataflow.expressions import ENVIRONMENT, REQUEST
from codeloupe.analysers.dataflow.knowledge import ROUTE_METHODS, is_plain
from codeloupe.analysers.dataflow.module import ClassNotes, Notes
from codeloupe.analysers.dataflow.values import (
    HARMLESS,
    NOTHING_KNOWN,
    UPLOAD,
    Origin,
    Value,
    constant,
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
