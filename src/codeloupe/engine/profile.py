"""What of a finding can be compared with another: its words, the names it mentions, and what its title is about."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from functools import cache, cached_property

from msgspec import Struct

from codeloupe.engine.code_tokens import tokens_of_code
from codeloupe.engine.comment_words import mentioned, names, numbers, stem, stems, telling_stems
from codeloupe.engine.defect_kinds import kinds_of, words_of_kinds
from codeloupe.engine.families import Family, family
from codeloupe.engine.folding import has_letters
from codeloupe.engine.vocabulary import vocabulary
from codeloupe.model.finding import Finding

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
_NAME = re.compile(r"[^\W\d]\w{0,80}")
_SPECIFIC = re.compile(r"[<>=!]==?|(?<!\w)(?:[A-Z]{1,9}[a-z]{1,40}[A-Z]\w{0,60}|[a-zA-Z_]{2,60}\.[a-zA-Z_]{2,60})")
_CLAIM = re.compile(
    r"\b(?:is|are|may|can|could|might|has|have|does|do|not|never|without|when|must|should|will|was|cannot|needs)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"\w+")
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
        words = (found for word in _WORD.findall(self.title) for found in sorted(telling_stems(word)))
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
        letters = {word for word in _WORD.findall(phrase) if len(word) == 1 and word in self._code_names}
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
