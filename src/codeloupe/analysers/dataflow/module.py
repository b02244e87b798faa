"""Modules: reads the parts of one module in order, and collects the flows in it."""

from __future__ import annotations

import ast
from collections.abc import Set as AbstractSet

from codeloupe.analysers.dataflow.knowledge import PAGE_FRAMEWORKS
from codeloupe.analysers.dataflow.notes import ClassNotes, Function, Notes, functions_in
from codeloupe.analysers.dataflow.outline import Outline
from codeloupe.analysers.dataflow.statements import Reader
from codeloupe.analysers.dataflow.values import NOTHING_KNOWN


def read_module(tree: ast.Module, outline: Outline, wanted: AbstractSet[int], size: int) -> Notes:
    """Read the statements of a module with a text of this size, and the wanted parts of its outline.

    A part is read after the parts that it uses, so that their effect is known. The order and the effect of a part do
    not depend on which other parts are wanted. Functions that are not parts, such as those in blocks and in inner
    classes, are always read. Raise OverBudget or RecursionError for code that takes too much work.
    """
    notes = Notes(budget=20_000 + 4 * size)
    imported = outline.imported_modules
    notes.is_page_framework = not imported.isdisjoint(PAGE_FRAMEWORKS)
    notes.is_django = "django" in imported
    reader = Reader(notes, notes.globals)
    reader.read(tree.body)
    reader.ended = False
    if outline.global_names:
        for name in _global_names(tree):
            # A function may assign anything to it.
            notes.globals[name] = NOTHING_KNOWN
    part_lines = {part.line for part in outline.parts}
    for function in functions_in(tree.body):
        if function.lineno not in part_lines:
            reader.summary(function, None)
    functions = _functions_by_line(tree, notes)
    inner_classes = _read_inner_classes(reader, 0, part_lines)
    for group in outline.groups:
        members = [outline.parts[index].line for index in group if index in wanted]
        present = [functions[line] for line in members if line in functions]
        _read_group(reader, present)
        inner_classes = _read_inner_classes(reader, inner_classes, part_lines)
    return notes


def _global_names(tree: ast.Module) -> set[str]:
    """Return the names that functions declare as `global`."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            names.update(node.names)
    return names


def _functions_by_line(tree: ast.Module, notes: Notes) -> dict[int, tuple[Function, ClassNotes | None]]:
    """Return the functions of a module and the methods of its classes, by the lines of their definitions."""
    functions: dict[int, tuple[Function, ClassNotes | None]] = {}
    for function in functions_in(tree.body):
        functions[function.lineno] = (function, None)
    for known in notes.classes:
        for method in known.functions:
            functions[method.lineno] = (method, known)
    return functions


def _read_group(reader: Reader, functions: list[tuple[Function, ClassNotes | None]]) -> None:
    """Read functions that use each other, a second time if they stored outside data that others of them may use."""
    notes = reader.notes
    stored = notes.stored_outside
    for function, owner in functions:
        reader.summary(function, owner)
    if notes.stored_outside == stored:
        return
    for function, _ in functions:
        notes.summaries.pop(id(function), None)
    for function, owner in functions:
        reader.summary(function, owner)


def _read_inner_classes(reader: Reader, done: int, part_lines: AbstractSet[int]) -> int:
    """Read the methods of classes inside of functions and blocks, and return how many classes are done."""
    classes = reader.notes.classes
    while done < len(classes):
        known = classes[done]
        done += 1
        methods = [method for method in known.functions if method.lineno not in part_lines]
        _read_group(reader, [(method, known) for method in methods])
    return done
