"""What sentences say: that nothing was found, that there is a serious defect, or that not everything was said."""

from __future__ import annotations

import re
from collections.abc import Iterator

from codeloupe.engine.parse.items import folded
from codeloupe.system.regex import regex

_MAX_CHARACTERS = 20_000
_MAX_CLEAN_CHARACTERS = 500
_SERIOUS = r"(?:critical|severe|serious|blocking|high[- ](?:severity|priority|risk|impact)|grave|p0|p1|major|dangerous)"
_DEFECT = (
    r"(?:issues?|bugs?|vulnerabilit(?:y|ies)|findings?|problems?|flaws?|defects?|errors?|injections?|weakness(?:es)?|"
    r"security holes?|regressions?)"
)
# Beginnings of words for serious defects in other languages, and words that deny them.
_OTHER_LANGUAGES = (
    r"kritisch|schwerwiegend|sicherheitslück|schwachstelle|angreifer|faille|vulnérab|crític|vulnerabilidad|critic[oa]\b"
    r"|vulnerabilità|критич|уязвим|опасн|krytyczn|podatno|kritik|kwetsba|kritisk|sårbar"
    r"|严重|嚴重|漏洞|危险|缺陷|任意代码|重大|脆弱性|危険|不具合|치명|취약|심각"
    r"|konnte[^.]{0,80} nicht|n'ai pas pu|no (?:he podido|pude)|не удалось|无法"
)
_OTHER_DENIALS = (
    r"keine?[rns]?|nicht|ohne|aucune?|pas de|sans|ning[úu]na?|sin|nenhuma?|sem|nessuna?|senza|нет|не|без|geen|inga"
    r"|ingen|brak|yok"
)
_ALARM = regex(
    rf"\b(?:{_SERIOUS}(?: [\w-]{{1,30}}){{0,3}} {_DEFECT}\b"
    rf"|{_DEFECT} (?:is|are|was|were) (?:{_SERIOUS})\b"
    r"|(?:is|are|be) vulnerable to\b|(?:must|should|do|can) ?not be merged\b|do not merge\b|don't merge\b"
    r"|\battackers? (?:can|could|may|to)\b|\b(?:an|any) attacker\b|\brce\b|\bextremely dangerous\b"
    r"|must be fixed\b|needs? to be fixed\b|(?:remote|arbitrary) code execution\b"
    r"|(?:sql|command|code|shell) injection\b"
    r"|security vulnerabilit(?:y|ies)\b|security hole\b|hard-?coded (?:password|secret|credential|api key)s?\b"
    rf"|\[p[01]\]|\bp[01]\s?:|{_SERIOUS}(?:\s?:\s|,\S)|severity\s?[:=]\s?(?:critical|high)\b)",
    re.IGNORECASE,
)
# Before such words, or after them, these say that it is not there, was looked for, or is what the change mends.
_DENIAL = regex(
    r"\b(?:no|not|none|never|without|zero|0(?!\.)|nothing|neither|nor|free of|isn't|aren't|don't see|didn't|doesn't|"
    r"wasn't|couldn't|can't|cannot|unlikely|absence|absent|avoid\w*|prevent\w*|fix(?:es|ed|ing)|(?:this|the|a) fix|"
    r"resolv\w+|address\w*|mitigat\w+|"
    r"remov\w+|eliminat\w+|protect\w*|guard\w*|look(?:ed|ing)? for|check(?:ed|ing)? for|"
    r"search\w* for|scan\w* for|review\w* for|"
    r"whether|if any|any|previous\w*|earlier|existing"
    rf"|{_OTHER_DENIALS})\b|没有|沒有|未发现|未發現|无|なし|ありません|ません|없",
    re.IGNORECASE,
)
_DENIAL_AFTER = regex(
    r"(?:\b(?:none|not (?:found|present|detected|seen|introduced|applicable|possible|an issue)|absent|n/a|zero|nothing"
    r"|(?:is|are|was|were|been|now) (?:fixed|resolved|removed|addressed|mitigated|avoided|prevented|gone))\b"
    r"|[:|=*] ?0(?![\w.])|没有|нет\b|なし|ありません|없)",
    re.IGNORECASE,
)
# What denies something else: these still alarm.
_ORDERS = regex(r"\b(?:do not merge|don't merge|(?:must|should|can) ?not be merged|must be fixed)\b", re.IGNORECASE)
# In a sentence with one of these the words for defects are about what is well.
_REASSURANCE = regex(
    r"\b(?:safe(?:ly)?|fine|correct(?:ly)?|properly|sound|valid(?:ates?|ated|ation)?|escap(?:es|ed|ing)|sanitiz\w+|"
    r"sanitis\w+|handl(?:es|ed|ing)|reject(?:s|ing)|catch(?:es|ing)|hardens?|tests? (?:for|of|cover)|covers?|good|"
    r"well|clean|low|minimal|acceptable|unchanged|unaffected|looks)\b",
    re.IGNORECASE,
)
# What may tell of a defect, or that something was not read; asking what was meant costs less than missing it.
_DOUBT = regex(
    r"\battackers?\b|\bmalicious|\bexploit|\bvulnerab|\binsecure\b|\bunsafe\b|\bdangerous|\brce\b|\barbitrary\b"
    r"|\binjection\b|\bleaks?\b|\bcrash(?:es)?\b|\bcorrupt|\bbypass|\bdeadlock|\brace condition|\bdata loss\b"
    r"|\boverflow|\btraversal\b|\bxss\b|\bcsrf\b|\bssrf\b|\bhard-?coded\b|\bbroken\b|\bregression|\bbugs?\b"
    r"|\bbuggy\b|\bwrong(?:ly)?\b|\bincorrect|\bdefects?\b|\bflaws?\b"
    r"|\b(?:critical(?! (?:path|section))|blockers?|severe|p0|p1)\b|\bseverity\W?\s{0,3}[:=]"
    r"|\b(?:please|must|should|need to|needs to|have to|to) (?:be )?(?:fix|block|reject|revert)"
    r"|^[^\w\n]{0,20}fix\b|\bbefore (?:merging|merge|this is merged)\b|\bFAIL(?:ED|S)?\b|\bnack\b"
    r"|\brequest[ _]changes\b|(?:\bnot|n't|\bcannot) approve|\bdecline\b|\bskipped\b|\bpermission denied\b"
    r"|\bonly reviewed\b"
    r"|(?:\bnot|n't) (?:been )?(?:reviewed|read|accessible|available|provided|given|have access)\b|\bwon't\b"
    r"|\bI(?:'ll| will) (?:now|next|start|begin|report|look|read)\b|\blet me (?:start|begin|look|read|check)\b"
    r"|\bplease (?:provide|share|send)\b"
    rf"|{_OTHER_LANGUAGES}",
    re.IGNORECASE | re.MULTILINE,
)
# What has the form of a finding, or tells that there was nothing to read, whatever the sentence around it says.
_MARK = regex(
    r"[❌🔴🚨⛔🛑‼💀]|^::(?:error|warning)|\[!(?:caution|warning|important)\]|```suggestion|\[P[0-3]\]"
    r"|:\d{1,9}(?:[-:]\d{1,9}){0,2}:[ \t]{1,4}\[?(?:error|warning|info|critical|high|medium|low|note)\b"
    r"|^[^\w\n]{0,20}(?:\d{1,3}[.)][^\w\n]{1,5})?[\w./-]{1,200}\.\w{1,8}`?(?::|,? lines? )\d"
    r"|\|\s{0,20}(?:issue|finding|problem|bug|defect|vulnerability)s?\s{0,20}\||[A-Za-z0-9+/=_-]{120}"
    r"|\bno (?:diff|code|changes?|files?) (?:was|were|is|are)\b|\b(?:diff|patch|change) (?:was|is) empty\b",
    re.IGNORECASE | re.MULTILINE,
)
# A heading, and under it that there is none.
_NONE_BELOW = regex(r"\n\s{0,20}(?=[^\w\n]{0,6}(?:none|nothing|n/a)\b)", re.IGNORECASE)
# What a refutation cannot say: that the defect is there, or that nobody could look.
_UPHELD = regex(
    r"\b(?:finding|claim|report|issue|defect|vulnerability|bug|it|this) (?:is|was|remains|stands) (?:indeed |in fact )?"
    r"(?:a )?(?:real|valid|correct|confirmed|true|genuine|exploitable)\b|\b(?:is|remains) exploitable\b"
    r"|\b(?:code|change|function|line|it) is vulnerable\b|\b(?:cannot|can't|could not|couldn't) (?:confirm|verify"
    r"|refute|tell|determine|access|find the file)\b|\b(?:not|n't) have access\b|\btrick me\b|\bconfirmed\W{0,5}\Z"
    r"|^\W{0,20}(?:no ?[-,.–—]|not at all)",
    re.IGNORECASE,
)
_COLOUR = regex(r"\x1b\[[0-9;]{0,20}m")
_UNFINISHED = regex(
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
# Also where a sentence turns: "no bugs, but …" denies only what comes before.
_CLAUSE_END = regex(r"[!?;\n。]|\.(?=\s|\Z)|\b(?:but|however|although|though|nevertheless|except)\b", re.IGNORECASE)
_NAMED = r"(?:issues?|problems?|findings?|bugs?|defects?|concerns?)"
_NO_DEFECT = rf"no {_NAMED}(?:(?: or |, | and ){_NAMED}){{0,3}}"
_SEEN = r"(?: (?:(?:were|was|have been) )?(?:found|detected|identified|spotted|reported))?"
_WHERE = (
    r"(?: (?:in|with|for) (?:(?:the|this|these) (?:(?:provided|given|reviewed|code|whole) ){0,2}"
    r"(?:changes?|diffs?|code|commits?|patch|pull request|files?|hunks?)|\d{1,9} (?:source )?files?))?"
)
_CLEAN = regex(
    rf"(?:(?:there (?:are|were) )?{_NO_DEFECT}{_SEEN}(?: to report)?{_WHERE}"
    rf"|(?:i|we) (?:have )?(?:found|see|saw|identified|detected|spotted) {_NO_DEFECT}{_WHERE}"
    rf"|(?:i|we) (?:did not|didn't|could not|couldn't) (?:find|identify|detect|spot) any {_NAMED}{_WHERE}"
    rf"|nothing (?:was found|found|to report){_WHERE}|all checks passed)"
)
_PRAISE = regex(
    r"(?:lgtm|all good|(?:it |this |everything |(?:the|these) (?:changes?|code|diff|patch) )?"
    r"(?:looks?|seems?) (?:good|fine|correct|ok|okay|sound|clean)(?: to me)?)"
)
_LABEL = regex(
    r"(?:code )?(?:review|results?|summary|verdict|findings|issues|conclusion|success)(?: results?| summary)?\s?: "
)
_SENTENCE_END = regex(r"[.!\n]")
_EDGES = "\"'`~*_#>-–—•✅👍🎉✔\ufe0f\ufeff \t\r\n"


def says_clean(text: str) -> bool:
    """Whether each sentence says that nothing was found, or praises, and at least one does the former."""
    if len(text) > _MAX_CLEAN_CHARACTERS:
        return False
    clean = []
    for part in _SENTENCE_END.split(text.replace("’", "'")):
        words = " ".join(part.strip(_EDGES).lower().split())
        words = words[label.end() :] if (label := _LABEL.match(words)) else words
        if words:
            clean.append(bool(_CLEAN.fullmatch(words)))
            if not clean[-1] and not _PRAISE.fullmatch(words):
                return False
    return any(clean)


def is_alarming(text: str) -> bool:
    """Whether a sentence describes a serious defect, or forbids to merge, and does not deny it."""
    return any(not denied or _ORDERS.search(clause) for clause, denied in _telling(_ALARM, _plain(text)))


def is_doubtful(text: str) -> bool:
    """Whether a text beside an empty list of findings may tell of a defect, or of something that was not read."""
    plain = _plain(text)
    return bool(_MARK.search(plain)) or any(
        not denied and not _REASSURANCE.search(clause) for clause, denied in _telling(_DOUBT, plain)
    )


def _plain(text: str) -> str:
    return _NONE_BELOW.sub(": ", _COLOUR.sub("", folded(text[:_MAX_CHARACTERS]).replace("’", "'")))


def _telling(words: re.Pattern[str], text: str) -> Iterator[tuple[str, bool]]:
    """Each clause with some of these words, and whether all of them in it are denied."""
    for clause in _CLAUSE_END.split(text) if words.search(text) else ():
        if spans := [match.span() for match in words.finditer(clause)]:
            before = _DENIAL.search(clause)
            after = max((match.start() for match in _DENIAL_AFTER.finditer(clause)), default=-1)
            first = before.start() if before else len(clause)
            yield clause, all(first < start or end <= after for start, end in spans)


def is_reassuring(text: str) -> bool:
    """Whether a text says that something is well, or not there."""
    return bool(_DENIAL.search(text[:_MAX_CHARACTERS]) or _REASSURANCE.search(text[:_MAX_CHARACTERS]))


def upholds(text: str) -> bool:
    """Whether a text that is meant to refute a finding says that the finding is right, or that nobody could look."""
    return is_unfinished(text) or any(not denied for _, denied in _telling(_UPHELD, _plain(text)))


def is_unfinished(text: str) -> bool:
    """Whether a text says that the answer, or the review, is not whole."""
    return bool(_UNFINISHED.search(text[:_MAX_CHARACTERS]))
