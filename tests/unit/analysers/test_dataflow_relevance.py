"""The parts of a file that the data-flow analysis reads for a change."""

import random
from pathlib import Path
from textwrap import dedent

import pytest
import yaml

from codeloupe.analysers.dataflow import analyser, worker
from codeloupe.analysers.dataflow.outline import Outline
from codeloupe.analysers.dataflow.relevance import parts_to_read
from codeloupe.analysers.dataflow.worker import Answer, examine
from tests.unit.analysers.test_dataflow_quiet import IMPORTS, SAFE

WEAKNESSES = Path(__file__).parents[3] / "bench" / "weaknesses"
HEAD = "import os, random\nfrom flask import request\nTABLE = 'users'\nSTORE = {}\n"
BODIES = (
    "return request.args['x']",
    "return '{name}' + {argument}",
    "os.system({argument})",
    "eval({argument})\n    return {argument}",
    "return {other}({argument})",
    "{other}({other}({argument}))",
    "x = {other}(request.form['y'])\n    open(x)",
    "global STORE\n    STORE = request.args['z']",
    "os.system(STORE)",
    "token = random.random()\n    return {other}(token)",
    "return db.execute(f'SELECT * FROM {{TABLE}} WHERE a = {{int({argument})}}')",
    "return Holder({argument}).run()",
    "return Holder(request.args['w']).value",
)
METHODS = (
    "self.value = x",
    "self.kept = request.args['k']",
    "os.system(self.value)",
    "os.system(self.kept)",
    "return self.run()",
    "return {other}(self.kept)",
    "self.kept, self.value = x, {other}(x)",
)


def programs() -> list[str]:
    found: list[str] = []
    for path in sorted(WEAKNESSES.glob("*.yml")):
        for pair in yaml.safe_load(path.read_text(encoding="utf-8")):
            found += [pair["unsafe"], pair["safe"]]
    return found


def generated_module(chance: random.Random) -> str:
    """Return a module of functions and a class that call each other and share variables at random."""
    names = [f"f{number}" for number in range(12)]
    parts = [HEAD, "class Holder:\n    def __init__(self, x):\n        self.value = x\n"]
    for name in ("run", "store", "use"):
        body = chance.choice(METHODS).format(other=chance.choice(names))
        parts.append(f"    def {name}(self, x=None):\n        {body}\n")
    for name in names:
        body = chance.choice(BODIES).format(name=name, argument="x", other=chance.choice(names))
        parts.append(f"def {name}(x):\n    {body}\n")
    if chance.random() < 0.3:
        parts.append(f"RESULT = {chance.choice(names)}('a')\n")
    return "".join(parts)


def differs(code: str, added: frozenset[int]) -> bool:
    restricted = examine("a.py", code.encode(), added)
    return restricted != examine("a.py", code.encode(), added, everything=True)


def test_restricted_analysis_reports_what_an_unrestricted_one_reports_on_added_lines() -> None:
    chance = random.Random(25)
    reported = 0
    for code in [*programs(), *(generated_module(chance) for _ in range(300))]:
        lines = range(1, code.count("\n") + 2)
        for size in (1, 1, 3):
            added = frozenset(chance.sample(lines, min(size, len(lines))))
            assert not differs(code, added), (added, code)
            reported += len(examine("a.py", code.encode(), added)["issues"])
    assert reported > 100


def read_parts(code: str, line: int) -> set[str] | None:
    outline = Outline(code)
    wanted = parts_to_read(outline, {line})
    return None if wanted is None else {outline.parts[index].name for index in wanted}


CHAIN = dedent("""\
    from flask import request
    def source():
        return request.args["x"]
    def middle(x):
        return x
    def sink(x):
        eval(x)
    def view():
        sink(middle(source()))
    def unrelated():
        sink(request.args["y"])
    def apart(x):
        return x + 1
    """)


def test_a_part_is_read_if_it_uses_an_added_line_or_is_used_by_such_a_part() -> None:
    assert read_parts(CHAIN, 5) == {"source", "middle", "sink", "view"}
    assert read_parts(CHAIN, 7) == {"source", "middle", "sink", "view", "unrelated"}


def test_a_file_is_not_parsed_if_no_source_reaches_a_sink_through_an_added_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def parse(_: str) -> None:
        raise AssertionError("it was parsed")

    monkeypatch.setattr(worker, "parse", parse)
    empty: Answer = {"file": "a.py", "issues": [], "quiet": {}, "failed": ""}
    assert examine("a.py", CHAIN.encode(), frozenset({13})) == empty
    assert "it was parsed" in examine("a.py", CHAIN.encode(), frozenset({5}))["failed"]


def test_functions_in_strings_and_continued_lines_are_not_parts() -> None:
    code = dedent('''\
        class A:
            @decorate(
                1
            )
            def method(
                self,
            ):
                """
        def quoted():
                """
        x = """
        def other():
        """
        try:
            def fallback(): pass
        except E: pass
        async def last(): pass
        ''')
    parts = Outline(code).parts
    assert [(part.name, part.line, part.class_name) for part in parts] == [("method", 5, "A"), ("last", 17, "")]


def test_functions_are_read_after_those_they_use_at_any_depth() -> None:
    chain = "".join(f"def f{number}(x):\n    return f{number + 1}(x)\n" for number in range(30))
    code = f"from flask import request\n{chain}def f30(x):\n    eval(x)\ndef view():\n    f0(request.args['x'])\n"
    answer = examine("a.py", code.encode(), frozenset({code.count("\n")}))
    assert [issue["harm"] for issue in answer["issues"]] == ["py-code-injection"]


def test_files_with_anything_to_report_are_worth_a_worker() -> None:
    safe_sinks = [IMPORTS + dedent(code) for code, _ in SAFE.values()]
    for code in (*programs(), *safe_sinks):
        lines = frozenset(range(1, code.count("\n") + 2))
        answer = examine("a.py", code.encode(), lines)
        if answer["issues"] or answer["quiet"]:
            assert analyser._is_worth_reading(code.encode()), code
    assert not analyser._is_worth_reading(b"x = 1\n")
