"""Outline: the functions and methods of a file, by its text alone.

Parsing and reading a file takes much longer than a look at its words, and most changes touch no code that data from
outside can reach. The outline finds the functions and the words in them without a parser. Words in strings count as
well, and the text of a function may include lines that follow it: the outline claims too much, never too little.
Lines of a function that is not a part, such as one in a block, count as statements of the module.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator

from codeloupe.analysers.dataflow.graph import groups_in_order, reachable
from codeloupe.analysers.dataflow.syntax import end_of_f_string
from codeloupe.system.regex import regex

# A string that does not end is read to its last possible character, so that no text is searched twice.
_COMMENT_OR_STRING = regex(
    r"""\#[^\n]*
    |\"\"\"[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*(?:\"\"\")?
    |'''[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*(?:''')?
    |"[^"\\\n]*(?:\\.[^"\\\n]*)*"?
    |'[^'\\\n]*(?:\\.[^'\\\n]*)*'?""",
    re.VERBOSE | re.DOTALL,
)
_F_STRING_PREFIX = regex(r"\b(?:[fFtT][rR]?|[rR][fFtT])\Z")
# An f-string in which no hole contains a brace, a comment, a backslash, or a quote that is not closed.
_PLAIN_F_STRING = regex(r"""(?:[^{}]|\{\{|\}\}|\{(?:[^{}'"\#\\]|'[^'{}\#\\]*'|"[^"{}\#\\]*")*\})*""")
_WORD = regex(r"\.?\w+")
_DEFINITION = regex(r"(?:async|def)\b")
_FUNCTION = regex(r"(?:async[ \t]+)?def[ \t]+(\w+)")
_CLASS = regex(r"class[ \t]+(\w+)")
# Python counts the indentation of a line from the last form feed before the code.
_FORM_FEED = regex(r"^[ \t\f]*\f", re.MULTILINE)
_IMPORT = regex(r"(?:import|from)[ \t\\]")
_STATEMENT_END = regex(r"[;:]")
_GLOBAL = regex(r"\bglobal\b((?:[^#\n\\]|\\\n)*)")
_ALIAS = regex(r"\b(\w+)\s+as\s+(\w+)")
_NOT_CALLED = regex(r"\b\w+\b(?!\()")
# The targets of assignments, loops and blocks among the statements of the module.
_MODULE_TARGET = regex(r"^((?:[\w \t,*()]+(?::[^=\n]*)?=(?!=))+)|\b(?:for|as)\b([\w \t,()]+)", re.MULTILINE)
_LONGEST_TARGET = 200
_OWN_ATTRIBUTE = regex(rf"self\.(\w+)(?=([^\n]{{0,{_LONGEST_TARGET}}}))")
_TARGET_OF_BLOCK = regex(r"\b(?:as|for)[ \t]+\(?self\.(\w+)")


class Words:
    """The words of a text: `attributes` follow a dot, `names` do not."""

    def __init__(self, text: str, aliases: dict[str, str] | None = None) -> None:
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        for word in set(_WORD.findall(text)):
            if word[0] == ".":
                self.attributes.add(word[1:])
            else:
                self.names.add(word)
        if aliases:
            for alias in self.names & aliases.keys():
                self.names.add(aliases[alias])


class Part:
    """One function of the module, or one method of a class of the module, with its decorators.

    `line` is the line of its `def`. The part ends at the next function or class, so it may include other code after it.
    `assigns` are the attributes of its object that a method assigns.
    """

    def __init__(self, name: str, *, line: int, start: int) -> None:
        self.name = name
        self.line = line
        self.start = start
        self.end = 0
        self.class_name = ""
        self.class_line = 0
        self.text = ""
        self.words = Words("")
        self.assigns: set[str] = set()


class _Finder:
    """Finds functions at the left margin, and methods at the indentation of a class that is there, line by line.

    `module_lines` are the lines of statements outside of functions and classes, without imports, and the lines of
    functions that are not parts. `class_lines` are the lines of classes outside of their methods.
    """

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.module_lines: list[int] = []
        self.import_lines: list[int] = []
        self.class_lines: list[int] = []
        self._lines_of_kind: list[int] | None = self.module_lines
        self._class_name = ""
        self._class_line = 0
        self._open_brackets = 0
        self._method_indent = 0
        self._decorator = 0

    def find(self, lines: list[str], inside_strings: set[int]) -> None:
        for number, line in enumerate(lines, start=1):
            code = line.lstrip(" \t")
            if code and number not in inside_strings:
                self._read_line(code, len(line) - len(code), number)
            if self._lines_of_kind is not None:
                if self._lines_of_kind is self.import_lines and ";" in code:
                    self._lines_of_kind = self.module_lines
                self._lines_of_kind.append(number)
        self._end_part(len(lines) + 1)

    def _read_line(self, code: str, indent: int, number: int) -> None:
        """Read a line that contains code."""
        if self._open_brackets > 0:
            self._open_brackets += _brackets_opened(code)
            return
        if self._class_line and indent and not self._method_indent:
            self._method_indent = indent
        if indent == 0:
            self._at_margin(code, number)
        elif self._class_line and indent == self._method_indent:
            if code[0] not in ")]}@":
                self._lines_of_kind = self.class_lines
            self._at_function(code, number)
        elif self._lines_of_kind is self.class_lines and _is_definition(code):
            self._lines_of_kind = self.module_lines

    def _at_margin(self, code: str, number: int) -> None:
        """Read a line without indentation. A closing bracket continues the statement before."""
        if code[0] not in ")]}@":
            self._class_line = 0
            self._lines_of_kind = self.module_lines
            if code[0] in "fi" and _IMPORT.match(code):
                self._lines_of_kind = self.import_lines
        kind = _CLASS.match(code) if code[0] == "c" else None
        if kind:
            self._end_part(number)
            self._class_name = kind[1]
            self._class_line = number
            self._open_brackets = _brackets_opened(code)
            self._method_indent = 0
            self._lines_of_kind = self.class_lines
        self._at_function(code, number)

    def _at_function(self, code: str, number: int) -> None:
        """Read a line at the level of functions or methods: a decorator, the start of a function, or something else."""
        if code[0] == "@":
            self._decorator = self._decorator or number
            return
        function = _FUNCTION.match(code) if code[0] in "ad" else None
        if function:
            self._end_part(number)
            part = Part(function[1], line=number, start=self._decorator or number)
            if self._class_line:
                part.class_name = self._class_name
                part.class_line = self._class_line
            self.parts.append(part)
            self._lines_of_kind = None
        elif _is_definition(code):
            # The name of the function is on another line.
            self._lines_of_kind = self.module_lines
        self._decorator = 0

    def _end_part(self, line: int) -> None:
        if self.parts and not self.parts[-1].end:
            self.parts[-1].end = line


class Outline:
    """The parts of a file, which parts use each other, and the text outside of them.

    `module_words` are the words of statements outside of functions and classes. `names` are all words of the file.
    `imports` are the first lines of its import statements, and `imported_modules` the first names of those modules.
    `global_names` are the names that functions declare as `global`.

    `uses` is the graph of the parts. A part uses another if its text contains the name of that function or class, or of
    a method, an attribute or a module variable that the other defines. Methods and attributes count only inside of
    their class, unless other code contains the name of the class. A module variable counts as another name of the
    functions and classes that a statement which assigns it names. `groups` are the parts in the order in which they are
    read: each after the parts that it uses.

    `module_parts` are the parts that statements of the module use, directly or through others. `has_module_functions`
    says whether such statements, or classes outside of their methods, define functions, which are not parts.
    """

    def __init__(self, text: str) -> None:
        text = text.replace("\r\n", "\n")
        code, inside_strings = _without_comments(text)
        if not text.isascii():
            # Python takes two names for the same one if their normal forms are the same.
            text = unicodedata.normalize("NFKC", text)
            code = unicodedata.normalize("NFKC", code)
        if "\f" in code:
            code = _FORM_FEED.sub("", code)
        self.text = text
        self.lines = code.split("\n")
        finder = _Finder()
        finder.find(self.lines, inside_strings)
        self.parts = finder.parts
        self.module_lines = finder.module_lines
        self.class_lines = finder.class_lines
        self._first_method_line: dict[int, int] = {}
        for part in self.parts:
            self._first_method_line.setdefault(part.class_line, part.start)
        self.imports = _imports_in(code)
        self.imported_modules: set[str] = set()
        for statement in self.imports:
            self.imported_modules.update(_modules_in(statement))
        self.global_names: set[str] = set()
        if "global " in code:
            self.global_names.update(_WORD.findall(" ".join(_GLOBAL.findall(code))))
        self._find_words(self.text_of(finder.import_lines))
        self._connect()

    def _find_words(self, import_text: str) -> None:
        aliases = {alias: name for name, alias in _ALIAS.findall(import_text)}
        self.module_words = Words(self.text_of(self.module_lines), aliases)
        self.has_module_functions = "def" in self.module_words.names
        imports = Words(import_text)
        self.names = imports.names | imports.attributes | self.module_words.names
        for part in self.parts:
            part.text = "\n".join(self.lines[part.start - 1 : part.end - 1])
            # A function that is called `request` does not get one by its name.
            part.words = Words(part.text.replace(f"def {part.name}", "def", 1), aliases)
            self.names |= part.words.names
            if part.class_line and "self" in part.words.names:
                part.assigns = _assigned_attributes(part.text)

    def text_of(self, numbers: Iterable[int]) -> str:
        """Return the code in these lines."""
        return "\n".join([self.lines[number - 1] for number in numbers])

    def class_text(self, class_line: int) -> str:
        """Return the text of a class up to its first method."""
        return "\n".join(self.lines[class_line - 1 : self._first_method_line[class_line] - 1])

    def _connect(self) -> None:
        by_name: dict[str, set[int]] = {}
        in_class: dict[int, dict[str, set[int]]] = {}
        for index, part in enumerate(self.parts):
            if not part.class_line:
                by_name.setdefault(part.name, set()).add(index)
            else:
                if part.name == "__init__":
                    by_name.setdefault(part.class_name, set()).add(index)
                members = in_class.setdefault(part.class_line, {})
                for name in (part.name, *part.assigns):
                    members.setdefault(name, set()).add(index)
            if "global" in part.words.names:
                for name in self.global_names & part.words.names:
                    by_name.setdefault(name, set()).add(index)
        self._add_module_aliases(by_name)
        of_any_object = self._members_of_used_classes(in_class)
        self.uses: list[set[int]] = []
        for part in self.parts:
            used = _parts_named(part.words.names, by_name)
            used |= _parts_named(part.words.attributes, of_any_object)
            used |= _parts_named(part.words.attributes, in_class.get(part.class_line, {}))
            self.uses.append(used)
        used_by_module = _parts_named(self.module_words.names, by_name)
        used_by_module |= _parts_named(self.module_words.attributes, of_any_object)
        self.module_parts = reachable(self.uses, used_by_module)
        self.groups = groups_in_order(self.uses)

    def _add_module_aliases(self, by_name: dict[str, set[int]]) -> None:
        """Add the variables that may contain a function or class, because a statement of the module assigns them."""
        if self.module_words.names.isdisjoint(by_name):
            return
        aliases: dict[str, set[int]] = {}
        for statement in self._module_statements():
            named = _parts_named(set(_NOT_CALLED.findall(statement)), by_name)
            if named:
                for targets in _MODULE_TARGET.findall(statement):
                    for name in _WORD.findall(" ".join(targets)):
                        aliases.setdefault(name, set()).update(named)
        for name, parts in aliases.items():
            by_name.setdefault(name, set()).update(parts)

    def _module_statements(self) -> list[str]:
        """Return the text of each statement at the margin, with the lines that follow it."""
        statements: list[list[str]] = [[]]
        for number in self.module_lines:
            line = self.lines[number - 1]
            if line[:1].strip() and line[0] not in ")]}":
                statements.append([])
            statements[-1].append(line)
        return ["\n".join(lines) for lines in statements]

    def _members_of_used_classes(self, in_class: dict[int, dict[str, set[int]]]) -> dict[str, set[int]]:
        """Return the methods and attributes of classes whose name is used outside of them."""
        classes = {part.class_line: part.class_name for part in self.parts if part.class_line}
        used_in: dict[str, set[int]] = {name: set() for name in classes.values()}
        for name in self.module_words.names & used_in.keys():
            used_in[name].add(0)
        for part in self.parts:
            for name in part.words.names & used_in.keys():
                used_in[name].add(part.class_line or -1)
        members: dict[str, set[int]] = {}
        for line, name in classes.items():
            if used_in[name] - {line}:
                for member, parts in in_class[line].items():
                    members.setdefault(member, set()).update(parts)
        return members


def _imports_in(code: str) -> list[str]:
    """Return the import statements of a text, each up to the end of its line, with single spaces."""
    imports: list[str] = []
    for line in code.replace("\\\n", " ").split("\n"):
        if "import" not in line:
            continue
        for statement in _STATEMENT_END.split(line):
            words = " ".join(statement.split())
            if words.startswith(("import ", "from ")):
                imports.append(words)
    return imports


def _modules_in(statement: str) -> list[str]:
    """Return the first names of the modules in the first line of an import statement."""
    keyword, _, rest = statement.partition(" ")
    names = rest.split(",") if keyword == "import" else [rest]
    return [re.split(r"\W", name.strip(), maxsplit=1)[0] for name in names]


def _parts_named(words: set[str], parts_by_name: dict[str, set[int]]) -> set[int]:
    named: set[int] = set()
    for name in words & parts_by_name.keys():
        named |= parts_by_name[name]
    return named


def _assigned_attributes(text: str) -> set[str]:
    """Return the attributes of `self` that a text assigns, and perhaps some that it only uses."""
    assigned: set[str] = set()
    for name, rest in _OWN_ATTRIBUTE.findall(text):
        # An assignment has a `=` in its line, unless the target is one line of a long tuple.
        if "=" in rest or not rest.strip(" \t,)]") or len(rest) == _LONGEST_TARGET:
            assigned.add(name)
    if " self." in text:
        assigned.update(_TARGET_OF_BLOCK.findall(text))
    return assigned


def _strings_and_comments(text: str) -> Iterator[tuple[int, int]]:
    """Yield where each string and comment of a text starts and ends."""
    position = 0
    can_nest = True
    while position < len(text):
        for token in _COMMENT_OR_STRING.finditer(text, position):
            start = token.start()
            end = token.end()
            if can_nest and _is_nested(text, token):
                try:
                    end = end_of_f_string(text, start)
                except ValueError:
                    # The text is not Python. A second attempt would read the rest of the text again.
                    can_nest = False
            yield start, end
            if end != token.end():
                position = end
                break
        else:
            return


def _is_nested(text: str, token: re.Match[str]) -> bool:
    """Return whether a string is an f-string that may contain its own quotes."""
    string = token[0]
    if "{" not in string or not _F_STRING_PREFIX.search(text[max(0, token.start() - 3) : token.start()]):
        return False
    return _PLAIN_F_STRING.fullmatch(string) is None


def _without_comments(text: str) -> tuple[str, set[int]]:
    """Return a text without comments and without long strings at the start of a line, and the lines inside of strings.

    A long string at the start of a line is a documentation string, or an argument without code in it.
    """
    kept: list[str] = []
    inside: set[int] = set()
    line = 1
    position = 0
    for start, end in _strings_and_comments(text):
        string = text[start:end]
        is_long = string.startswith(('"""', "'''"))
        breaks = string.count("\n")
        if string[0] != "#" and not is_long and not breaks:
            continue
        before = text[position:start]
        kept.append(before)
        line += before.count("\n")
        if is_long and (not before or before.rpartition("\n")[2].isspace() or before.endswith("\n")):
            kept.append("''" + "\n" * breaks)
        elif string[0] != "#":
            kept.append(string)
        inside.update(range(line + 1, line + breaks + 1))
        line += breaks
        position = end
    kept.append(text[position:])
    return "".join(kept), inside


def _is_definition(code: str) -> bool:
    """Return whether a line begins with the keyword of a function."""
    return code[0] in "ad" and _DEFINITION.match(code) is not None


def _brackets_opened(code: str) -> int:
    """Return the number of brackets that a line opens and does not close."""
    plain = _COMMENT_OR_STRING.sub("", code)
    opened = plain.count("(") + plain.count("[") + plain.count("{")
    return opened - plain.count(")") - plain.count("]") - plain.count("}")
