"""Whether two findings tell of one defect: by place, kind of defect, names in the code, and words.

On one line, comments about different defects share most of their words, as both speak of the same code. So words that
the quoted code holds do not count, and what tells two defects apart (another name, another number, an opposite) weighs
more than likeness: to merge two defects hides one of them, to leave one twice is only untidy.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from functools import cache, cached_property

from codeloupe.engine.code_tokens import tokens_of_code
from codeloupe.engine.comment_words import mentioned, names, numbers, stem, stems, telling_stems
from codeloupe.engine.defect_kinds import kinds_of
from codeloupe.engine.families import Family, family
from codeloupe.engine.folding import has_letters
from codeloupe.engine.vocabulary import vocabulary
from codeloupe.model.finding import Finding
from codeloupe.model.records import dataclass

# Findings whose lines are further apart are never one.
NEAR_LINES = 3
_SHORTEST_TELLING_LINE = 4
_QUOTED_LINES = 60
_LONGEST_PART = 4_000
_SENTENCE = re.compile(r"[.;!?](?=\s|$)|\n")
_SENTENCES = 12
_CALLED = re.compile(r"([^\W\d]\w{0,80})\s{0,9}\(")
_WHOLE_NAME = re.compile(r"(?<![\w.])([^\W\d]\w{0,80})(?![\w.(])")
_ASSIGNED = re.compile(r"(?<![\w.])([^\W\d]\w{0,80})\s{0,9}:?=(?!=)")
_NAME = re.compile(r"[^\W\d]\w{0,80}")
_SPECIFIC = re.compile(r"[<>=!]==?|(?<!\w)(?:[A-Z]{1,9}[a-z]{1,40}[A-Z]\w{0,60}|[a-zA-Z_]{2,60}\.[a-zA-Z_]{2,60})")
_CLAIM = re.compile(
    r"\b(?:is|are|may|can|could|might|has|have|does|do|not|never|without|when|must|should|will|was|cannot|needs)\b",
    re.IGNORECASE,
)
_APART = frozenset({Family.TESTS, Family.DOCUMENTATION})
_SAME_WORDS = 0.8
_LIKE_WORDS = 0.5
_SAME_KIND, _TOLD_KIND = 0.75, 0.6
_FEWEST_SHARED_WORDS, _MANY_SHARED_WORDS = 2, 4
_TRACE_SHARED, _FEW_SHARED, _MUCH_SHARED = 0.1, 0.2, 0.5
_SOME_SHARED, _HALF_SHARED, _MOST_SHARED = 0.35, 0.44, 0.55
_MUCH_TOLD = 0.75
_MOST_TOLD = 0.65
_NEVER = 0.0


@dataclass(frozen=True)
class Profile:
    """What of a finding can be compared; each part is worked out when it is first needed."""

    finding: Finding

    @cached_property
    def quoted(self) -> frozenset[str]:
        """The lines of its evidence that say something, as tokens."""
        lines = self._code.split("\n")[:_QUOTED_LINES]
        said = (" ".join(tokens_of_code(line, self.finding.file)) for line in lines)
        return frozenset(line for line in said if len(line) >= _SHORTEST_TELLING_LINE and has_letters(line))

    @cached_property
    def title_words(self) -> frozenset[str]:
        """The telling words of the title that are not in the code."""
        return telling_stems(self.finding.title) - self._code_words

    @cached_property
    def claim_words(self) -> frozenset[str]:
        """The telling words of what the title says of its subject; of all the title where that is not plain."""
        subject, claim = _split_title(self.finding.title)
        return (telling_stems(claim) if subject else telling_stems(self.finding.title)) - self._code_words

    @cached_property
    def specifics(self) -> frozenset[str]:
        """Names, errors and operators in its texts that the quoted code does not have: a fix or a consequence."""
        found = {*_SPECIFIC.findall(self._texts), *(name for name in names(self._texts) if len(name) > 2)}
        return frozenset(part for part in found if part not in self._code)

    @cached_property
    def words(self) -> frozenset[str]:
        """The telling words of all its texts that are not in the code."""
        return telling_stems(self._texts) - self._code_words

    @cached_property
    def _texts(self) -> str:
        parts = (self.finding.title, self.finding.body, self.finding.suggestion or "")
        return "\n".join(part[:_LONGEST_PART] for part in parts)

    @cached_property
    def _code(self) -> str:
        return self.finding.evidence[:_LONGEST_PART]

    @cached_property
    def _code_words(self) -> frozenset[str]:
        return telling_stems(self._code)

    @cached_property
    def title_kinds(self) -> frozenset[str]:
        """The kinds of defects that its title or its rule speak of."""
        return kinds_of(stems(self.finding.title)) | kinds_of(stems(self.finding.rule or ""))

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds of defects that any of its sentences speaks of."""
        sentences = _SENTENCE.split(self._texts)[:_SENTENCES]
        return self.title_kinds.union(*(kinds_of(stems(sentence)) for sentence in sentences))

    @cached_property
    def called(self) -> frozenset[str]:
        """What the quoted code calls."""
        return frozenset(_CALLED.findall(self._code))

    @cached_property
    def title_names(self) -> frozenset[str]:
        """The names of code in the title that are written as such."""
        return names(self.finding.title)

    @cached_property
    def mentioned_names(self) -> frozenset[str]:
        """The words of the title that are names in the quoted code, which may be chance."""
        return self.title_names | mentioned(self.finding.title, frozenset(_NAME.findall(self._code)))

    @cached_property
    def all_names(self) -> frozenset[str]:
        """All that could be a name in its texts."""
        return frozenset(_NAME.findall(self._texts))

    @cached_property
    def title_numbers(self) -> frozenset[str]:
        """The numbers in the title that may tell two defects apart."""
        return numbers(self.finding.title) - {"0", "1"}

    @cached_property
    def title_stems(self) -> frozenset[str]:
        """All words of the title."""
        return stems(self.finding.title)

    @cached_property
    def opposites(self) -> frozenset[str]:
        """The opposites of words of the title that are not in it themselves."""
        return frozenset(other for word in self.title_stems for other in _opposites().get(word, ())) - self.title_stems

    @cached_property
    def assigned(self) -> frozenset[str]:
        """What the quoted code assigns."""
        return frozenset(_ASSIGNED.findall(self._code))

    @cached_property
    def whole_names(self) -> frozenset[str]:
        """The names in the quoted code that are neither called nor a part of another."""
        return frozenset(_WHOLE_NAME.findall(self._code))

    @cached_property
    def family(self) -> Family:
        """What it is about."""
        return family(self.finding.category)


def likeness(one: Profile, other: Profile) -> float:
    """How surely two findings of one file are one defect: from 0.5 on they are, 0 means that they are not."""
    lines = gap(one.finding, other.finding)
    if lines > NEAR_LINES:
        return _NEVER
    if not (one.finding.anchored and other.finding.anchored):
        found = _likeness_without_place(one, other)
    elif lines <= 0:
        found = _likeness_at_one_place(one, other)
    else:
        found = _likeness_of_neighbours(one, other)
    return found if found > _NEVER and not are_told_apart(one, other) else _NEVER


def likeness_of_meaning(one: Profile, other: Profile) -> float:
    """The same for two findings about one place, whatever lines they have: of two rounds, or of a baseline.

    The same reviewer may say it in other words the next time, so less has to agree than between two at one time.
    """
    if are_told_apart(one, other):
        return _NEVER
    found = _likeness_at_one_place(one, other)
    return found if found >= _LIKE_WORDS or not _is_reworded(one, other) else _LIKE_WORDS


def _is_reworded(one: Profile, other: Profile) -> bool:
    """Whether the texts have much in common, and each says much of the other's title; of one kind at most."""
    if one.family is Family.TESTS or (one.title_kinds and other.title_kinds):
        return False
    shared = one.words & other.words
    everything = _share(one.words, other.words)
    told = _told(one.title_words, other.words) + _told(other.title_words, one.words)
    if one.title_kinds or other.title_kinds:
        return everything >= _HALF_SHARED and told >= _MUCH_TOLD
    if everything >= _MOST_SHARED and len(shared) > _FEWEST_SHARED_WORDS:
        return True
    return len(shared) >= _FEWEST_SHARED_WORDS and everything >= _SOME_SHARED and told >= _MUCH_TOLD


def are_nearly_identical(one: Profile, other: Profile) -> bool:
    """Whether two findings say the same of the same lines, as one look does that reports a thing twice."""
    same_place = one.quoted == other.quoted and gap(one.finding, other.finding) <= 0
    return same_place and not are_told_apart(one, other) and _share(one.title_words, other.title_words) >= _SAME_WORDS


def gap(one: Finding, other: Finding) -> int:
    """How many lines lie from the evidence of one to that of the other; 0 or less when they share a line.

    The same line further down is another place: a defect that was pasted is there twice. What has no place may be
    anywhere.
    """
    if one.line_start is None or other.line_start is None:
        return 0
    return max(one.line_start - _last_quoted(other), other.line_start - _last_quoted(one))


def _last_quoted(finding: Finding) -> int:
    """The last line of the evidence; what a reviewer calls the end may lie far behind it."""
    return min(finding.last_line, finding.first_line + finding.evidence.count("\n", 0, _LONGEST_PART))


def _likeness_without_place(one: Profile, other: Profile) -> float:
    words = _share(one.title_words, other.title_words)
    return words if one.quoted == other.quoted and words >= _SAME_WORDS else _NEVER


def _likeness_at_one_place(one: Profile, other: Profile) -> float:
    if one.finding.rule and one.finding.rule == other.finding.rule:
        return 1.0
    everything = _share(one.words, other.words)
    if not one.title_kinds.isdisjoint(other.title_kinds):
        return _SAME_KIND + everything / 4
    told = not one.title_kinds.isdisjoint(other.kinds), not other.title_kinds.isdisjoint(one.kinds)
    if all(told) or (any(told) and everything >= _TRACE_SHARED and not (one.title_kinds and other.title_kinds)):
        return _TOLD_KIND + everything / 4
    if one.title_kinds and other.title_kinds:
        words = _share(one.title_words, other.title_words)
        return words if words >= (_LIKE_WORDS if any(told) else _SAME_WORDS) else _NEVER
    return _likeness_of_words(one, other)


def _likeness_of_words(one: Profile, other: Profile) -> float:
    """Of defects of no known kind: the texts share words, and one says nearly all that the other's title claims."""
    shared = one.words & other.words
    if len(shared) < _FEWEST_SHARED_WORDS:
        return _NEVER
    less = min(_told(one.title_words, shared), _told(other.title_words, shared))
    told = max(_told(one.claim_words, shared), _told(other.claim_words, shared))
    everything = _share(one.words, other.words)
    specific = not one.specifics.isdisjoint(other.specifics)
    if everything < (_FEW_SHARED if specific else _MUCH_SHARED):
        return _NEVER
    like = specific or len(shared) >= _MANY_SHARED_WORDS or (less and told >= _MOST_TOLD)
    return min(1.0, _LIKE_WORDS + everything / 2) if like else _NEVER


def _told(title: frozenset[str], shared: frozenset[str]) -> float:
    return len(title & shared) / len(title) if title else 0.0


def _split_title(title: str) -> tuple[str, str]:
    """The subject of a title and what is said of it; no subject when the title is but a noun with its attributes."""
    found = _CLAIM.search(title)
    return (title[: found.start()], title[found.start() :]) if found and found.start() else ("", title)


def _likeness_of_neighbours(one: Profile, other: Profile) -> float:
    """Two lines tell of one defect when the one uses what the other sets, and both say the same of it."""
    if one.title_kinds.isdisjoint(other.title_kinds):
        return _NEVER
    return _TOLD_KIND if _sets_for(one, other) or _sets_for(other, one) else _NEVER


def _sets_for(setting: Profile, using: Profile) -> bool:
    return not (setting.assigned - using.assigned).isdisjoint(using.whole_names)


def are_told_apart(one: Profile, other: Profile) -> bool:
    """Whether something in two findings says that they are about different things."""
    if one.family is not other.family and not _APART.isdisjoint({one.family, other.family}):
        return True
    rules = {one.finding.rule, other.finding.rule} - {None}
    if len(rules) > 1 and not one.title_kinds & other.title_kinds:
        return True
    if one.title_numbers and other.title_numbers and one.title_numbers.isdisjoint(other.title_numbers):
        return True
    return _are_opposed(one, other) or _names_differ(one, other)


def _are_opposed(one: Profile, other: Profile) -> bool:
    """Whether one title has a word and the other its opposite, and neither has both."""
    against = one.opposites & other.title_stems
    return any(not _opposites()[word].isdisjoint(one.title_stems - other.title_stems) for word in against)


def _names_differ(one: Profile, other: Profile) -> bool:
    """Whether the titles name different variables, or different functions, that the other text does not mention.

    A plain word that the code has as a name counts when the titles have most of their other words in common.
    """
    alike = _share(one.title_words, other.title_words) >= _LIKE_WORDS
    of_one, of_other = (one.mentioned_names, other.mentioned_names) if alike else (one.title_names, other.title_names)
    called = one.called | other.called
    return any(
        left and right and left.isdisjoint(other.all_names) and right.isdisjoint(one.all_names)
        for left, right in ((of_one - called, of_other - called), (of_one & called, of_other & called))
    )


@cache
def _opposites() -> Mapping[str, frozenset[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for one, other in vocabulary().opposites:
        found[stem(one)].add(stem(other))
        found[stem(other)].add(stem(one))
    return {word: frozenset(others) for word, others in found.items()}


def _share(one: frozenset[str], other: frozenset[str]) -> float:
    """How much of two sets is in both, from 0 to 1."""
    return 2 * len(one & other) / (len(one) + len(other)) if one and other else 0.0
