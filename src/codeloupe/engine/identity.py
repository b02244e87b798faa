"""What makes a finding the same finding tomorrow: the line of code it is about, what encloses it, its rule or family.

Not the line number, the path, the extent of the quote or the words of a model: so a fingerprint survives lines put in
above, a rebase, a renamed file, other white space, another wording, and a quote of one line more or less.

What it cannot tell apart by that is told apart by order: the same line again in the same definition, two defects of
one family on one line, and code that was copied into another file. Whoever keeps fingerprints must therefore look at
the file too before taking a finding for an older one of another file; `lifecycle.compare` does.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import groupby

from codeloupe.engine.comment_words import stems, telling_stems
from codeloupe.engine.defect_kinds import kinds_of
from codeloupe.engine.families import family
from codeloupe.engine.folding import fold
from codeloupe.engine.quote_gaps import MASK
from codeloupe.engine.surroundings import Surroundings, is_comment
from codeloupe.model.finding import Finding

_VERSION = "2"
_DIGITS = 32
_LINES = 60
_LONGEST_LINE = 4_000
_MOST_TELLING = 100
# A line with fewer letters and digits is not known by itself: the one behind it is added.
_FEWEST_LETTERS = 6
_DEFINITION = (
    "def ", "class ", "func ", "fn ", "function ", "public ", "private ", "protected ", "async def ", "export ", "pub ",
    "static ", "interface ", "impl ", "struct ", "module ", "namespace ", "package ",
)  # fmt: skip


def with_fingerprints(
    findings: Iterable[Finding], *, context: Callable[[str], bytes | None] | None = None
) -> tuple[Finding, ...]:
    """The findings with their fingerprints, all different, in order of file and line.

    `context` reads the reviewed content of a file; without it, or where it gives None, nothing is known of what
    encloses a line, and fewer findings can be told apart by more than their order.
    """
    seen: Counter[str] = Counter()
    named: list[Finding] = []
    for file, group in groupby(sorted(findings, key=_order), key=lambda finding: finding.file):
        content = context(file) if context is not None else None
        around = Surroundings(content) if content is not None else None
        for finding in group:
            core = "\0".join(_core(finding, around))
            seen[core] += 1
            named.append(replace(finding, fingerprint=digest(_VERSION, core, str(seen[core]))))
    return tuple(named)


def digest(*parts: str) -> str:
    """A fingerprint of some texts."""
    text = "\0".join(parts)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]


def _core(finding: Finding, around: Surroundings | None) -> tuple[str, ...]:
    kind = f"rule {finding.rule}" if finding.rule else f"family {family(finding.category)}"
    line = _telling_line(finding.evidence)
    folded = fold(line)
    if not finding.anchored or not folded:
        # Without a place there is only what was said, and of which file.
        words = () if folded else sorted(telling_stems(finding.title))
        return "no place", kind, finding.file, folded, *words
    weak = sum(character.isalnum() for character in folded) < _FEWEST_LETTERS
    if around is None:
        return kind, folded, *((finding.file,) if weak else ())
    number = around.number_of(line, finding.line_start, finding.line_end)
    if MASK in line:
        line = around.line(number)
    behind = around.following(number) if weak else ""
    return kind, folded, behind, str(around.earlier_copies(number, line)), *around.enclosing(number, line)


def _telling_line(evidence: str) -> str:
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
    place = finding.file, finding.line_start, finding.line_end
    return *place, finding.rule or "", kinds, finding.title, finding.body, finding.evidence
