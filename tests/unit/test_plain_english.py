"""Help, messages, reports and pages say things as a native speaker would write them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Phrases of an earlier version, each with what is written instead.
BANNED = {
    r"tried to be refuted": "are verified before they count",
    r"\basked for —|; asked for\b": "as requested",
    r"its own lane|as the settings ask": "next to the agent, as configured",
    r"\b(?:was|were|is|are) told\b": "say who says what to whom",
    r"\bin words\b": "as text",
    r"\bstands? (?:behind|here|twice|in one|in it|where)\b": "is, comes after, occurs",
    r"\b(?:is|are|was) (?:of another|of GitHub's)\b|the review is of\b": "is for",
    r"\bfrom this one on\b": "at or above",
    r"\banew\b": "again",
    r"\bhas at hand\b": "has",
    r"counts? for nothing": "does not count",
    r"\bis no (?:fingerprint|date|number|format|name|file|directory|severity)\b": "is not a",
    r"\b[Gg]rave\b": "critical or high",
    r"would hold\b": "would contain",
    r"\b(?:do|does|did) not tell\b": "does not report, does not say",
    r"meant may be": "did you mean",
    r"\bgo(?:es)? on with (?:it|them|the run)\b": "continues",
    r"waits for nobody": "is not waiting for an answer",
    r"so many (?:at most|threads)": "at most N",
    r"\bbegins? afresh\b": "starts over",
    r"\bwhat became of\b": "its state",
    r"\bsomebody else\b": "another process",
    r"\bmend\b": "fix",
    r"raw output is kept|is kept until": "is stored",
    r"\bis no (?:JSON|range|branch|type)\b": "is not a",
    r"\bsince it left\b": "since it branched off from",
    r"\b(?:is|was|be|are|were) left out\b": "is skipped",
}
# Modules whose strings are sent to agents. The effect of prompts is measured, so they are not changed for their style.
PROMPTS = tuple(ROOT / "src/codeloupe/reviewers" / name for name in ("diff_text.py", "prompt.py", "verify.py"))


def messages(path: Path) -> Iterator[tuple[int, str]]:
    """Yield every string of a module, with its line, except docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


@pytest.mark.defect("U8")
def test_no_message_or_page_has_an_unidiomatic_phrase() -> None:
    assert [path for path in PROMPTS if not path.is_file()] == []
    texts = [
        (f"{path.relative_to(ROOT)}:{number}", text)
        for path in sorted((ROOT / "src/codeloupe").rglob("*.py"))
        if path not in PROMPTS
        for number, text in messages(path)
    ]
    texts += [
        (f"{page.relative_to(ROOT)}:{number}", line)
        for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1)
    ]
    assert len(texts) > 5_000
    wrong = [
        f"{place}: {match[0]!r}; better: {better}"
        for place, text in texts
        for pattern, better in BANNED.items()
        if (match := re.search(pattern, text))
    ]
    assert wrong == []
