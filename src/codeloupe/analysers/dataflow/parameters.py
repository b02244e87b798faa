"""Parameters: the values that a web framework, or other code, passes to a function."""

from __future__ import annotations

import ast

from codeloupe.analysers.dataflow.knowledge import (
    NOT_FROM_ADDRESS,
    NUMBER_ANNOTATION,
    NUMBERS_IN_ROUTE,
    ROUTE_METHODS,
    is_textless_annotation,
)
from codeloupe.analysers.dataflow.notes import ClassNotes, Environment, Function, Notes
from codeloupe.analysers.dataflow.values import (
    ENVIRONMENT,
    HARMLESS,
    NOTHING_KNOWN,
    REQUEST,
    UPLOAD,
    Value,
    outside,
    parameter,
)

_HANDLER_NAMES = frozenset({"get", "post", "put", "delete", "patch"})


def route_of(function: Function) -> str | None:
    """Return the address that a decorator gives a function, or None if no web framework calls it."""
    for decorator in function.decorator_list:
        match decorator:
            case ast.Call(func=ast.Attribute(attr=name), args=[ast.Constant(value=str(address)), *_]):
                if name in ROUTE_METHODS and (address.startswith("/") or not address):
                    return address
            case ast.Call(func=ast.Name(id="route" | "get" | "post"), args=[ast.Constant(value=str(address)), *_]):
                return address
    return None


def returns_page(function: Function, notes: Notes) -> bool:
    """Return whether a text that this function returns is shown as a page."""
    if notes.is_page_framework and route_of(function) is not None:
        return True
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call):
            for keyword in decorator.keywords:
                is_class = keyword.arg == "response_class"
                if is_class and ast.unparse(keyword.value).endswith("HTMLResponse"):
                    return True
    return False


def parameters_of(function: Function, notes: Notes, owner: ClassNotes | None) -> Environment:
    """Return the values of the parameters of a function when it is called."""
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    names = [argument.arg for argument in arguments]
    defaults = _defaults(function)
    route = route_of(function)
    numbers = _numbers_in(route)
    is_handler = owner is not None and bool(owner.kind) and function.name in _HANDLER_NAMES
    is_view = notes.is_django and owner is None and names[:1] == ["request"]
    values: Environment = {}
    for argument in arguments:
        name = argument.arg
        if name in ("self", "cls"):
            continue
        annotation = "" if argument.annotation is None else ast.unparse(argument.annotation)[:80]
        known = _known_by_name(name, annotation, names, numbers)
        if known is not None:
            values[name] = known
            continue
        from_request = route is not None or is_handler or (is_view and name not in NOT_FROM_ADDRESS)
        if from_request and not _is_injected(annotation, defaults.get(name)):
            values[name] = _from_request(argument, annotation, notes)
        else:
            values[name] = parameter(argument.lineno, name)
    return values


def _defaults(function: Function) -> dict[str, ast.expr]:
    """Return the default values of parameters, by name."""
    positional = [*function.args.posonlyargs, *function.args.args]
    defaults: dict[str, ast.expr] = {}
    for argument, default in zip(reversed(positional), reversed(function.args.defaults), strict=False):
        defaults[argument.arg] = default
    for argument, optional in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        if optional is not None:
            defaults[argument.arg] = optional
    return defaults


def _numbers_in(route: str | None) -> set[str]:
    """Return the parameters that the address of a route restricts to numbers."""
    numbers: set[str] = set()
    if route:
        for flask_name, starlette_name in NUMBERS_IN_ROUTE.findall(route):
            numbers.add(flask_name or starlette_name)
    return numbers


def _known_by_name(name: str, annotation: str, names: list[str], numbers: set[str]) -> Value | None:
    if name in ("request", "req") or annotation.rpartition(".")[2] in ("Request", "HttpRequest"):
        return Value(path=REQUEST)
    if name == "environ" and "start_response" in names:
        return Value(path=ENVIRONMENT)
    if name == "start_response":
        return Value(path=name)
    if name in numbers:
        return HARMLESS
    if annotation and is_textless_annotation(annotation):
        return HARMLESS if NUMBER_ANNOTATION.search(annotation) else NOTHING_KNOWN
    return None


def _is_injected(annotation: str, default: ast.expr | None) -> bool:
    """Return whether FastAPI passes the result of a function of the program, and no data of the sender."""
    text = annotation
    if default is not None:
        text = f"{annotation} {ast.unparse(default)[:80]}"
    return "Depends(" in text or "Security(" in text


def _from_request(argument: ast.arg, annotation: str, notes: Notes) -> Value:
    """Return the value that a framework makes of a part of the request, by the annotation."""
    kind = notes.globals[annotation].function if annotation in notes.globals else None
    if isinstance(kind, ClassNotes) and kind.is_enum:
        return HARMLESS
    path = UPLOAD if annotation.endswith("UploadFile") else ""
    return outside(argument.lineno, f"the parameter `{argument.arg}`").but(function=kind, path=path)
