"""Reading an answer: its claims, and whether it is exact.

Claims are read from every readable part of an answer to a review. A proof and a critic's verdict are read only from an
exact answer. `exact_answer` decides for all of them what is exact. No rule here depends on what prose means.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct, ValidationError, convert, structs

from codeloupe.model.finding import Claim, Proof, Severity
from codeloupe.model.pipeline import CriticVerdict, Critique, GateKind
from codeloupe.model.ports import ClaimProof, Verification
from codeloupe.model.review import Verdict
from codeloupe.reviewers.quotes import MASK
from codeloupe.system.json_values import exact_value, find_json, refuse_unsound
from codeloupe.system.redaction import redact
from codeloupe.system.regex import regex

# The kind of the error for an answer that is not exact.
INVALID_ANSWER = "invalid_answer"
EMPTY_OUTPUT = "empty output"
MAX_ITEMS = 5_000

_Fields = TypeVar("_Fields", bound=Struct)
_Word = TypeVar("_Word", bound=StrEnum)
_Item = TypeVar("_Item")
_LIST_KEYS = ("findings", "issues")
_REVIEW_KEYS = (*_LIST_KEYS, "verdict", "passed")
_ORDER = (Verdict.PASS, Verdict.NEEDS_WORK, Verdict.FAIL)
# The rest of a line of a list, which `_claim_of_line` reads.
_LIST_LINE = regex(r"(?m)^[ \t]*+- ([^\n]++)")
_TITLE_TAG = regex(r"\[(P[0-3])\]\s*+")
_TITLE_CHARACTERS = 120
_MAX_LINE = 10_000_000
# A secret that a limit cuts in two is masked only if the text beyond the limit is known.
_REDACTION_MARGIN = 4_000


class RawClaim(Struct, frozen=True, kw_only=True):
    """One item of an answer, before it is anchored: nothing in it is believed yet.

    `reporter` is a reviewer that an external program names. `finding_id` is the id of an earlier finding that the item
    says it repeats.
    """

    severity: Severity
    title: str
    body: str = ""
    file: str = ""
    line_start: int | None = None
    line_end: int | None = None
    quote: str = ""
    category: str = ""
    rule: str | None = None
    suggestion: str | None = None
    replacement: str | None = None
    reporter: str = ""
    finding_id: str = ""


class ReviewAnswer(Struct, frozen=True, kw_only=True):
    """The claims of an answer, and why it is not exact; `problem` is empty if it is.

    `invalid` describes each item that could not be read and is therefore no claim. `verdict` is the one that an exact
    answer states, if it does.
    """

    claims: tuple[RawClaim, ...] = ()
    problem: str = ""
    invalid: tuple[str, ...] = ()
    verdict: Verdict | None = None

    @property
    def is_exact(self) -> bool:
        """Tell whether the answer completes its unit."""
        return not self.problem


def exact_answer(output: str, structured: Any) -> Mapping[str, Any]:
    """Return the object that an exact answer consists of. Raise ValueError with the problem of any other answer.

    An answer is exact if it is structured output from the agent's own channel, or a text that is nothing but the JSON
    value, bare or in one code fence. The caller checks the keys of the object and how the agent's run ended.
    """
    if structured is None and not output.strip():
        raise ValueError(EMPTY_OUTPUT)
    value = structured
    try:
        if structured is None:
            value = exact_value(output)
        else:
            refuse_unsound(structured)
    except ValueError as error:
        raise ValueError(f"invalid json: {error}") from error
    if not isinstance(value, dict):
        raise ValueError("invalid json: not an object")
    return value


def _refuse_inexact(inexact: str) -> None:
    """Raise ValueError with the reason why the agent's run cannot have given an exact answer, if there is one."""
    if inexact:
        raise ValueError(inexact)


def _refuse_unknown(value: Mapping[str, Any], keys: Iterable[str]) -> None:
    known = frozenset(keys)
    for key in value:
        if key not in known:
            raise ValueError(f"unknown field: {shown(key)}")


def _read_fields(value: Any, kind: type[_Fields]) -> _Fields:
    """Return an object as a Struct with its fields. A field that is null counts as not given.

    Raise ValueError if a field is unknown, missing or invalid.
    """
    if not isinstance(value, dict):
        raise ValueError("invalid json: not an object")
    fields = structs.fields(kind)
    _refuse_unknown(value, [field.name for field in fields])
    given: dict[str, Any] = {}
    for field in fields:
        stated = value.get(field.name)
        if stated is None and field.required:
            raise ValueError(f"missing field: {field.name}")
        if stated is None:
            continue
        try:
            given[field.name] = convert(stated, field.type)
        except ValidationError:
            raise ValueError(f"invalid {field.name}: {shown(stated)}") from None
    return kind(**given)


def _one_of(words: Iterable[_Word], name: str, stated: Any) -> _Word:
    """Return the word that a field states, in upper or lower case. Raise ValueError if it is none of the words."""
    for word in words:
        if isinstance(stated, str) and stated.lower() == word.lower():
            return word
    raise ValueError(f"invalid {name}: {shown(stated)}")


def is_no_issues(output: str) -> bool:
    """Tell whether a text is nothing but the sentence "No issues found"."""
    sentence = output.strip().removesuffix(".")
    return sentence.lower() == "no issues found"


def read_review(
    output: str, structured: Any = None, *, inexact: str = "", other_answers: Sequence[str] = ()
) -> ReviewAnswer:
    """Return the claims of an answer to a review, and why it is not exact. Never raise.

    Claims are accepted from the object of an exact answer, from structured output, from the text, and from the other
    answers of the same run. Only the object and the agent's run decide whether the answer is exact.
    """
    decisive = _Items()
    problem = ""
    verdict = None
    try:
        answer = _exact_review(output, structured)
        decisive.add_value(answer)
        # An invalid item may be why the verdict is worse than the list, so it is named first.
        decisive.refuse_problem()
        stated = _stated_verdict(answer, decisive.claims)
        # A problem of the answer itself says more than one of the run, such as a schema that the answer does not fit.
        _refuse_inexact(inexact)
        verdict = stated
    except ValueError as error:
        problem = str(error)
    others = _Items()
    others.add_value(structured)
    for text in (output, *other_answers):
        others.add_text(text)
    # The other parts may repeat the object.
    claims = dict.fromkeys([*decisive.claims, *others.claims])
    invalid = dict.fromkeys([*decisive.invalid, *others.invalid])
    return ReviewAnswer(claims=tuple(claims), problem=problem, invalid=tuple(invalid), verdict=verdict)


def _exact_review(output: str, structured: Any) -> Mapping[str, Any]:
    """Return the object of an exact answer to a review, which may also be the sentence "No issues found"."""
    if structured is None and is_no_issues(output):
        return {"findings": []}
    answer = exact_answer(output, structured)
    _refuse_unknown(answer, _REVIEW_KEYS)
    return answer


def _stated_verdict(answer: Mapping[str, Any], claims: Sequence[RawClaim]) -> Verdict | None:
    """Return the verdict beside the list of findings, if there is one.

    Raise ValueError if there is no list, or if the verdict is invalid or worse than the list. `passed: false` is worse
    than an empty list.
    """
    listed = _list_of(answer)
    verdict = None
    if "verdict" in answer:
        verdict = _one_of(_ORDER, "verdict", answer["verdict"])
    elif _has_priorities(listed):
        raise ValueError("missing field: verdict")
    passed = answer.get("passed", True)
    if not isinstance(passed, bool):
        raise ValueError(f"invalid passed: {shown(passed)}")
    if not passed and verdict in (None, Verdict.PASS):
        verdict = Verdict.NEEDS_WORK
    given = verdict_of(claims)
    if verdict is not None and is_worse(verdict, given):
        raise ValueError(f"invalid verdict: {verdict.value}, but the findings give {given.value}")
    return verdict


def _list_of(answer: Mapping[str, Any]) -> list[Any]:
    keys = [key for key in _LIST_KEYS if key in answer]
    if not keys:
        raise ValueError("missing field: findings")
    if len(keys) > 1:
        raise ValueError("invalid json: both findings and issues are given")
    listed = answer[keys[0]]
    if not isinstance(listed, list):
        raise ValueError(f"invalid json: {keys[0]} is not a list")
    return listed


def verdict_of(claims: Iterable[RawClaim | Claim]) -> Verdict:
    """Return the verdict that claims give if all of them count."""
    severities = [claim.severity for claim in claims]
    if not severities:
        return Verdict.PASS
    for severity in severities:
        if severity.at_least(Severity.HIGH):
            return Verdict.FAIL
    return Verdict.NEEDS_WORK


def is_worse(one: Verdict, other: Verdict) -> bool:
    """Tell whether a verdict is worse than another one."""
    return _ORDER.index(one) > _ORDER.index(other)


def _has_priorities(listed: list[Any]) -> bool:
    """Tell whether an item has the form that comes with a verdict: `file_path` and `priority`."""
    items = [item for item in listed if isinstance(item, dict)]
    return any("file_path" in item or "priority" in item for item in items)


class _Items:
    """The claims in some parts of an answer, and a description of each item that could not be read.

    At most `MAX_ITEMS` items are read, since each claim costs work later.
    """

    def __init__(self) -> None:
        self.claims: list[RawClaim] = []
        self.invalid: list[str] = []
        self._problem = ""

    def refuse_problem(self) -> None:
        """Raise ValueError with the first problem if an exact answer must not have such items."""
        if self._problem:
            raise ValueError(self._problem)

    def add_text(self, text: str) -> None:
        """Add the claims of all JSON values and of all lines of a list."""
        for value in find_json(text).values:
            self.add_value(value)
        for line in _LIST_LINE.finditer(text):
            if self._is_full():
                return
            claim = _claim_of_line(line[1].strip())
            if claim is not None:
                self.claims.append(claim)

    def add_value(self, value: Any) -> None:
        """Add the claims of a value: of each list of findings in it, and of each item outside of such a list."""
        if isinstance(value, list):
            for part in value:
                self.add_value(part)
        elif isinstance(value, dict):
            lists = [value[key] for key in _LIST_KEYS if isinstance(value.get(key), list)]
            if lists:
                for listed in lists:
                    self._add_list(listed)
            elif _is_item(value):
                self._add_list([value])
            else:
                for key, part in value.items():
                    self._add_part(key, part)

    def _add_part(self, key: str, part: Any) -> None:
        if isinstance(part, str) and key == "result":
            # The answer of a program may be in a field of its own, as text.
            self.add_text(part)
        else:
            self.add_value(part)

    def _add_list(self, items: Iterable[Any]) -> None:
        for number, item in enumerate(items, start=1):
            if self._is_full():
                return
            try:
                self.claims.append(read_item(item))
            except ValueError as error:
                description = f"{error} (finding {number:,})"
                self.invalid.append(description)
                self._add_problem(description)
                continue
            for key, value in item.items():
                if isinstance(value, list | dict):
                    self._add_problem(f"invalid json: {shown(key)} is not a plain value (finding {number:,})")

    def _is_full(self) -> bool:
        if len(self.claims) + len(self.invalid) < MAX_ITEMS:
            return False
        self._add_problem(f"more than {MAX_ITEMS:,} findings")
        return True

    def _add_problem(self, problem: str) -> None:
        if not self._problem:
            self._problem = problem


def read_list(items: Iterable[_Item], read: Callable[[_Item], RawClaim | None], problem: str = "") -> ReviewAnswer:
    """Return the claims of a list. An item that `read` refuses with ValueError makes the output incomplete."""
    claims: list[RawClaim] = []
    invalid: list[str] = []
    for number, item in enumerate(items, start=1):
        if len(claims) + len(invalid) == MAX_ITEMS:
            invalid.append(f"more than {MAX_ITEMS:,} findings")
            break
        try:
            claim = read(item)
        except ValueError as error:
            invalid.append(f"{error} (finding {number:,})")
            continue
        if claim is not None:
            claims.append(claim)
    if not problem and invalid:
        problem = invalid[0]
    return ReviewAnswer(claims=tuple(claims), problem=problem, invalid=tuple(invalid))


def _is_item(value: Mapping[str, Any]) -> bool:
    """Tell whether an object outside of a list of findings is an item: it has a severity and names a place."""
    has_severity = "severity" in value or "priority" in value
    return has_severity and any(key in value for key in ("file", "file_path", "evidence"))


def read_item(item: Any) -> RawClaim:
    """Return the claim of an item. Raise ValueError if it has no words or no severity."""
    if not isinstance(item, dict):
        raise ValueError("invalid json: not an object")
    title = _text(item, "title").strip()
    tag = _TITLE_TAG.match(title)
    if tag is not None:
        title = title[tag.end() :]
    body = _words(item)
    if not title and not body:
        raise ValueError("missing field: title")
    severity = _severity(item, tag)
    if not title:
        title, body = _split_words(body)
    quote = _text(item, "quote") or _text(item, "evidence")
    file, line = split_place(_text(item, "file") or _text(item, "file_path"))
    quoted_file, quoted_line = split_place(quote)
    if not file and quoted_line is not None:
        # The evidence of requirement D5 is the place.
        file = quoted_file
        line = quoted_line
        quote = ""
    return RawClaim(
        severity=severity,
        title=title,
        body=body,
        file=file,
        line_start=_line(item, "line") or _line(item, "line_start") or line,
        line_end=_line(item, "line_end"),
        quote=quote,
        category=_text(item, "category").strip(),
        suggestion=_text(item, "suggestion") or None,
        replacement=_text(item, "replacement") or None,
        finding_id=_text(item, "id").strip(),
    )


def _text(item: Mapping[str, Any], key: str) -> str:
    """Return the text of a key, or an empty text if it has none."""
    value = item.get(key)
    if isinstance(value, str) and value.strip():
        return value
    return ""


def _words(item: Mapping[str, Any]) -> str:
    texts: list[str] = []
    for key in ("body", "message", "description"):
        text = _text(item, key).strip()
        if text and text not in texts:
            texts.append(text)
    return "\n\n".join(texts)


def _split_words(words: str) -> tuple[str, str]:
    """Return the first line as a title, and the rest; a long first line is shortened and stays in the rest."""
    first_line, _, rest = words.partition("\n")
    if len(first_line) <= _TITLE_CHARACTERS:
        return first_line.strip(), rest.strip()
    return f"{redacted_start(first_line, _TITLE_CHARACTERS).rstrip()} ...", words


def _severity(item: Mapping[str, Any], tag: re.Match[str] | None) -> Severity:
    """Return the severity of an item, the worse one if it has two; the tag of its title counts if it has none."""
    stated = [item[key] for key in ("severity", "priority") if item.get(key) is not None]
    if not stated and tag is not None:
        stated = [tag[1]]
    if not stated and _has_priorities([item]):
        raise ValueError("missing field: priority")
    if not stated:
        raise ValueError("missing field: severity")
    severities: list[Severity] = []
    for value in stated:
        try:
            severities.append(Severity.parse(value))
        except ValueError:
            raise ValueError(f"invalid severity: {shown(value)}") from None
    return min(severities, key=lambda severity: severity.priority)


def _line(item: Mapping[str, Any], key: str) -> int | None:
    value = item.get(key)
    if isinstance(value, str):
        return _line_number(value.strip())
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MAX_LINE:
        return value
    return None


def _line_number(text: str) -> int | None:
    if text.isascii() and text.isdecimal() and len(text) <= len(str(_MAX_LINE)):
        return int(text) or None
    return None


def split_place(text: str) -> tuple[str, int | None]:
    """Return the path and the line of `path:line`; any other text has no line."""
    path, _, number = text.strip().rpartition(":")
    line = _line_number(number)
    if line is None or not path or "\n" in path:
        return text.strip(), None
    return path, line


def _claim_of_line(line: str) -> RawClaim | None:
    """Return the claim of `SEVERITY category: description (path:line)`, or None for any other line."""
    if not line.endswith(")"):
        return None
    head, _, words = line.partition(": ")
    severity_word, _, category = head.partition(" ")
    description, _, place = words[:-1].rpartition(" (")
    file, line_number = split_place(place)
    if not category.strip() or not description.strip() or line_number is None:
        return None
    try:
        severity = Severity.parse(severity_word)
    except ValueError:
        return None
    title, body = _split_words(description.strip())
    return RawClaim(
        severity=severity, title=title, body=body, file=file, line_start=line_number, category=category.strip()
    )


class _ProofList(Struct, frozen=True):
    """The object that a verification is asked for."""

    proofs: list[Any]


class _ProofFields(Struct, frozen=True, kw_only=True):
    """One item of the list of proofs."""

    claim: int
    reason: str
    proof: str
    suggestion: str = ""
    replacement: str = ""


def read_proofs(output: str, structured: Any = None, *, claims: int, inexact: str = "") -> Verification:
    """Return the proof of each claim from 1 to `claims`, in order, or the problem if the answer is not exact."""
    try:
        answer = exact_answer(output, structured)
        _refuse_inexact(inexact)
        listed = _read_fields(answer, _ProofList).proofs
        proofs = _proofs_of(listed, claims)
    except ValueError as error:
        return Verification(problem=str(error))
    return Verification(proofs=proofs)


def _proofs_of(listed: Sequence[Any], claims: int) -> tuple[ClaimProof, ...]:
    """Return the proofs in the order of the claims. Raise ValueError unless each claim has exactly one."""
    proofs: dict[int, ClaimProof] = {}
    for item in listed:
        fields = _read_fields(item, _ProofFields)
        if not 1 <= fields.claim <= claims:
            raise ValueError(f"invalid claim: {fields.claim}")
        if fields.claim in proofs:
            raise ValueError(f"invalid proof: claim {fields.claim} has more than one")
        proofs[fields.claim] = _proof_of(fields)
    for number in range(1, claims + 1):
        if number not in proofs:
            raise ValueError(f"missing field: proof (claim {number})")
    return tuple(proofs[number] for number in sorted(proofs))


def _proof_of(fields: _ProofFields) -> ClaimProof:
    proof = _one_of(Proof, "proof", fields.proof)
    reason = fields.reason.strip()
    if not reason:
        raise ValueError(f"missing field: reason (claim {fields.claim})")
    suggestion = fields.suggestion.strip()
    has_replacement = bool(fields.replacement.strip())
    if proof is not Proof.CONFIRMED and (suggestion or has_replacement):
        # Fixes are asked for confirmed claims only, so this proof contradicts itself.
        raise ValueError(f"invalid proof: {proof.value}, but with a fix (claim {fields.claim})")
    replacement = None
    if has_replacement:
        replacement = fields.replacement
    return ClaimProof(proof=proof, reason=reason, suggestion=suggestion or None, replacement=replacement)


class _CritiqueFields(Struct, frozen=True):
    """The object that a critic is asked for."""

    summary: str
    verdict: str
    score: Annotated[int, Meta(ge=0, le=100)]
    blockers: tuple[str, ...]
    fixes: tuple[str, ...]


def read_critique(output: str, structured: Any = None, *, inexact: str = "") -> Critique | str:
    """Return the critique of an exact answer, or the problem of any other answer."""
    try:
        answer = exact_answer(output, structured)
        _refuse_inexact(inexact)
        fields = _read_fields(answer, _CritiqueFields)
        verdict = _one_of(CriticVerdict, "verdict", fields.verdict)
    except ValueError as error:
        return str(error)
    if verdict is CriticVerdict.PASS and fields.blockers:
        return "invalid verdict: PASS, but with blockers"
    return Critique(
        verdict=verdict,
        gate=GateKind.CRITIC,
        score=fields.score,
        summary=fields.summary.strip(),
        blockers=tuple(text.strip() for text in fields.blockers),
        fixes=tuple(text.strip() for text in fields.fixes),
    )


def shown(value: object) -> str:
    """Return a value on one short line and without secrets, for a problem."""
    text = " ".join(redacted_start(str(value), 200).split())
    if len(text) > 80:
        return f"{text[:80]}..."
    return text


def redacted_start(text: str, most_characters: int) -> str:
    """Return the beginning of a text. Its secrets are masked before it is cut."""
    known = text[: most_characters + _REDACTION_MARGIN]
    redacted = redact(known)
    if len(known) < len(text):
        # The end of what is known may be a part of a secret.
        before, mask, after = redacted.rpartition(MASK)
        redacted = f"{before}{mask}{after[:-_REDACTION_MARGIN]}"
    return redacted[:most_characters]
