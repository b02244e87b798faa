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
from tests.unit.analysers.written import examine_everything

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
    restricted = examine(code.encode(), added)
    return restricted != examine_everything(code.encode(), added)


def test_restricted_analysis_reports_what_an_unrestricted_one_reports_on_added_lines() -> None:
    chance = random.Random(25)
    reported = 0
    for code in [*programs(), *(generated_module(chance) for _ in range(300))]:
        lines = range(1, code.count("\n") + 2)
        for size in (1, 1, 3):
            added = frozenset(chance.sample(lines, min(size, len(lines))))
            assert not differs(code, added), (added, code)
            reported += len(examine(code.encode(), added)["issues"])
    assert reported > 100


LAYOUTS = {
    "a class in a class": """
        class Outer:
            class Inner:
                def run(self):
                    os.system(request.args["a"])
        """,
    "a method in a block of a class, after another method": """
        class Task:
            def first(self): pass
            if True:
                def run(self, text): os.system(text)
            def go(self): self.run(request.args["a"])
        """,
    "a property with a setter": """
        class Task:
            @property
            def command(self): os.system(request.args["a"])
            @command.setter
            def command(self, text): pass
        """,
    "bases of a class on deeper lines": """
        class Task(object,
                   metaclass=Meta):
            def run(self): os.system(request.args["a"])
        """,
    "a function in a block that always runs": """
        if 1:
            def run(): os.system(request.args["a"])
        """,
    "a module variable from a function": """
        def read(): return request.args["a"]
        DATA = read()
        def run(): os.system(DATA)
        """,
    "a module variable that names a function": """
        def run(text): os.system(text)
        start = run
        def view(): start(request.args["a"])
        """,
    "a continued global statement": """
        def store():
            global first, \\
                second
            second = request.args["a"]
        def run(): os.system(second)
        """,
    "a global statement behind a colon": """
        def store(): global first; first = request.args["a"]
        def run(): os.system(first)
        """,
    "a global statement in a string": """
        TEXT = '''
        global request
        '''
        def run(): os.system(request.args["a"])
        """,
    "a statement behind an import": """
        import sys; os.system(request.args["a"])
        """,
    "an import with a tab": """
        import\tflask
        def run(): os.system(flask.request.args["a"])
        """,
    "a form feed before a function": """
        def first(): pass
        \fdef run():
            os.system(request.args["a"])
        """,
    "the name of a function on the next line": """
        def \\
          run(text): os.system(text)
        def view(): run(request.args["a"])
        """,
    "an f-string with its own quotes": """
        def run():
            value = request.args["a"]
            text = f\"\"\"{ {{1}, 2, \"\"\"
        def quoted():
        \"\"\"}}\"\"\"
            os.system(value)
        """,
    "exceptions without brackets": """
        def run():
            try: os.system(request.args["a"])
            except OSError, ValueError: pass
        """,
    "names with the same normal form": """
        def \uff52un(text): os.\uff53ystem(text)
        def view(): run(request.args["a"])
        """,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_restriction_loses_no_flow_in_any_layout_of_the_code(layout: str) -> None:
    head = "import os\n"
    if "flask.request" not in LAYOUTS[layout]:
        head += "from flask import request\n"
    code = head + dedent(LAYOUTS[layout])
    lines = range(1, code.count("\n") + 2)
    assert len(examine(code.encode(), frozenset(lines))["issues"]) == 1
    for line in lines:
        assert not differs(code, frozenset({line})), line


def test_names_in_other_characters_are_worth_a_worker() -> None:
    assert analyser._is_worth_reading("\uff45\uff56\uff41\uff4c(x)".encode())
    assert not analyser._is_worth_reading("x = 'größe'".encode())


def test_lines_that_git_counts_otherwise_are_a_failure() -> None:
    code = b"import os # \rfrom flask import request\ndef f():\n    os.system(request.args['a'])\n"
    assert "carriage return" in examine(code, frozenset({3}))["failed"]


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
    empty: Answer = {"issues": [], "quiet": {}, "failed": ""}
    assert examine(CHAIN.encode(), frozenset({13})) == empty
    assert "it was parsed" in examine(CHAIN.encode(), frozenset({5}))["failed"]


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
    answer = examine(code.encode(), frozenset({code.count("\n")}))
    assert [issue["harm"] for issue in answer["issues"]] == ["py-code-injection"]


def test_files_with_anything_to_report_are_worth_a_worker() -> None:
    safe_sinks = [IMPORTS + dedent(code) for code, _ in SAFE.values()]
    for code in (*programs(), *safe_sinks):
        lines = frozenset(range(1, code.count("\n") + 2))
        answer = examine(code.encode(), lines)
        if answer["issues"] or answer["quiet"]:
            assert analyser._is_worth_reading(code.encode()), code
    assert not analyser._is_worth_reading(b"x = 1\n")
