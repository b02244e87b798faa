"""The new code that a verification offers for the quoted lines, from its answer to the report."""

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from codeloupe.reports import FORMATS
from codeloupe.testing import Json, RecordedRequest, Reply, StandInServer
from tests.program import Ended
from tests.proofs import asks_for_proofs, proofs
from tests.repository import GitRepository
from tests.warm_program import codeloupe

CODE = "def total(prices):\n    if prices:\n        return sum(prices) / len(items)\n    return eval(prices)\n"
RETURNED = "        return sum(prices) / len(items)"
# By its title, each claim has a quote, what its verification offers for it, and what of that is kept.
CASES: dict[str, tuple[str, str, str | None]] = {
    "as asked": (RETURNED, "        return sum(prices) / len(prices)", "        return sum(prices) / len(prices)"),
    "more lines": (
        "    return eval(prices)",
        "    if not prices:\n        raise ValueError(prices)\n    return literal_eval(prices)",
        "    if not prices:\n        raise ValueError(prices)\n    return literal_eval(prices)",
    ),
    "without indentation": (
        "return eval(prices)",
        "if not prices:\n    return 0\nreturn int(prices)",
        "    if not prices:\n        return 0\n    return int(prices)",
    ),
    "only the first line without indentation": (RETURNED, "x = 1\n        return x", "        x = 1\n        return x"),
    "fenced": (RETURNED, "```python\n        return 1\n```", "        return 1"),
    "marked as a diff": (RETURNED, "+        return 2\n", "        return 2"),
    "two lines for two": (
        f"    if prices:\n{RETURNED}",
        "    if items:\n        return 3",
        "    if items:\n        return 3",
    ),
    "nothing": (RETURNED, "", None),
    "the same": (RETURNED, RETURNED, None),
    # Whether a line is code is not guessed.
    "words": (RETURNED, "Use len(prices) instead.", "        Use len(prices) instead."),
    "words around code": (RETURNED, "Write this:\n```\n        return 4\n```", None),
    # The verification is shown the whole line, whatever part of it the review quoted.
    "a part of a line": ("sum(prices) / len(items)", "        return total(prices)", "        return total(prices)"),
    "a mask": (RETURNED, '        return "[redacted]"', None),
    "hidden characters": (RETURNED, "        return \u202e5", None),
    "code that is nowhere": ("        return nowhere", "        return 6", None),
}


def review(server: StandInServer, repository: GitRepository, *words: str) -> Ended:
    variables = {
        "ANTHROPIC_API_KEY": "made-up-" + "for-tests",
        "CODELOUPE_API_MODEL": "anthropic:claude-stand-in",
        "CODELOUPE_API_BASE_URL": server.url,
    }
    whole = ("review", "--uncommitted", "--reviewer", "api", *words)
    return codeloupe(*whole, cwd=repository.path, environment=variables)


def claim(number: int, title: str) -> dict[str, Any]:
    quote = CASES[title][0]
    line = next((at for at, row in enumerate(CODE.split("\n"), start=1) if quote.split("\n")[0] in row), 1)
    place = {"file": f"case{number}.py", "line": line, "quote": quote}
    return place | {"title": title, "body": "It fails.", "category": "correctness", "severity": "high"}


@pytest.mark.defect("U1")
def test_new_code_for_exactly_the_quoted_lines_is_kept_and_nothing_else(repository: GitRepository) -> None:
    repository.commit_files({"README.md": "a shop\n"})
    for number in range(len(CASES)):
        repository.write(f"case{number}.py", CODE)

    def reply(request: RecordedRequest) -> Reply:
        if not asks_for_proofs(request):
            return Json({"findings": [claim(number, title) for number, title in enumerate(CASES)]})
        [title] = [title for number, title in enumerate(CASES) if request.mentions(f"code case{number}.py>")]
        return proofs(request, "confirmed", "items is not defined.", replacement=CASES[title][1])

    with StandInServer(reply=reply) as server:
        first = review(server, repository, "--format", "json").json()
        # Lines put in above move the findings; the code that is offered for them goes with them.
        for number in range(len(CASES)):
            repository.write(f"case{number}.py", f"import math\n\n{CODE}")
        again = review(server, repository, "--format", "json").json()
    expected = {title: case[2] for title, case in CASES.items()}
    for document in (first, again):
        assert {finding["title"]: finding["replacement"] for finding in document["findings"]} == expected


GUARD = "    if not prices:\n        raise ValueError(prices)\n    return literal_eval(prices)"
ADVICE = "Parse the text instead:\n    from ast import literal_eval\n    if prices:\n        literal_eval(prices)"


@pytest.mark.defect("U1")
def test_a_fix_of_any_length_is_code_with_its_indentation_in_every_format(
    repository: GitRepository, tmp_path: Path
) -> None:
    repository.commit_files({"README.md": "a shop\n"})
    repository.write("shop.py", CODE)
    found = {"file": "shop.py", "line": 4, "quote": "    return eval(prices)"}
    about = {"title": "Runs text", "body": "It fails.", "category": "security", "severity": "high"}

    def reply(request: RecordedRequest) -> Reply:
        if asks_for_proofs(request):
            return proofs(request, "confirmed", "The text is run.", suggestion=ADVICE, replacement=GUARD)
        return Json({"findings": [found | about]})

    files = {name: tmp_path / f"report.{name}" for name in FORMATS}
    outputs = [word for name, path in files.items() for word in ("--format", name, "-o", str(path))]
    with StandInServer(reply=reply) as server:
        review(server, repository, "--lanes", "agent", *outputs)
    written = {name: path.read_text(encoding="utf-8") for name, path in files.items()}
    text = unescape(re.sub("<[^>]+>", "", written["html"]))
    plus = "".join(f"       + {row[4:]}\n" for row in GUARD.split("\n"))
    expected = {
        "text": (written["text"], [plus, "         if prices:\n             literal_eval(prices)\n"]),
        "html": (text, [GUARD, "if prices:\n    literal_eval(prices)"]),
        "markdown": (
            written["markdown"],
            [f"```python\n{GUARD}\n```", "    if prices:\n        literal_eval(prices)\n```"],
        ),
        "junit": (unescape(written["junit"]), [GUARD, "    if prices:\n        literal_eval(prices)"]),
        "github": (written["github"], [GUARD.replace("\n", "%0A"), "    if prices:%0A        literal_eval(prices)"]),
    }
    assert {name: part for name, (whole, parts) in expected.items() for part in parts if part not in whole} == {}
    (diagnostic,) = json.loads(written["rdjson"])["diagnostics"]
    assert diagnostic["suggestions"] == [{"range": {"start": {"line": 4}, "end": {"line": 4}}, "text": GUARD}]
    assert "    if prices:\n        literal_eval(prices)\n```" in diagnostic["message"]
    (result,) = json.loads(written["sarif"])["runs"][0]["results"]
    (change,) = result["fixes"][0]["artifactChanges"][0]["replacements"]
    assert (change["deletedRegion"], change["insertedContent"]) == ({"startLine": 4, "endLine": 4}, {"text": GUARD})
    assert "    if prices:\n        literal_eval(prices)" in result["message"]["text"]
