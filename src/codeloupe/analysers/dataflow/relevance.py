"""Relevance: the parts of a file that must be read for a change.

A flow is reported only if the change added one of its lines, and a rule of ruff is silenced only on such lines. A part
must therefore be read if it contains an added line, if it uses such a part, directly or through others, or if one of
these parts uses it. Of these, a part can report something only if its own text and that of the parts it uses contain
the name of a source and the name of a sink, or the name of something that is judged by itself.
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet

from codeloupe.analysers.dataflow.graph import reachable, reversed_graph
from codeloupe.analysers.dataflow.harms import JUDGED_CALLS, Harm
from codeloupe.analysers.dataflow.knowledge import (
    LXML_FUNCTIONS,
    NETWORK_METHODS,
    PAGE_FRAMEWORKS,
    PATH_METHODS,
    PERMISSION_CHECKS,
    QUERY_END,
    QUERY_START,
    REQUEST_OBJECTS,
    ROUTE_METHODS,
    SINKS,
    SUBPROCESS_FUNCTIONS,
)
from codeloupe.analysers.dataflow.outline import Outline, Part, Words
from codeloupe.system.regex import regex

# Variables and annotations of requests.
_REQUEST_NAMES = frozenset({"request", "req", "Request", "HttpRequest"})
_REQUEST_TYPES = frozenset({"Request", "HttpRequest"})
_REQUEST_MODULES = frozenset(path.partition(".")[0] for path in REQUEST_OBJECTS)
# Classes whose methods a web framework calls.
_HANDLER_CLASS = regex(r"\bclass\b[^:]*(?:RequestHandler|View|Resource|HTTPEndpoint)")
_DECORATOR = regex(r"^[ \t]*@.*", re.MULTILINE)
_WORD = regex(r"\w+")


class _SinkWords:
    """The last words of the names of sinks: functions, methods of any object, and functions of a module."""

    def __init__(self, harms: AbstractSet[Harm]) -> None:
        self.functions: set[str] = set()
        self.methods: set[str] = set()
        self.of_module: dict[str, set[str]] = {}
        for name, sink in SINKS.items():
            if sink.harm in harms:
                self.add(name)
        if Harm.SHELL in harms:
            for name in SUBPROCESS_FUNCTIONS:
                self.add(name)

    def add(self, name: str) -> None:
        """Add a sink by its full name."""
        first = name.partition(".")[0]
        last = name.rpartition(".")[2]
        if first == last:
            self.functions.add(name)
        elif not first:
            self.methods.add(last)
        else:
            self.of_module.setdefault(first, set()).add(last)

    def in_file(self, names: AbstractSet[str]) -> tuple[set[str], set[str]]:
        """Return the names and the attributes that can be a sink in a file with these names."""
        functions = set(self.functions)
        methods = set(self.methods)
        for module, words in self.of_module.items():
            if module in names:
                functions |= words
                methods |= words
        return functions, methods


_ALL_SINKS = _SinkWords(frozenset(Harm))
_ALL_SINKS.functions |= {"start_response", "Location", "HTMLResponse", "XMLParser", "make_parser"}
_ALL_SINKS.methods |= {"save", "set_cookie", "HTMLResponse", "XMLParser", "make_parser", "setFeature"}
_ALL_SINKS.of_module["pathlib"] = set(PATH_METHODS)
_ALL_SINKS.of_module["lxml"] = set(LXML_FUNCTIONS)
_JUDGED_SINKS = _SinkWords(JUDGED_CALLS)


def parts_to_read(outline: Outline, added: AbstractSet[int]) -> set[int] | None:
    """Return the parts that must be read for these added lines, or None if nothing can be reported for the file."""
    file = _Vocabulary(outline)
    touched = {index for index, part in enumerate(outline.parts) if _contains(part, added)}
    judged = {index for index in touched if file.is_judged(outline.parts[index])}
    sources, sinks = file.sources_and_sinks()
    reporting = reachable(reversed_graph(outline.uses), touched)
    is_module_touched = not added.isdisjoint(outline.module_lines) or not touched.isdisjoint(outline.module_parts)
    if is_module_touched and (file.module_source or outline.has_module_functions):
        # Any part may use data that a statement of the module got from outside, or a function that is not a part.
        reporting = set(range(len(outline.parts)))
    starts = judged | (reporting & sources & sinks)
    if starts or file.is_module_judged(added):
        return reachable(outline.uses, starts)
    if is_module_touched and file.module_source and file.module_sink:
        return set()
    return None


def _contains(part: Part, lines: AbstractSet[int]) -> bool:
    """Return whether one of these lines is in a part."""
    if len(lines) < part.end - part.start:
        return any(part.start <= line < part.end for line in lines)
    return not lines.isdisjoint(range(part.start, part.end))


class _Vocabulary:
    """The sources and sinks that the words of a file name."""

    def __init__(self, outline: Outline) -> None:
        self._outline = outline
        self._lines = outline.text.split("\n")
        imported = outline.imported_modules
        # A random number is a source that reaches a sink under any name.
        self._has_random = "random" in outline.names and not imported.isdisjoint({"random", "numpy"})
        # The names of imported functions do not show that they make hashes.
        has_hashes = any(line.startswith("from hashlib") or " as " in line for line in outline.imports)
        self._judges_everything = "hmac" in imported or ("hashlib" in imported and has_hashes)
        self._has_pages = not imported.isdisjoint(PAGE_FRAMEWORKS)
        self._sinks = _ALL_SINKS.in_file(outline.names)
        self._judged_sinks = _JUDGED_SINKS.in_file(outline.names)
        self._handler_classes: dict[int, bool] = {}
        self._source_names = set(_REQUEST_NAMES)
        if "start_response" in outline.names:
            self._source_names.add("environ")
        self._source_attributes = _REQUEST_TYPES | NETWORK_METHODS
        if not imported.isdisjoint(_REQUEST_MODULES):
            self._source_attributes |= {"request"}
        self._own_sources = {index for index, part in enumerate(outline.parts) if self._has_source(part)}
        self._own_sinks = {index for index, part in enumerate(outline.parts) if self._has_sink(part)}
        # The statements of the module contain also the sources and sinks of the parts that they use.
        self.module_source = self._names_source(outline.module_words)
        self.module_source |= self._has_random or not self._own_sources.isdisjoint(outline.module_parts)
        self.module_sink = _names_sink(outline.module_words, self._sinks)
        self.module_sink |= self._has_random or not self._own_sinks.isdisjoint(outline.module_parts)

    def is_judged(self, part: Part) -> bool:
        """Return whether a part may contain code that is judged even without a flow."""
        return self._is_judged_text("\n".join(self._lines[part.start - 1 : part.end - 1]), part.words)

    def is_module_judged(self, added: AbstractSet[int]) -> bool:
        """Return whether added lines outside of functions may contain code that is judged even without a flow."""
        outline = self._outline
        if not added.isdisjoint(outline.module_lines):
            text = "\n".join([self._lines[number - 1] for number in outline.module_lines])
            if self._is_judged_text(text, outline.module_words):
                return True
        if added.isdisjoint(outline.class_lines):
            return False
        return _names_query("\n".join([self._lines[number - 1] for number in outline.class_lines]))

    def _is_judged_text(self, text: str, words: Words) -> bool:
        if self._judges_everything or _names_sink(words, self._judged_sinks):
            return True
        if "hashlib" in words.names or "CERT_NONE" in text or "set_cookie" in text or "$where" in text:
            return True
        if "assert" in words.names and any(PERMISSION_CHECKS.match(word) for word in words.attributes):
            return True
        return _names_query(text)

    def sources_and_sinks(self) -> tuple[set[int], set[int]]:
        """Return the parts that contain a source, and those that contain a sink, themselves or in code they use."""
        sources: set[int] = set()
        sinks: set[int] = set()
        for group in self._outline.groups:
            used: set[int] = set(group)
            for index in group:
                used |= self._outline.uses[index]
            if self.module_source or not used.isdisjoint(self._own_sources) or not used.isdisjoint(sources):
                sources.update(group)
            if self.module_sink or not used.isdisjoint(self._own_sinks) or not used.isdisjoint(sinks):
                sinks.update(group)
        return sources, sinks

    def _has_source(self, part: Part) -> bool:
        return self._names_source(part.words) or self._is_handler(part) or _is_route(part)

    def _has_sink(self, part: Part) -> bool:
        if _names_sink(part.words, self._sinks) or "$where" in part.text or self._is_handler(part):
            return True
        return self._has_pages and _is_route(part)

    def _names_source(self, words: Words) -> bool:
        has_name = not self._source_names.isdisjoint(words.names)
        return has_name or not self._source_attributes.isdisjoint(words.attributes)

    def _is_handler(self, part: Part) -> bool:
        if "class" in part.words.names and _HANDLER_CLASS.search(part.text):
            return True
        line = part.class_line
        if not line:
            return False
        if line not in self._handler_classes:
            self._handler_classes[line] = _HANDLER_CLASS.search(self._outline.class_text(line)) is not None
        return self._handler_classes[line]


def _names_sink(words: Words, sinks: tuple[set[str], set[str]]) -> bool:
    functions, methods = sinks
    return not (functions.isdisjoint(words.names) and methods.isdisjoint(words.attributes))


def _names_query(text: str) -> bool:
    return QUERY_START.search(text) is not None and QUERY_END.search(text) is not None


def _is_route(part: Part) -> bool:
    """Return whether a web framework calls a function, or one inside of it, by a decorator."""
    if "@" not in part.text:
        return False
    return any(not ROUTE_METHODS.isdisjoint(_WORD.findall(line)) for line in _DECORATOR.findall(part.text))
