"""What makes a finding the same finding tomorrow: the statement it is about, what encloses that, and what it says.

Compared are tokens, not characters, and neither line numbers, the path nor the extent of the quote. So a fingerprint
survives lines put in above, a rebase, a renamed file, reformatting, a comment added to the line, and a quote of one
line more or less. What it says is its rule, or else the kind of defect that its title names and the names in the code
of which it says that, or else the title's words.

A fingerprint is only a name. Words of a model change from day to day, so whoever looks for an earlier finding must
compare what both say, as `lifecycle.compare` and the baseline do: a finding that is recognised keeps its old name.
What cannot be told apart is told apart by order: the same statement again, and code copied into another file.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

from msgspec.structs import replace

from codeloupe.engine.code_tokens import Statement, tokens_of_code
from codeloupe.engine.comment_words import names, numbers, stems, telling_stems
from codeloupe.engine.defect_kinds import kinds_of
from codeloupe.engine.families import family
from codeloupe.engine.folding import fold
from codeloupe.engine.profile import Profile
from codeloupe.engine.quote_gaps import MASK
from codeloupe.engine.surroundings import Surroundings, is_comment
from codeloupe.model.finding import Finding

ReadFile = Callable[[str], bytes | None]

_VERSION = "3"
_FIRST_VERSION = "2"
_DIGITS = 32
_DIGITS_AROUND = 12
_LINES = 60
_LONGEST_LINE = 4_000
_MOST_TELLING = 100
# A line with fewer letters and digits is not known by itself: the one after it is added.
_FEWEST_LETTERS = 6
_DEFINITION = (
    "def ", "class ", "func ", "fn ", "function ", "public ", "private ", "protected ", "async def ", "export ", "pub ",
    "static ", "interface ", "impl ", "struct ", "module ", "namespace ", "package ",
)  # fmt: skip


def with_fingerprints(findings: Iterable[Finding], *, context: ReadFile | None = None) -> tuple[Finding, ...]:
    """The findings with their fingerprints, all different, and their surroundings, in order of file and line.

    `context` reads the reviewed content of a file; without it, or where it gives None, nothing is known of what
    encloses a line, and fewer findings can be told apart by more than their order.
    """
    seen: Counter[str] = Counter()
    named: list[Finding] = []
    for finding, around in _in_order(findings, context):
        core = "\0".join(_core(finding, around))
        seen[core] += 1
        name = digest(_VERSION, core, str(seen[core]))
        named.append(replace(finding, fingerprint=name, surroundings=surroundings_of(finding, around)))
    return tuple(named)


def first_names(findings: Iterable[Finding], *, context: ReadFile | None = None) -> dict[str, str]:
    """By the fingerprint of each finding, the one that version 0.1.0 gave it: baselines and dismissals may have it."""
    seen: Counter[str] = Counter()
    found: dict[str, str] = {}
    for finding, around in _in_order(findings, context):
        core = "\0".join(_first_core(finding, around))
        seen[core] += 1
        found[finding.fingerprint] = digest(_FIRST_VERSION, core, str(seen[core]))
    return found


def surroundings_of(finding: Finding, around: Surroundings | None) -> str:
    """What is around a finding at its place, in short: it changes with the code of its definition."""
    if around is None or not finding.anchored:
        return ""
    parts = around.around(_telling_statement(finding, around))
    return ".".join(digest(*part)[:_DIGITS_AROUND] for part in parts)


def same_block(one: str, other: str) -> bool:
    """Whether two `surroundings` are of the same definition, unchanged."""
    return bool(one) and one.split(".", maxsplit=1)[0] == other.split(".", maxsplit=1)[0]


def shared_surroundings(one: str, other: str) -> int:
    """How much of two `surroundings` agrees: the definition, the statement before, the one after."""
    return sum(mine == its for mine, its in zip(one.split("."), other.split("."), strict=False)) if one else 0


def digest(*parts: str) -> str:
    """A fingerprint of some texts."""
    text = "\0".join(parts)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]


def _in_order(findings: Iterable[Finding], context: ReadFile | None) -> Iterator[tuple[Finding, Surroundings | None]]:
    for file, group in groupby(sorted(findings, key=_order), key=lambda finding: finding.file):
        content = context(file) if context is not None else None
        around = Surroundings(content, file) if content is not None else None
        for finding in group:
            yield finding, around


def _core(finding: Finding, around: Surroundings | None) -> tuple[str, ...]:
    meaning = f"rule {finding.rule}" if finding.rule else f"family {family(finding.category)} {_meaning(finding)}"
    line = telling_line(finding.evidence)
    if not finding.anchored or not fold(line):
        # Without a place there is only what was said, and of which file.
        return "no place", meaning, finding.file, fold(line)
    if around is None or MASK in line:
        statement = Statement(0, 0, tokens_of_code(line, finding.file))
    else:
        statement = _telling_statement(finding, around)
    text = " ".join(statement.tokens)
    is_weak = sum(character.isalnum() for character in text) < _FEWEST_LETTERS
    if around is None:
        return meaning, text, *((finding.file,) if is_weak else ())
    at = statement if statement.first else around.code.statement(around.number_of(line, *_quoted(finding)))
    after = " ".join(next((one.tokens for one in around.code.statements(at.last + 1, at.last + _LINES)), ()))
    copies = 0 if MASK in line else around.earlier_statements(statement)
    return meaning, text, after if is_weak else "", str(copies), *around.headers(at.first)


def _meaning(finding: Finding) -> str:
    """What a title says, so that different defects on one line have different names."""
    kinds = kinds_of(stems(finding.title))
    if kinds:
        profile = Profile(finding)
        return " ".join(("kind", min(kinds), *sorted(profile.objects(kinds) & profile.code_words)))
    words = telling_stems(finding.title) | names(finding.title) | numbers(finding.title)
    return f"words {' '.join(sorted(words)) or finding.title}"


def _telling_statement(finding: Finding, around: Surroundings) -> Statement:
    """The statement of a quote that says most, which a longer or shorter quote of the same code has as well."""
    first, last = _quoted(finding)
    found = list(around.code.statements(first, min(last, first + _LINES)))
    if not found:
        text = around.line(first) or telling_line(finding.evidence)
        return Statement(first, first, tokens_of_code(text, finding.file))
    return max(found, key=lambda one: _worth(" ".join(one.tokens)))


def _quoted(finding: Finding) -> tuple[int, int]:
    """The first and the last line of the evidence; what a reviewer calls the end may lie far after it."""
    return finding.first_line, min(finding.last_line, finding.first_line + finding.evidence.count("\n"))


def telling_line(evidence: str) -> str:
    """The one line of a quote that says most, which a longer or shorter quote of the same code has as well."""
    lines = [line[:_LONGEST_LINE] for line in evidence.split("\n")[:_LINES]]
    return max(lines, key=_worth)


def _worth(line: str) -> tuple[bool, bool, int]:
    letters = sum(character.isalnum() for character in line)
    text = line.strip()
    says_something = letters >= _FEWEST_LETTERS and not is_comment(text)
    return says_something, says_something and not text.startswith(_DEFINITION), min(letters, _MOST_TELLING)


def _order(finding: Finding) -> tuple[object, ...]:
    """By place; on one line by the kind of defect, which lasts longer than wording."""
    kinds = sorted(kinds_of(stems(finding.title)))
    place = finding.file, finding.first_line, finding.last_line
    return *place, finding.rule or "", kinds, finding.title, finding.body, finding.evidence


def _first_core(finding: Finding, around: Surroundings | None) -> tuple[str, ...]:
    """As version 0.1.0 had it: the folded line, its family or rule, and the folded lines that enclose it."""
    kind = f"rule {finding.rule}" if finding.rule else f"family {family(finding.category)}"
    line = telling_line(finding.evidence)
    folded = fold(line)
    if not finding.anchored or not folded:
        words: Sequence[str] = () if folded else sorted(telling_stems(finding.title))
        return "no place", kind, finding.file, folded, *words
    weak = sum(character.isalnum() for character in folded) < _FEWEST_LETTERS
    if around is None:
        return kind, folded, *((finding.file,) if weak else ())
    number = around.number_of(line, finding.first_line, finding.last_line)
    if MASK in line:
        line = around.line(number)
    behind = around.following(number) if weak else ""
    return kind, folded, behind, str(around.earlier_copies(number, line)), *around.enclosing(number, line)
