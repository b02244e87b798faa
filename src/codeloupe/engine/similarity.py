"""Whether two findings are one defect, by the code they are about and by words: stems, names, and kinds of defects.

`vocabulary.toml` has those kinds, each with the ways to say it.
"""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from codeloupe.engine.code_text import has_letters, tokens_of_code
from codeloupe.model.finding import Finding
from codeloupe.system.regex import regex

_LONGEST_TEXT = 4_000
_WORD = regex(r"[^\W_]{1,60}")
_CAMEL = regex(r"(?<=[a-z0-9])(?=[A-Z])")
_TICKED = regex(r"`([^`\n]{1,200})`")
# Only at the start of a word, or a long word would be tried at each of its letters.
_CODE_LIKE = regex(
    r"(?<!\w)(?:"
    r"[A-Za-z_]\w{0,80}(?:\.\w{1,80}){1,9}"  # dotted
    r"|[A-Za-z]\w{0,80}_\w{1,80}"  # snake_case
    r"|[a-z]{1,40}[A-Z]\w{0,80}"  # camelCase
    r"|[A-Za-z_]\w{0,80}(?=\(\))"  # a call
    r")"
)
_NAME = regex(r"[^\W\d]\w{0,80}")
NUMBER = regex(r"(?<![\w.])\d{1,12}(?:\.\d{1,6})?(?![\w])")
# Endings, the longest first, and what replaces some of them in the stem.
_ENDINGS = (
    "ification", "isations", "isation", "nesses", "ments", "ities", "edly", "ness", "ment", "able", "ible", "ency",
    "ancy", "ions", "ings", "ies", "ied", "ion", "ing", "ers", "ity", "er", "ed", "ly", "s",
)  # fmt: skip
_INSTEAD = {"ification": "ify", "isations": "is", "isation": "is", "ency": "ent", "ancy": "ant", "ies": "y", "ied": "y"}
_SHORTEST_STEM = 3


@lru_cache(maxsize=8192)
def stem(word: str) -> str:
    """A word without its ending, so that `closing` and `closed` are the same; British and American alike."""
    word = word.lower().replace("iz", "is").replace("our", "or")
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST_STEM:
            if ending == "s" and word.endswith("ss"):
                break
            word = word[: -len(ending)] + _INSTEAD.get(ending, "")
            if len(word) > _SHORTEST_STEM and word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    return word[:-1] if len(word) > _SHORTEST_STEM and word[-1] == "e" and word != "none" else word


def stems(text: str) -> frozenset[str]:
    """The stems of all words, also of those that a name in the code is made of, and of empty ones."""
    shown = text[:_LONGEST_TEXT].replace("_", " ")
    return frozenset(stem(word) for word in (*_WORD.findall(shown), *_WORD.findall(_CAMEL.sub(" ", shown))))


@lru_cache(maxsize=4096)
def telling_stems(text: str) -> frozenset[str]:
    """The stems of the words that tell what a comment is about."""
    found: set[str] = set()
    for written in _WORD.findall(_CAMEL.sub(" ", text[:_LONGEST_TEXT]).replace("_", " ")):
        word = written.lower()
        if word in _vocabulary().empty_words or word.isdigit() or len(word) < 2:
            continue
        # Longer words in un-ed are a negation: who writes "unquoted" today writes "not quoted" tomorrow.
        negated = word.startswith("un") and word.endswith("ed") and len(word) > 7
        found.add(stem(word[2:] if negated and word != "unlocked" else word))
    return frozenset(found)


def names(text: str) -> frozenset[str]:
    """The names of code in a comment: what is in backticks, and what is written as only code is."""
    shown = text[:_LONGEST_TEXT]
    pieces = [*_TICKED.findall(shown), *_CODE_LIKE.findall(shown)]
    return frozenset(name for piece in pieces for name in _NAME.findall(piece))


class _Vocabulary:
    """The words of the file. All but the empty ones and the beginnings of families are stems.

    `meanings` has by word the first of those that mean the same; `ways` has the ways to say a kind, each under its
    longest word, so that few are tried for a sentence.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        self.empty_words = frozenset(document["empty_words"].split())
        self.attributes = frozenset(map(stem, document["attributes"].split()))
        self.things = frozenset(map(stem, document["things"].split()))
        self.vague_kinds = frozenset(document["vague_kinds"])
        groups = [[stem(word) for word in group.split()] for group in document["synonyms"]]
        self.meanings = {word: group[0] for group in groups for word in group}
        self.families = {name: tuple(words.split()) for name, words in document["families"].items()}
        patterns = (document["patterns"][name] for name in ("claim", "preposition", "verb", "absence"))
        self.claim, self.preposition, self.verb, self.absence = (regex(one, re.IGNORECASE) for one in patterns)
        pairs = [tuple(map(stem, pair.split())) for pair in document["opposites"]]
        self.opposites = [*pairs, *(pair[::-1] for pair in pairs)]
        self.kinds = {
            kind: [frozenset(map(stem, way.split())) for way in ways.split(",")]
            for kind, ways in document["kinds"].items()
        }
        self.ways: defaultdict[str, list[tuple[frozenset[str], str]]] = defaultdict(list)
        for kind, ways in self.kinds.items():
            for words in ways:
                self.ways[max(sorted(words), key=len)].append((words, kind))


@cache
def _vocabulary() -> _Vocabulary:
    return _Vocabulary(tomllib.loads(Path(__file__).with_name("vocabulary.toml").read_text(encoding="utf-8")))


def kinds_of(stems: frozenset[str]) -> frozenset[str]:
    """The kinds of defects that the stems of a sentence speak of: two comments of one kind are likely one defect."""
    ways = _vocabulary().ways
    return frozenset(kind for word in stems if word in ways for words, kind in ways[word] if words <= stems)


@cache
def _words_of_kinds(kinds: frozenset[str]) -> frozenset[str]:
    """The stems of all words that say some kinds."""
    return frozenset().union(*(way for kind in kinds for way in _vocabulary().kinds.get(kind, ())))


BEHAVIOUR = "behaviour"


@lru_cache(maxsize=1024)
def family(category: str) -> str:
    """The family of a category, as coarse as models agree on it; what belongs to no other is about behaviour."""
    words = re.findall(r"[a-z]{2,40}", category[:200].lower())
    families = _vocabulary().families.items()
    return next((name for name, begun in families if any(word.startswith(begun) for word in words)), BEHAVIOUR)


def is_family(name: str) -> bool:
    """Whether this is the name of a family."""
    return name == BEHAVIOUR or name in _vocabulary().families


_SENTENCE = regex(r"[.;!?](?=\s|$)|\n")
_CALLED = regex(r"([^\W\d]\w{0,80})\s{0,9}\(")
_WHOLE_NAME = regex(r"(?<![\w.])([^\W\d]\w{0,80})(?![\w.(])")
_ASSIGNED = regex(r"(?<![\w.])([^\W\d]\w{0,80})\s{0,9}:?=(?!=)")
_OWNER_OF_CALL = regex(r"(?<![\w.])([^\W\d]\w{0,80})\.\w{1,80}\(")
_VARIABLE = regex(r"(?<!\w)([^\W\d]\w{0,80})(?![\w.(])")
_SPECIFIC = regex(r"[<>=!]==?|(?<!\w)(?:[A-Z]{1,9}[a-z]{1,40}[A-Z]\w{0,60}|[a-zA-Z_]{2,60}\.[a-zA-Z_]{2,60})")
_OWNED = regex(r"(?<![\w.])((?:[^\W\d]\w{0,80}\.){1,9})([^\W\d]\w{0,80})")
_SOURCE = regex(r"\b(?:through|via) (?:the )?`?([^\W\d]\w{0,80})`?$")
_CLAUSE = regex(r"[:,;]")


def _meant(words: frozenset[str]) -> frozenset[str]:
    """The words, each as the first of those that mean the same."""
    meanings = _vocabulary().meanings
    return frozenset(meanings.get(word, word) for word in words)


class _Code:
    """The quoted code. `variables` are words of what it does not call, `owners` what it calls something of (a module).

    `whole` are names that are neither called nor a part of another; `lines` those that say something, as tokens.
    """

    def __init__(self, finding: Finding) -> None:
        self.text = text = finding.evidence[:_LONGEST_TEXT]
        self.names = frozenset(_NAME.findall(text))
        self.stems = telling_stems(text)
        self.words = _meant(_things(text, self.names))
        self.variables = _meant(_things(" ".join(_VARIABLE.findall(text)), self.names))
        self.called = frozenset(_CALLED.findall(text))
        self.owners = frozenset(_OWNER_OF_CALL.findall(text))
        self.assigned = frozenset(_ASSIGNED.findall(text))
        self.whole = frozenset(_WHOLE_NAME.findall(text))
        said = (" ".join(tokens_of_code(line, finding.file)) for line in text.split("\n")[:60])
        self.lines = frozenset(line for line in said if len(line) >= 4 and has_letters(line))


class _Title:
    """A title. `words` are the telling ones that are not in the code, `claim` those that say something of the subject.

    `spoken` are all telling ones in order; `plain` has `address` for `user.address`; `subject` is what a plain sentence
    is about.
    """

    def __init__(self, finding: Finding, code: _Code) -> None:
        vocabulary = _vocabulary()
        self.text = text = finding.title[:1_000]  # more only a hostile one has
        self.plain = _OWNED.sub(lambda found: found[0] if found[2] in code.called else found[2], text)
        self.stems = stems(text)
        self.kinds = kinds_of(self.stems) | kinds_of(stems(finding.rule or ""))
        claim, plain_claim = vocabulary.claim.search(text), vocabulary.claim.search(self.plain)
        self.words = telling_stems(text) - code.stems
        # There is no subject when the title is but a noun with its attributes.
        self.claim = telling_stems(text[claim.start() :] if claim else text) - code.stems
        subject = telling_stems(self.plain[: plain_claim.start()]) if plain_claim else frozenset()
        self.subject = subject - vocabulary.attributes
        words = (found for word in re.findall(r"\w+", text) for found in sorted(telling_stems(word)))
        self.spoken = tuple(vocabulary.meanings.get(word, word) for word in words)
        self.names = names(text)
        self.numbers = frozenset(NUMBER.findall(text)) - {"0", "1"}


class Profile:
    """What of a finding can be compared; each part is worked out when it is first needed."""

    def __init__(self, finding: Finding) -> None:
        self.finding = finding
        self.family = family(finding.category)
        self._said = "\n".join(part[:_LONGEST_TEXT] for part in (finding.body, finding.suggestion or ""))
        self.texts = f"{finding.title[:_LONGEST_TEXT]}\n{self._said}"

    code = cached_property(lambda self: _Code(self.finding))
    title = cached_property(lambda self: _Title(self.finding, self.code))
    # The telling words of all its texts that are not in the code.
    words = cached_property(lambda self: telling_stems(self.texts) - self.code.stems)
    # What its body and its advice say, sentence by sentence.
    sentences = cached_property(
        lambda self: frozenset(" ".join(one.split()).casefold() for one in _SENTENCE.split(self._said)) - {""}
    )

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds of defects that any of its sentences speaks of."""
        sentences = _SENTENCE.split(self.texts)[:12]
        return self.title.kinds.union(*(kinds_of(stems(sentence)) for sentence in sentences))

    @cached_property
    def specifics(self) -> frozenset[str]:
        """Names, errors and operators in its texts that the quoted code does not have: a fix or a consequence."""
        found = {*_SPECIFIC.findall(self.texts), *(name for name in names(self.texts) if len(name) > 2)}
        return frozenset(part for part in found if part not in self.code.text)

    def without(self, sentences: frozenset[str]) -> Profile:
        """The same without some sentences of its body and advice."""
        kept = ". ".join(sorted(self.sentences - sentences))
        shorter = Profile(replace(self.finding, body=kept, suggestion=None))
        shorter.title, shorter.code = self.title, self.code  # they do not change
        return shorter

    def objects(self, kinds: frozenset[str]) -> frozenset[str]:
        """What the title says some kinds of defects of, as far as its grammar is plain."""
        title, code, words = self.title, self.code, _vocabulary()
        sources = telling_stems(" ".join(_SOURCE.findall(title.plain)))
        empty = words.attributes - code.variables
        known = (_words_of_kinds(kinds & title.kinds) - words.things - sources) | empty
        is_all = not kinds.isdisjoint(words.vague_kinds)
        found: set[str] = set()
        for clause in _CLAUSE.split(title.plain):
            first, *more = words.preposition.split(clause)
            verb, absence = words.verb.search(first), words.absence.match(first.lstrip())
            phrases = [*more, first] if verb and verb.start() and not absence else more
            said = [_things(words.verb.split(phrase)[0], code.names) for phrase in phrases]
            if absence and not any(one - known for one in said):
                said.append(_things(words.verb.split(first.lstrip()[absence.end() :])[0], code.names) - known)
            found.update(*(one - known or (one - empty if is_all and len(one - empty) == 1 else ()) for one in said))
        # `conn` is called a connection.
        begun = [name for name in code.words if len(name) >= 3]
        meant = _meant(frozenset(found))
        return frozenset(max(filter(word.startswith, begun), key=len, default=word) for word in meant)

    def plain_names(self, said: frozenset[str]) -> frozenset[str]:
        """The words of the title that are names of code, and not those that say a kind of defect."""
        empty = _vocabulary().empty_words
        mentioned = frozenset(_NAME.findall(self.finding.title[:_LONGEST_TEXT])) & self.code.names
        found = (name for name in self.title.names | mentioned if stem(name) not in said and name.lower() not in empty)
        return frozenset(found) - self.code.owners


def _things(phrase: str, known: frozenset[str]) -> frozenset[str]:
    """The telling words, and known names of one letter."""
    return telling_stems(phrase) | {word for word in re.findall(r"\w+", phrase) if len(word) == 1 and word in known}


# Findings whose lines are further apart are never one.
NEAR_LINES = 3
# From this likeness on two findings are one.
SAME = 0.5
_SAME_WORDS = 0.8
_SAME_KIND, _MENTIONED_KIND = 0.75, 0.6
_MUCH_SAID = 0.75
_NEVER = 0.0


def likeness(one: Profile, other: Profile) -> float:
    """How surely two findings of one file are one defect: from SAME on they are, 0 means that they are not."""
    lines = gap(one.finding, other.finding)
    if lines > NEAR_LINES:
        return _NEVER
    one, other = _without_what_both_say(one, other)
    if not (one.finding.anchored and other.finding.anchored):
        words = _share(one.title.words, other.title.words)
        found = words if one.code.lines == other.code.lines and words >= _SAME_WORDS else _NEVER
    elif lines <= 0:
        found = _likeness_at_one_place(one, other)
    else:
        # Two lines tell of one defect when the one uses what the other sets, and both say the same of it.
        is_set = any((a.code.assigned - b.code.assigned) & b.code.whole for a, b in ((one, other), (other, one)))
        found = _MENTIONED_KIND if is_set and one.title.kinds & other.title.kinds else _NEVER
    return found if found > _NEVER and not are_different(one, other) else _NEVER


def _without_what_both_say(one: Profile, other: Profile) -> tuple[Profile, Profile]:
    """Both without the sentences that are in both: a phrase that fits any defect makes no two of them one."""
    common = one.sentences & other.sentences
    if not common or one.title.text.casefold() == other.title.text.casefold():
        return one, other
    return one.without(common), other.without(common)


def likeness_of_meaning(one: Profile, other: Profile) -> float:
    """The same for two rounds, or a baseline: of one place, in other words the next time, so less has to agree."""
    one, other = _without_what_both_say(one, other)
    if are_different(one, other):
        return _NEVER
    # Two titles with nearly the same words, and not only those of the code.
    spoken = frozenset(one.title.spoken), frozenset(other.title.spoken)
    is_same = bool(spoken[0] & spoken[1] - one.code.words - other.code.words) and _share(*spoken) >= _MUCH_SAID
    if is_same and (one.title.kinds & other.title.kinds or not (one.title.kinds and other.title.kinds)):
        return _SAME_KIND
    found = _likeness_at_one_place(one, other)
    return found if found >= SAME or not _is_reworded(one, other) else SAME


def _is_reworded(one: Profile, other: Profile) -> bool:
    """Whether the texts have much in common, and each says much of the other's title; of one kind at most."""
    if one.family == "tests" or (one.title.kinds and other.title.kinds):
        return False
    shared = one.words & other.words
    telling = shared - _vocabulary().attributes
    if telling <= one.title.subject or telling <= other.title.subject:
        return False
    everything = _share(one.words, other.words)
    said = _part_said(one.title.words, other.words) + _part_said(other.title.words, one.words)
    if one.title.kinds or other.title.kinds:
        return everything >= 0.44 and said >= _MUCH_SAID
    if everything >= 0.55 and len(shared) > 2:
        return True
    return len(shared) >= 2 and everything >= 0.35 and said >= _MUCH_SAID


def are_nearly_identical(one: Profile, other: Profile) -> bool:
    """Whether two findings say the same of the same lines, as a reviewer does that reports a thing twice."""
    same_place = one.code.lines == other.code.lines and gap(one.finding, other.finding) <= 0
    return same_place and not are_different(one, other) and _share(one.title.words, other.title.words) >= _SAME_WORDS


def gap(one: Finding, other: Finding) -> int:
    """How many lines lie from the evidence of one to that of the other; 0 or less when they share a line.

    What has no place may be anywhere. What a reviewer calls the end may lie far after the last line that it quotes.
    """
    if one.line_start is None or other.line_start is None:
        return 0
    ends = [min(it.last_line, it.first_line + it.evidence.count("\n", 0, _LONGEST_TEXT)) for it in (one, other)]
    return max(one.line_start - ends[1], other.line_start - ends[0])


def _likeness_at_one_place(one: Profile, other: Profile) -> float:
    if one.finding.rule and one.finding.rule == other.finding.rule:
        return 1.0
    everything = _share(one.words, other.words)
    left, right = one.title.kinds, other.title.kinds
    if left & right:
        return _SAME_KIND + everything / 4
    mentioned = bool(left & other.kinds), bool(right & one.kinds)
    if all(mentioned) or (any(mentioned) and everything >= 0.1 and not (left and right)):
        return _MENTIONED_KIND + everything / 4
    if left and right:
        words = _share(one.title.words, other.title.words)
        return words if words >= (SAME if any(mentioned) else _SAME_WORDS) else _NEVER
    # Of no known kind: the texts share words, and one says nearly all that the other's title claims.
    shared = (one.words & other.words) - _vocabulary().attributes
    if len(shared) < 2:
        return _NEVER
    less = min(_part_said(one.title.words, shared), _part_said(other.title.words, shared))
    most = max(_part_said(one.title.claim, shared), _part_said(other.title.claim, shared))
    specific = bool(one.specifics & other.specifics)
    if everything < (0.2 if specific else 0.5):
        return _NEVER
    like = specific or len(shared) >= 4 or (less and most >= 0.65)
    return min(1.0, SAME + everything / 2) if like else _NEVER


def are_different(one: Profile, other: Profile) -> bool:
    """Whether something in two findings says that they are about different things."""
    if one.family != other.family and not {"tests", "documentation"}.isdisjoint({one.family, other.family}):
        return True
    rules = {one.finding.rule, other.finding.rule} - {None}
    left, right = one.title, other.title
    if len(rules) > 1 and not left.kinds & right.kinds:
        return True
    if left.numbers and right.numbers and left.numbers.isdisjoint(right.numbers):
        return True
    # One title has a word and the other its opposite, and neither has both.
    only_left, only_right = left.stems - right.stems, right.stems - left.stems
    if any(word in only_left and opposite in only_right for word, opposite in _vocabulary().opposites):
        return True
    return _names_differ(one, other) or _objects_differ(one, other) or _one_word_differs(left, right)


def _objects_differ(one: Profile, other: Profile) -> bool:
    """Whether two titles of one kind say it of different things: "no check of the index", "no check of the command"."""
    kinds = (one.title.kinds & other.kinds) | (other.title.kinds & one.kinds)
    left, right = one.objects(kinds), other.objects(kinds)
    if not left or not right or left & right:
        return False
    ways = _words_of_kinds(kinds) - _vocabulary().things
    mentioned = (_meant(telling_stems(profile.texts)) - ways for profile in (other, one))
    if not any(own & words for own, words in zip((left, right), mentioned, strict=True)):
        return True
    known = one.code.words | other.code.words
    return not kinds.isdisjoint(_vocabulary().vague_kinds) and bool(left & known and right & known)


def _one_word_differs(one: _Title, other: _Title) -> bool:
    """Whether two titles are one sentence, said of two things."""
    if len(one.spoken) != len(other.spoken) or len(one.spoken) < 2:
        return False
    differing = [pair for pair in zip(one.spoken, other.spoken, strict=True) if pair[0] != pair[1]]
    if len(differing) != 1 or not _vocabulary().attributes.isdisjoint(differing[0]):
        return False
    return not _words_of_kinds(one.kinds & other.kinds).issuperset(differing[0])


def _names_differ(one: Profile, other: Profile) -> bool:
    """Whether the titles name different variables, or different functions, that the other text does not mention."""
    left, right = one.title.names, other.title.names
    if not left or not right:
        said = _words_of_kinds((one.title.kinds & other.kinds) | (other.title.kinds & one.kinds))
        left, right = one.plain_names(said), other.plain_names(said)
    if not left or not right:
        return False
    called = one.code.called | other.code.called
    left, right = (own - set(_NAME.findall(of.texts)) for own, of in ((left, other), (right, one)))
    return bool((left - called and right - called) or (left & called and right & called))


def _part_said(title: frozenset[str], shared: frozenset[str]) -> float:
    return len(title & shared) / max(len(title), 1)


def _share(one: frozenset[str], other: frozenset[str]) -> float:
    """How much of two sets is in both, from 0 to 1."""
    return 2 * len(one & other) / (len(one) + len(other)) if one and other else 0.0
