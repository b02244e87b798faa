"""Reading an answer: its claims, and whether it is exact.

Claims are read from every readable part of an answer to a review. A proof and a critic's verdict are read only from an
exact answer. `exact_answer` decides for all of them what is exact. No rule here depends on what prose means.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.model.finding import Claim, Proof, Severity
from codeloupe.model.pipeline import CriticVerdict, Critique, GateKind
from codeloupe.model.ports import ClaimProof, Verification
from codeloupe.model.review import Verdict
from codeloupe.system.json_values import exact_value, find_json, refuse_unsound
from codeloupe.system.regex import regex

# The kind of the error for an answer that is not exact.
INVALID_ANSWER = "invalid_answer"
EMPTY_OUTPUT = "empty output"
NO_JSON = "invalid json: no JSON found"
NO_ISSUES = "No issues found"
MAX_ITEMS = 5_000

_LIST_KEYS = ("findings", "issues")
_REVIEW_KEYS = frozenset((*_LIST_KEYS, "verdict", "passed"))
_PROOF_KEYS = frozenset(("claim", "reason", "proof", "suggestion", "replacement"))
_CRITIQUE_KEYS = ("summary", "verdict", "score", "blockers", "fixes")
_ORDER = (Verdict.PASS, Verdict.NEEDS_WORK, Verdict.FAIL)
# The rest of a line of a list, which `_claim_of_line` reads.
_LIST_LINE = regex(r"(?m)^[ \t]*+- ([^\n]++)")
_TITLE_TAG = regex(r"\[(P[0-3])\]\s*+")
_TITLE_CHARACTERS = 120
_MAX_LINE = 10_000_000


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


def exact_answer(output: str, structured: Any, *, keys: AbstractSet[str], inexact: str) -> Mapping[str, Any]:
    """Return the object that an exact answer consists of. Raise ValueError with the problem of any other answer.

    An answer is exact if it is structured output from the agent's own channel, or a text that is nothing but the JSON
    value, bare or in one code fence. The object has no key except `keys`. If findings are asked for, the text may also
    be nothing but the sentence "No issues found". `inexact` is why the agent's run cannot have given an exact answer.
    """
    value = _answer_object(output, structured, keys)
    if inexact:
        raise ValueError(inexact)
    return value


def _answer_object(output: str, structured: Any, keys: AbstractSet[str]) -> Mapping[str, Any]:
    if structured is None and "findings" in keys and _is_no_issues(output):
        return {"findings": []}
    value = structured
    if structured is None:
        value = _value_of_text(output)
    else:
        _refuse_unsound(structured)
    if not isinstance(value, dict):
        raise ValueError("invalid json: not an object")
    for key in value:
        if key not in keys:
            raise ValueError(f"unknown field: {shown(key)}")
    return value


def _is_no_issues(output: str) -> bool:
    sentence = output.strip().removesuffix(".")
    return sentence.lower() == NO_ISSUES.lower()


def _value_of_text(output: str) -> Any:
    if not output.strip():
        raise ValueError(EMPTY_OUTPUT)
    try:
        return exact_value(output)
    except ValueError as error:
        raise ValueError(f"invalid json: {error}") from error


def _refuse_unsound(structured: Any) -> None:
    try:
        refuse_unsound(structured)
    except ValueError as error:
        raise ValueError(f"invalid json: {error}") from error


def read_review(
    output: str, structured: Any = None, *, inexact: str = "", other_answers: Sequence[str] = ()
) -> ReviewAnswer:
    """Return the claims of an answer to a review, and whether it is exact. Never raise.

    Structured output decides whether the answer is exact. Claims in the text beside it are accepted, too, and so are
    those in the other answers of the same run.
    """
    read = _read_answer(output, structured, inexact=inexact)
    others = _Items()
    for text in other_answers:
        others.add_text(text)
    claims = dict.fromkeys((*read.claims, *others.claims))
    return replace(read, claims=tuple(claims), invalid=(*read.invalid, *others.invalid))


def _read_answer(output: str, structured: Any, *, inexact: str) -> ReviewAnswer:
    try:
        answer = exact_answer(output, structured, keys=_REVIEW_KEYS, inexact=inexact)
    except ValueError as error:
        items = _Items()
        if structured is not None:
            items.add_value(structured)
        items.add_text(output)
        return items.answer(str(error))
    items = _Items()
    items.add_value(answer)
    try:
        verdict = _stated_verdict(answer, items.claims)
    except ValueError as error:
        # An invalid item may be why the verdict is worse than the list, so it is named first.
        return items.answer("" if items.invalid else str(error))
    read = items.answer("")
    if read.is_exact:
        read = replace(read, verdict=verdict)
    if structured is None:
        return read
    beside = _Items()
    beside.add_text(output)
    claims = dict.fromkeys((*read.claims, *beside.claims))
    return replace(read, claims=tuple(claims))


def _stated_verdict(answer: Mapping[str, Any], claims: Sequence[RawClaim]) -> Verdict | None:
    """Return the verdict beside the list of findings, if there is one.

    Raise ValueError if there is no list, or if the verdict is invalid or worse than the list. `passed: false` is worse
    than an empty list.
    """
    listed = _list_of(answer)
    verdict = None
    if "verdict" in answer:
        stated = answer["verdict"]
        if not isinstance(stated, str) or stated.upper() not in _ORDER:
            raise ValueError(f"invalid verdict: {shown(stated)}")
        verdict = Verdict(stated.upper())
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
    """The claims of an answer, its invalid items, and why it is not exact in spite of its keys.

    At most `MAX_ITEMS` items are read, since each claim costs work later.
    """

    def __init__(self) -> None:
        self.claims: list[RawClaim] = []
        self.invalid: list[str] = []
        self.problem = ""

    def add_text(self, text: str) -> None:
        """Add the claims of all JSON values, of the complete items of a truncated list, and of lines of a list."""
        found = find_json(text)
        for value in found.values:
            self.add_value(value)
        self._add_list(found.cut_items)
        for line in _LIST_LINE.finditer(text):
            if self._is_full():
                return
            claim = _claim_of_line(line[1].strip())
            if claim is not None:
                self.claims.append(claim)

    def add_value(self, value: Any) -> None:
        """Add the claims of a list of findings, or of items that are not in such a list and name a file."""
        if isinstance(value, list):
            for item in value:
                self._add_lone_item(item)
            return
        if not isinstance(value, dict):
            return
        lists = [value[key] for key in _LIST_KEYS if key in value]
        if not lists:
            self._add_lone_item(value)
        for listed in lists:
            if isinstance(listed, list):
                self._add_list(listed)

    def _add_lone_item(self, item: Any) -> None:
        names_file = isinstance(item, dict) and ("file" in item or "file_path" in item)
        if names_file and not self._is_full():
            with suppress(ValueError):
                self.claims.append(read_item(item))

    def _add_list(self, items: Iterable[Any]) -> None:
        for number, item in enumerate(items, start=1):
            if self._is_full():
                return
            try:
                self.claims.append(read_item(item))
            except ValueError as error:
                self.invalid.append(f"{error} (finding {number:,})")
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
        if not self.problem:
            self.problem = problem

    def answer(self, problem: str) -> ReviewAnswer:
        """Return all of it. The problem that the caller knows comes first, then that of the first invalid item."""
        if not problem and self.invalid:
            problem = self.invalid[0]
        claims = dict.fromkeys(self.claims)
        return ReviewAnswer(claims=tuple(claims), problem=problem or self.problem, invalid=tuple(self.invalid))


def read_item(item: Any) -> RawClaim:
    """Return the claim of an item. Raise ValueError if it has no words or no severity."""
    if not isinstance(item, dict):
        raise ValueError("invalid json: not an object")
    stated_title = _text(item, "title").strip()
    title = _TITLE_TAG.sub("", stated_title, count=1) if stated_title.startswith("[") else stated_title
    body = _words(item)
    if not title and not body:
        raise ValueError("missing field: title")
    severity = _severity(item, stated_title)
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
    return f"{first_line[:_TITLE_CHARACTERS].rstrip()} ...", words


def _severity(item: Mapping[str, Any], title: str) -> Severity:
    """Return the severity of an item, the worse one if it has two; the tag of its title counts if it has none."""
    stated = [item[key] for key in ("severity", "priority") if item.get(key) is not None]
    tag = _TITLE_TAG.match(title)
    if not stated and tag is not None:
        stated = [tag[1]]
    if not stated:
        has_priorities = _has_priorities([item])
        raise ValueError("missing field: priority" if has_priorities else "missing field: severity")
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


def read_proofs(output: str, structured: Any = None, *, claims: int, inexact: str = "") -> Verification:
    """Return the proof of each claim from 1 to `claims`, in order, or the problem if the answer is not exact."""
    try:
        answer = exact_answer(output, structured, keys={"proofs"}, inexact=inexact)
        proofs = _proofs_of(answer.get("proofs"), claims)
    except ValueError as error:
        return Verification(problem=str(error))
    return Verification(proofs=proofs)


def _proofs_of(listed: Any, claims: int) -> tuple[ClaimProof, ...]:
    if not isinstance(listed, list):
        raise ValueError("missing field: proofs" if listed is None else "invalid json: proofs is not a list")
    proofs: dict[int, ClaimProof] = {}
    for item in listed:
        number, proof = _read_proof(item)
        if not 1 <= number <= claims:
            raise ValueError(f"invalid claim: {number}")
        if number in proofs:
            raise ValueError(f"invalid proof: claim {number} has more than one")
        proofs[number] = proof
    for number in range(1, claims + 1):
        if number not in proofs:
            raise ValueError(f"missing field: proof (claim {number})")
    return tuple(proofs[number] for number in range(1, claims + 1))


def _read_proof(item: Any) -> tuple[int, ClaimProof]:
    """Return the number of the claim and its proof. Raise ValueError if a key is missing, unknown or invalid."""
    if not isinstance(item, dict):
        raise ValueError("invalid json: not an object")
    for key in item:
        if key not in _PROOF_KEYS:
            raise ValueError(f"unknown field: {shown(key)}")
    number = item.get("claim")
    if not isinstance(number, int) or isinstance(number, bool):
        raise ValueError("missing field: claim" if number is None else f"invalid claim: {shown(number)}")
    reason = _text(item, "reason").strip()
    if not reason:
        raise ValueError(f"missing field: reason (claim {number})")
    word = item.get("proof")
    if not isinstance(word, str) or word.lower() not in list(Proof):
        raise ValueError("missing field: proof" if word is None else f"invalid proof: {shown(word)}")
    proof = Proof(word.lower())
    suggestion = _optional_text(item, "suggestion")
    replacement = _optional_text(item, "replacement")
    if proof is Proof.REFUTED and (suggestion or replacement):
        # Fixes are asked for confirmed claims only, so this proof contradicts itself.
        raise ValueError(f"invalid proof: refuted, but with a fix (claim {number})")
    if proof is not Proof.CONFIRMED:
        return number, ClaimProof(proof=proof, reason=reason)
    return number, ClaimProof(proof=proof, reason=reason, suggestion=suggestion, replacement=replacement)


def _optional_text(item: Mapping[str, Any], key: str) -> str | None:
    value = item.get(key)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"invalid {key}: {shown(value)}")
    return _text(item, key) or None


def read_critique(output: str, structured: Any = None, *, inexact: str = "") -> Critique | str:
    """Return the critique of an exact answer, or the problem of any other answer."""
    try:
        answer = exact_answer(output, structured, keys=frozenset(_CRITIQUE_KEYS), inexact=inexact)
        return _critique_of(answer)
    except ValueError as error:
        return str(error)


def _critique_of(answer: Mapping[str, Any]) -> Critique:
    for key in _CRITIQUE_KEYS:
        if answer.get(key) is None:
            raise ValueError(f"missing field: {key}")
    word = answer["verdict"]
    if not isinstance(word, str) or word.upper() not in list(CriticVerdict):
        raise ValueError(f"invalid verdict: {shown(word)}")
    score = answer["score"]
    if not isinstance(score, int) or isinstance(score, bool) or not 0 <= score <= 100:
        raise ValueError(f"invalid score: {shown(score)}")
    summary = answer["summary"]
    if not isinstance(summary, str):
        raise ValueError(f"invalid summary: {shown(summary)}")
    critique = Critique(
        verdict=CriticVerdict(word.upper()),
        gate=GateKind.CRITIC,
        score=score,
        summary=summary.strip(),
        blockers=_texts(answer, "blockers"),
        fixes=_texts(answer, "fixes"),
    )
    if critique.verdict is CriticVerdict.PASS and critique.blockers:
        raise ValueError("invalid verdict: PASS, but with blockers")
    return critique


def _texts(answer: Mapping[str, Any], key: str) -> tuple[str, ...]:
    listed = answer[key]
    if not isinstance(listed, list):
        raise ValueError(f"invalid json: {key} is not a list")
    texts: list[str] = []
    for item in listed:
        if not isinstance(item, str):
            raise ValueError(f"invalid {key}: {shown(item)}")
        texts.append(item.strip())
    return tuple(texts)


def shown(value: object) -> str:
    """Return a value on one short line, for a problem."""
    text = " ".join(str(value)[:200].split())
    return f"{text[:80]}..." if len(text) > 80 else text
