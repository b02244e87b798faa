"""The words by which findings are compared, read once from `vocabulary.toml`."""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Mapping
from enum import StrEnum
from functools import cache, cached_property, lru_cache
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.engine.code_text import has_letters, tokens_of_code
from codeloupe.model.finding import Finding

_FILE = Path(__file__).with_name("vocabulary.toml")


class Vocabulary(Struct, frozen=True):
    """Words as they stand in the file: empty ones, opposites, beginnings by family, ways to say each kind of defect."""

    empty_words: frozenset[str]
    attributes: frozenset[str]
    things: frozenset[str]
    told_of: frozenset[str]
    synonyms: tuple[tuple[str, ...], ...]
    opposites: tuple[tuple[str, str], ...]
    families: Mapping[str, tuple[str, ...]]
    kinds: Mapping[str, tuple[tuple[str, ...], ...]]


@cache
def vocabulary() -> Vocabulary:
    """The words of the file that is shipped."""
    document = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    return Vocabulary(
        empty_words=frozenset(document["empty_words"].split()),
        attributes=frozenset(document["attributes"].split()),
        things=frozenset(document["things"].split()),
        told_of=frozenset(document["told_of"]),
        synonyms=tuple(tuple(group.split()) for group in document["synonyms"]),
        opposites=tuple((one, other) for one, other in document["opposites"]),
        families={name: tuple(beginnings.split()) for name, beginnings in document["families"].items()},
        kinds={
            kind: tuple(tuple(way.split()) for way in ways.split(",") if way.strip())
            for kind, ways in document["kinds"].items()
        },
    )


_LONGEST_TEXT = 4_000
_WORD = re.compile(r"[^\W_]{1,60}")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_TICKED = re.compile(r"`([^`\n]{1,200})`")
# Only at the start of a word, or a long word would be tried at each of its letters.
_CODE_LIKE = re.compile(
    r"(?<!\w)(?:"
    r"[A-Za-z_]\w{0,80}(?:\.\w{1,80}){1,9}"  # dotted
    r"|[A-Za-z]\w{0,80}_\w{1,80}"  # snake_case
    r"|[a-z]{1,40}[A-Z]\w{0,80}"  # camelCase
    r"|[A-Za-z_]\w{0,80}(?=\(\))"  # a call
    r")"
)
_NAME = re.compile(r"[^\W\d]\w{0,80}")
_NUMBER = re.compile(r"(?<![\w.])\d{1,12}(?:\.\d{1,6})?(?![\w])")
# An ending and what stands for it in the stem, the longest first.
_ENDINGS = (
    ("ification", "ify"),
    ("isations", "is"),
    ("isation", "is"),
    ("nesses", ""),
    ("ments", ""),
    ("ities", ""),
    ("edly", ""),
    ("ness", ""),
    ("ment", ""),
    ("able", ""),
    ("ible", ""),
    ("ency", "ent"),
    ("ancy", "ant"),
    ("ions", ""),
    ("ings", ""),
    ("ies", "y"),
    ("ied", "y"),
    ("ion", ""),
    ("ing", ""),
    ("ers", ""),
    ("ity", ""),
    ("er", ""),
    ("ed", ""),
    ("ly", ""),
    ("s", ""),
)
_SHORTEST_STEM = 3
# Longer words in un-ed are a negation: who writes "unquoted" today writes "not quoted" tomorrow.
_LONGEST_UNNEGATED = 7


@lru_cache(maxsize=8192)
def stem(word: str) -> str:
    """A word without its ending, so that `closing` and `closed` are the same; British and American alike."""
    word = word.lower().replace("iz", "is").replace("our", "or")
    for ending, instead in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST_STEM:
            if ending == "s" and word.endswith("ss"):
                break
            word = word[: -len(ending)] + instead
            if len(word) > _SHORTEST_STEM and word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    return word[:-1] if len(word) > _SHORTEST_STEM and word[-1] == "e" and word != "none" else word


def stems(text: str) -> frozenset[str]:
    """The stems of all words, also of those that a name in the code is made of, and of empty ones."""
    shown = text[:_LONGEST_TEXT].replace("_", " ")
    return frozenset(stem(word) for word in (*_WORD.findall(shown), *_WORD.findall(_CAMEL.sub(" ", shown))))


def telling_stems(text: str) -> frozenset[str]:
    """The stems of the words that tell what a comment is about."""
    words = (word.lower() for word in _WORD.findall(_CAMEL.sub(" ", text[:_LONGEST_TEXT]).replace("_", " ")))
    empty = vocabulary().empty_words
    told = (word for word in words if word not in empty and not word.isdigit() and len(word) > 1)
    return frozenset(stem(_without_negation(word)) for word in told)


def _without_negation(word: str) -> str:
    negated = word.startswith("un") and word.endswith("ed") and len(word) > _LONGEST_UNNEGATED
    return word[2:] if negated and word != "unlocked" else word


def names(text: str) -> frozenset[str]:
    """The names of code in a comment: what stands in backticks, and what is written as only code is."""
    shown = text[:_LONGEST_TEXT]
    pieces = [*_TICKED.findall(shown), *_CODE_LIKE.findall(shown)]
    return frozenset(name for piece in pieces for name in _NAME.findall(piece))


def mentioned(text: str, known: frozenset[str]) -> frozenset[str]:
    """Which of some known names a text mentions as a word."""
    return frozenset(_NAME.findall(text[:_LONGEST_TEXT])) & known


def numbers(text: str) -> frozenset[str]:
    """The numbers in a text."""
    return frozenset(_NUMBER.findall(text[:_LONGEST_TEXT]))


_WORDS = re.compile(r"[a-z]{2,40}")
_LONGEST_CATEGORY = 200


class Family(StrEnum):
    """What a finding is about, as coarse as models agree on it."""

    SECURITY = "security"
    TESTS = "tests"
    DOCUMENTATION = "documentation"
    COMPATIBILITY = "compatibility"
    PERFORMANCE = "performance"
    UPKEEP = "upkeep"
    BEHAVIOUR = "behaviour"


@lru_cache(maxsize=1024)
def family(category: str) -> Family:
    """The family of a category in anybody's words; what belongs to no other is about behaviour."""
    words = _WORDS.findall(category[:_LONGEST_CATEGORY].lower())
    for name, beginnings in vocabulary().families.items():
        if any(word.startswith(beginnings) for word in words):
            return Family(name)
    return Family.BEHAVIOUR


def kinds_of(stems: frozenset[str]) -> frozenset[str]:
    """The kinds of defects that the stems of a sentence speak of."""
    ways = _ways()
    return frozenset(kind for word in stems if word in ways for words, kind in ways[word] if words <= stems)


@cache
def words_of_kinds(kinds: frozenset[str]) -> frozenset[str]:
    """The stems of all words by which some kinds are told."""
    return frozenset(stem(word) for kind in kinds for way in vocabulary().kinds.get(kind, ()) for word in way)


@cache
def _ways() -> Mapping[str, tuple[tuple[frozenset[str], str], ...]]:
    """The ways to say a kind, each under its longest word, so that few are tried for a sentence."""
    found: defaultdict[str, list[tuple[frozenset[str], str]]] = defaultdict(list)
    for kind, ways in vocabulary().kinds.items():
        for way in ways:
            words = frozenset(map(stem, way))
            found[max(sorted(words), key=len)].append((words, kind))
    return {word: tuple(known) for word, known in found.items()}


_LONGEST_TITLE = 1_000
_SHORTEST_BEGINNING = 3
_SHORTEST_TELLING_LINE = 4
_QUOTED_LINES = 60
_LONGEST_PART = 4_000
_SENTENCE = re.compile(r"[.;!?](?=\s|$)|\n")
_SENTENCES = 12
_CALLED = re.compile(r"([^\W\d]\w{0,80})\s{0,9}\(")
_WHOLE_NAME = re.compile(r"(?<![\w.])([^\W\d]\w{0,80})(?![\w.(])")
_ASSIGNED = re.compile(r"(?<![\w.])([^\W\d]\w{0,80})\s{0,9}:?=(?!=)")
_SPECIFIC = re.compile(r"[<>=!]==?|(?<!\w)(?:[A-Z]{1,9}[a-z]{1,40}[A-Z]\w{0,60}|[a-zA-Z_]{2,60}\.[a-zA-Z_]{2,60})")
_CLAIM = re.compile(
    r"\b(?:is|are|may|can|could|might|has|have|does|do|not|never|without|when|must|should|will|was|cannot|needs)\b",
    re.IGNORECASE,
)
_PROFILE_WORD = re.compile(r"\w+")
_OWNED = re.compile(r"(?<![\w.])((?:[^\W\d]\w{0,80}\.){1,9})([^\W\d]\w{0,80})")
_SOURCE = re.compile(r"\b(?:through|via) (?:the )?`?([^\W\d]\w{0,80})`?$")
_OWNER_OF_CALL = re.compile(r"(?<![\w.])([^\W\d]\w{0,80})\.\w{1,80}\(")
_VARIABLE = re.compile(r"(?<!\w)([^\W\d]\w{0,80})(?![\w.(])")
# What stands before the thing that a title is about, and what ends it.
_PREPOSITION = re.compile(
    r"\b(?:of|on|for|through|via|from|when|if|that|with|against|because|access to)\b", re.IGNORECASE
)
_VERB = re.compile(
    r"\b(?:is|are|may|can|could|might|has|have|does|do|not|never|without|must|should|will|was|cannot|needs|leaks?|lacks?"
    r"|raises?|returns?|allows?|fails?|panics?|lets?|takes?|picks?|reach(?:es)?|reads?|written|silently|goes"
    r"|in|into|to|before|after|between|by)\b|:",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"[:,;]")
_ABSENCE = re.compile(r"(?:un\w+|missing|no|leaked|negative|hard|possible|potential)\b", re.IGNORECASE)


class Profile(Struct, frozen=True, dict=True):
    """What of a finding can be compared; each part is worked out when it is first needed."""

    finding: Finding

    @cached_property
    def title(self) -> str:
        """Its title; more than the beginning only a hostile one has."""
        return self.finding.title[:_LONGEST_TITLE]

    @cached_property
    def sentences(self) -> frozenset[str]:
        """What its body and its advice say, sentence by sentence."""
        texts = (self.finding.body, self.finding.suggestion or "")
        found = (sentence for text in texts for sentence in _SENTENCE.split(text[:_LONGEST_PART]))
        return frozenset(" ".join(sentence.split()).casefold() for sentence in found) - {""}

    @cached_property
    def spoken(self) -> frozenset[str]:
        """The telling words of the title, those of the code too."""
        return frozenset(self.spoken_in_order)

    @cached_property
    def spoken_in_order(self) -> tuple[str, ...]:
        """The same in their order."""
        words = (found for word in _PROFILE_WORD.findall(self.title) for found in sorted(telling_stems(word)))
        return tuple(meanings().get(word, word) for word in words)

    @cached_property
    def subject(self) -> frozenset[str]:
        """What a title that is a plain sentence is about."""
        claim = _CLAIM.search(self._plain_title)
        return telling_stems(self._plain_title[: claim.start()]) - attributes() if claim else frozenset()

    @cached_property
    def _plain_title(self) -> str:
        """The title with `address` for `user.address`, which is what it speaks of, but with `file.close` as it is."""
        return _OWNED.sub(lambda found: found[0] if found[2] in self.called else found[2], self.title)

    def objects(self, kinds: frozenset[str]) -> frozenset[str]:
        """What the title says some kinds of defects of, as far as its grammar is plain."""
        sources = telling_stems(" ".join(_SOURCE.findall(self._plain_title)))
        ways = words_of_kinds(kinds & self.title_kinds) - things() - sources
        empty = attributes() - self.variable_words
        known = ways | empty
        is_all = not kinds.isdisjoint(vocabulary().told_of)
        found: set[str] = set()
        for clause in _CLAUSE.split(self._plain_title):
            first, *more = _PREPOSITION.split(clause)
            verb, absence = _VERB.search(first), _ABSENCE.match(first.lstrip())
            phrases = [*more, first] if verb and verb.start() and not absence else more
            words = [self._things(_VERB.split(phrase)[0]) for phrase in phrases]
            if absence and not any(one - known for one in words):
                words.append(self._things(_VERB.split(first.lstrip()[absence.end() :])[0]) - known)
            found.update(*(one - known or (one - empty if is_all and len(one - empty) == 1 else ()) for one in words))
        return frozenset(map(self._as_in_code, meant(frozenset(found))))

    def _as_in_code(self, word: str) -> str:
        """The name that a word begins with: `conn` is called a connection."""
        begun = (name for name in self.code_words if len(name) >= _SHORTEST_BEGINNING and word.startswith(name))
        return max(begun, key=len, default=word)

    def _things(self, phrase: str) -> frozenset[str]:
        """The telling words, and names of one letter."""
        letters = {word for word in _PROFILE_WORD.findall(phrase) if len(word) == 1 and word in self._code_names}
        return telling_stems(phrase) | letters

    @cached_property
    def variable_words(self) -> frozenset[str]:
        """The words of what the quoted code names without calling it."""
        return meant(self._things(" ".join(_VARIABLE.findall(self._code))))

    @cached_property
    def called_words(self) -> frozenset[str]:
        """The words of what it calls."""
        return meant(telling_stems(" ".join(self.called)))

    @cached_property
    def all_words(self) -> frozenset[str]:
        """The telling words of all its texts, those of the code too."""
        return meant(telling_stems(self._texts))

    @cached_property
    def code_words(self) -> frozenset[str]:
        """The words of the code, and its names of one letter."""
        return meant(self._things(self._code))

    @cached_property
    def quoted(self) -> frozenset[str]:
        """The lines of its evidence that say something, as tokens."""
        lines = self._code.split("\n")[:_QUOTED_LINES]
        said = (" ".join(tokens_of_code(line, self.finding.file)) for line in lines)
        return frozenset(line for line in said if len(line) >= _SHORTEST_TELLING_LINE and has_letters(line))

    @cached_property
    def title_words(self) -> frozenset[str]:
        """The telling words of the title that are not in the code."""
        return telling_stems(self.title) - self._code_words

    @cached_property
    def claim_words(self) -> frozenset[str]:
        """The telling words of what the title says of its subject; of all the title where that is not plain."""
        subject, claim = _split_title(self.title)
        return (telling_stems(claim) if subject else telling_stems(self.title)) - self._code_words

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
    def _code_names(self) -> frozenset[str]:
        return frozenset(_NAME.findall(self._code))

    @cached_property
    def _code_words(self) -> frozenset[str]:
        return telling_stems(self._code)

    @cached_property
    def title_kinds(self) -> frozenset[str]:
        """The kinds of defects that its title or its rule speak of."""
        return kinds_of(stems(self.title)) | kinds_of(stems(self.finding.rule or ""))

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
    def owners(self) -> frozenset[str]:
        """What the quoted code calls something of, such as a module."""
        return frozenset(_OWNER_OF_CALL.findall(self._code))

    @cached_property
    def title_names(self) -> frozenset[str]:
        """The names of code in the title that are written as such."""
        return names(self.title)

    @cached_property
    def mentioned_names(self) -> frozenset[str]:
        """The words of the title that are names in the quoted code, which may be chance."""
        return self.title_names | mentioned(self.finding.title, frozenset(_NAME.findall(self._code)))

    def plain_names(self, said: frozenset[str]) -> frozenset[str]:
        """Those that are neither the words by which a kind of defect is told, nor what the code calls something of."""
        empty = vocabulary().empty_words
        found = (name for name in self.mentioned_names if stem(name) not in said and name.lower() not in empty)
        return frozenset(found) - self.owners

    @cached_property
    def all_names(self) -> frozenset[str]:
        """All that could be a name in its texts."""
        return frozenset(_NAME.findall(self._texts))

    @cached_property
    def title_numbers(self) -> frozenset[str]:
        """The numbers in the title that may tell two defects apart."""
        return numbers(self.title) - {"0", "1"}

    @cached_property
    def title_stems(self) -> frozenset[str]:
        """All words of the title."""
        return stems(self.title)

    @cached_property
    def opposites(self) -> frozenset[str]:
        """The opposites of words of the title that are not in it themselves."""
        return frozenset(other for word in self.title_stems for other in opposites().get(word, ())) - self.title_stems

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


def _split_title(title: str) -> tuple[str, str]:
    """The subject of a title and what is said of it; no subject when the title is but a noun with its attributes."""
    found = _CLAIM.search(title)
    return (title[: found.start()], title[found.start() :]) if found and found.start() else ("", title)


def meant(words: frozenset[str]) -> frozenset[str]:
    """The words, each as the first of those that mean the same."""
    return frozenset(meanings().get(word, word) for word in words)


@cache
def meanings() -> Mapping[str, str]:
    """By word the first of those that mean the same."""
    return {stem(word): stem(group[0]) for group in vocabulary().synonyms for word in group}


@cache
def attributes() -> frozenset[str]:
    """Words that say nothing of what a defect is told of."""
    return frozenset(map(stem, vocabulary().attributes))


@cache
def things() -> frozenset[str]:
    """Words of a kind of defect that are also what it is told of."""
    return frozenset(map(stem, vocabulary().things))


@cache
def opposites() -> Mapping[str, frozenset[str]]:
    """By word those that mean the opposite."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for one, other in vocabulary().opposites:
        found[stem(one)].add(stem(other))
        found[stem(other)].add(stem(one))
    return {word: frozenset(others) for word, others in found.items()}


# Findings whose lines are further apart are never one.
NEAR_LINES = 3
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
_LONGEST_QUOTE = 4_000


def likeness(one: Profile, other: Profile) -> float:
    """How surely two findings of one file are one defect: from 0.5 on they are, 0 means that they are not."""
    lines = gap(one.finding, other.finding)
    if lines > NEAR_LINES:
        return _NEVER
    one, other = _without_what_both_say(one, other)
    if not (one.finding.anchored and other.finding.anchored):
        found = _likeness_without_place(one, other)
    elif lines <= 0:
        found = _likeness_at_one_place(one, other)
    else:
        found = _likeness_of_neighbours(one, other)
    return found if found > _NEVER and not are_told_apart(one, other) else _NEVER


def _without_what_both_say(one: Profile, other: Profile) -> tuple[Profile, Profile]:
    """Both without the sentences that are in both: a phrase that fits any defect makes no two of them one."""
    common = one.sentences & other.sentences
    if not common or one.title.casefold() == other.title.casefold():
        return one, other
    return _without(one, common), _without(other, common)


def _without(profile: Profile, common: frozenset[str]) -> Profile:
    kept = ". ".join(sorted(profile.sentences - common))
    return Profile(replace(profile.finding, body=kept, suggestion=None))


def likeness_of_meaning(one: Profile, other: Profile) -> float:
    """The same for two findings about one place, whatever lines they have: of two rounds, or of a baseline.

    The same reviewer may say it in other words the next time, so less has to agree than between two at one time.
    """
    one, other = _without_what_both_say(one, other)
    if are_told_apart(one, other):
        return _NEVER
    if _is_retold(one, other):
        return _SAME_KIND
    found = _likeness_at_one_place(one, other)
    return found if found >= _LIKE_WORDS or not _is_reworded(one, other) else _LIKE_WORDS


def _is_retold(one: Profile, other: Profile) -> bool:
    """Whether two titles have nearly the same words, and not only those of the code."""
    if one.title_kinds and other.title_kinds and one.title_kinds.isdisjoint(other.title_kinds):
        return False
    shared = one.spoken & other.spoken
    return _share(one.spoken, other.spoken) >= _MUCH_TOLD and bool(shared - one.code_words - other.code_words)


def _is_reworded(one: Profile, other: Profile) -> bool:
    """Whether the texts have much in common, and each says much of the other's title; of one kind at most."""
    if one.family is Family.TESTS or (one.title_kinds and other.title_kinds):
        return False
    shared = one.words & other.words
    if shared - attributes() <= one.subject or shared - attributes() <= other.subject:
        return False
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
    return min(finding.last_line, finding.first_line + finding.evidence.count("\n", 0, _LONGEST_QUOTE))


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
    shared = (one.words & other.words) - attributes()
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
    return (
        _are_opposed(one, other)
        or _names_differ(one, other)
        or _objects_differ(one, other)
        or _one_word_differs(one, other)
    )


def _objects_differ(one: Profile, other: Profile) -> bool:
    """Whether two titles of one kind say it of different things: "no check of the index", "no check of the command"."""
    kinds = (one.title_kinds & other.kinds) | (other.title_kinds & one.kinds)
    left, right = one.objects(kinds), other.objects(kinds)
    if not left or not right or left & right:
        return False
    ways = words_of_kinds(kinds) - things()
    if not (left & (other.all_words - ways) or right & (one.all_words - ways)):
        return True
    names = one.code_words | other.code_words
    return not kinds.isdisjoint(vocabulary().told_of) and bool(left & names and right & names)


def _one_word_differs(one: Profile, other: Profile) -> bool:
    """Whether two titles are one sentence, said of two things."""
    left, right = one.spoken_in_order, other.spoken_in_order
    if len(left) != len(right) or len(left) < _FEWEST_SHARED_WORDS:
        return False
    differing = [pair for pair in zip(left, right, strict=True) if pair[0] != pair[1]]
    if len(differing) != 1:
        return False
    [pair] = differing
    return attributes().isdisjoint(pair) and not words_of_kinds(one.title_kinds & other.title_kinds).issuperset(pair)


def _are_opposed(one: Profile, other: Profile) -> bool:
    """Whether one title has a word and the other its opposite, and neither has both."""
    against = one.opposites & other.title_stems
    return any(not opposites()[word].isdisjoint(one.title_stems - other.title_stems) for word in against)


def _names_differ(one: Profile, other: Profile) -> bool:
    """Whether the titles name different variables, or different functions, that the other text does not mention.

    A plain word that the code has as a name counts where not both titles have names that are written as such.
    """
    said = words_of_kinds((one.title_kinds & other.kinds) | (other.title_kinds & one.kinds))
    if one.title_names and other.title_names:
        left, right = one.title_names, other.title_names
    else:
        left, right = one.plain_names(said), other.plain_names(said)
    called = one.called | other.called
    left, right = left - other.all_names, right - one.all_names
    return bool((left - called and right - called) or (left & called and right & called))


def _share(one: frozenset[str], other: frozenset[str]) -> float:
    """How much of two sets is in both, from 0 to 1."""
    return 2 * len(one & other) / (len(one) + len(other)) if one and other else 0.0
