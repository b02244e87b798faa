"""Whether two findings tell of one defect: by place, kind of defect, names in the code, and words.

On one line, comments about different defects share most of their words, as both speak of the same code. So words that
the quoted code holds do not count, and what tells two defects apart (another name, another thing of which it is said,
another number, an opposite) weighs more than likeness: to merge two defects hides one of them, to leave one twice is
only untidy.
"""

from __future__ import annotations

from msgspec.structs import replace

from codeloupe.engine.defect_kinds import words_of_kinds
from codeloupe.engine.families import Family
from codeloupe.engine.profile import Profile, attributes, opposites, things
from codeloupe.engine.vocabulary import vocabulary
from codeloupe.model.finding import Finding

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
