"""Whether a text says, and says no more than, that nothing was found."""

from __future__ import annotations

from codeloupe.engine.parse.patterns import late

_MAX_CHARACTERS = 500
_DEFECT = r"(?:issues?|problems?|findings?|bugs?|defects?|concerns?)"
_NONE = rf"no {_DEFECT}(?:(?: or |, | and ){_DEFECT}){{0,3}}"
_SEEN = r"(?: (?:(?:were|was|have been) )?(?:found|detected|identified|spotted|reported))?"
_WHERE = (
    r"(?: (?:in|with|for) (?:(?:the|this|these) (?:(?:provided|given|reviewed|code|whole) ){0,2}"
    r"(?:changes?|diffs?|code|commits?|patch|pull request|files?|hunks?)|\d{1,9} (?:source )?files?))?"
)
_CLEAN = late(
    rf"(?:(?:there (?:are|were) )?{_NONE}{_SEEN}(?: to report)?{_WHERE}"
    rf"|(?:i|we) (?:have )?(?:found|see|saw|identified|detected|spotted) {_NONE}{_WHERE}"
    rf"|(?:i|we) (?:did not|didn't|could not|couldn't) (?:find|identify|detect|spot) any {_DEFECT}{_WHERE}"
    rf"|nothing (?:was found|found|to report){_WHERE}|all checks passed)"
)
_PRAISE = late(
    r"(?:lgtm|all good|(?:it |this |everything |(?:the|these) (?:changes?|code|diff|patch) )?"
    r"(?:looks?|seems?) (?:good|fine|correct|ok|okay|sound|clean)(?: to me)?)"
)
_LABEL = late(
    r"(?:code )?(?:review|results?|summary|verdict|findings|issues|conclusion|success)(?: results?| summary)?\s?: "
)
_SENTENCE_END = late(r"[.!\n]")
_DECORATION = "\"'`~*_#>-–—•✅👍🎉✔\ufe0f\ufeff \t\r\n"


def says_clean(text: str) -> bool:
    """Whether each sentence says that nothing was found, or praises, and at least one does the former.

    A text with anything else in it is no clean answer: "no critical issues found" leaves room for others.
    """
    if len(text) > _MAX_CHARACTERS:
        return False
    sentences = [words for part in _SENTENCE_END.split(text.replace("’", "'")) if (words := _plain(part))]
    clean = [bool(_CLEAN.fullmatch(words)) for words in sentences]
    return any(clean) and all(
        is_clean or _PRAISE.fullmatch(words) for is_clean, words in zip(clean, sentences, strict=True)
    )


def _plain(sentence: str) -> str:
    words = " ".join(sentence.strip(_DECORATION).lower().split())
    return _LABEL.sub("", words, count=1) if _LABEL.match(words) else words
