"""Sentences that tell of a grave defect, or that not everything was said: no clean answer has one."""

from __future__ import annotations

import re

from codeloupe.extraction.patterns import late

_MAX_CHARACTERS = 20_000
_GRAVE = r"(?:critical|severe|serious|blocking|high[- ](?:severity|priority|risk|impact)|grave|p0|p1|major|dangerous)"
_DEFECT = (
    r"(?:issues?|bugs?|vulnerabilit(?:y|ies)|findings?|problems?|flaws?|defects?|errors?|injections?|weakness(?:es)?|"
    r"security holes?|regressions?)"
)
_ALARM = late(
    rf"\b(?:{_GRAVE}(?: [\w-]{{1,30}}){{0,3}} {_DEFECT}\b"
    rf"|{_DEFECT} (?:is|are|was|were) (?:{_GRAVE})\b"
    r"|(?:is|are|be) vulnerable to\b|(?:must|should|do|can) ?not be merged\b|do not merge\b|don't merge\b"
    r"|must be fixed\b|needs? to be fixed\b|(?:remote|arbitrary) code execution\b"
    r"|(?:sql|command|code|shell) injection\b"
    r"|security vulnerabilit(?:y|ies)\b|security hole\b|hard-?coded (?:password|secret|credential|api key)s?\b"
    rf"|\[p[01]\]|\bp[01]\s?:|{_GRAVE}\s?:\s|severity\s?[:=]\s?(?:critical|high)\b)",
    re.IGNORECASE,
)
# A sentence with one of these speaks of what is not there, what was looked for, or what the change itself mends.
_DENIAL = late(
    r"\b(?:no|not|none|never|without|zero|0|nothing|neither|nor|free of|isn't|aren't|don't see|didn't|doesn't|wasn't|"
    r"couldn't|can't|cannot|unlikely|absence|absent|avoid\w*|prevent\w*|fix(?:es|ed|ing)?|resolv\w+|"
    r"address\w*|mitigat\w+|"
    r"remov\w+|eliminat\w+|protect\w*|guard\w*|look(?:ed|ing)? for|check(?:ed|ing)? for|"
    r"search\w* for|scan\w* for|review\w* for|"
    r"whether|if any|any|previous\w*|earlier|existing)\b",
    re.IGNORECASE,
)
# What denies something else: these still alarm.
_ORDERS = late(r"\b(?:do not merge|don't merge|(?:must|should|can) ?not be merged|must be fixed)\b", re.IGNORECASE)
_UNFINISHED = late(
    r"\bto be continued\b|\bcontinued (?:in|below|next)\b|"
    r"\b(?:output|response|answer|review|analysis) (?:was |is |has been )?"
    r"(?:truncated|cut off|incomplete|unfinished|interrupted)\b|\[(?:truncated|cut|continued|\.\.\.|…)\]"
    r"|\b(?:unable|not able) to (?:complete|finish|review|analy[sz]e|read|access)\b"
    r"|\b(?:could not|couldn't|cannot|can't|did not|didn't) "
    r"(?:complete|finish|review|analy[sz]e|read|access|load|open|see)\b"
    r"|\b(?:token|context|output|length|rate) limit\b|\bran out of (?:time|tokens|space|budget)\b"
    r"|\bI (?:can't|cannot|can not|won't|am unable to|'m unable to) (?:help|assist|comply|continue|provide)\b"
    r"|\bonly (?:part|some) of (?:the|this)\b|\bpartial (?:review|answer|result)s?\b",
    re.IGNORECASE,
)
_SENTENCE_END = late(r"[!?;\n]|\.(?=\s|\Z)")


def is_alarming(text: str) -> bool:
    """Whether a sentence tells of a grave defect, or forbids to merge, and does not deny it."""
    shown = text[:_MAX_CHARACTERS]
    if not _ALARM.search(shown):
        return False
    return any(
        _ALARM.search(sentence) and (_ORDERS.search(sentence) or not _DENIAL.search(sentence))
        for sentence in _SENTENCE_END.split(shown)
    )


def is_unfinished(text: str) -> bool:
    """Whether a text says that the answer, or the review, is not whole."""
    return bool(_UNFINISHED.search(text[:_MAX_CHARACTERS]))
