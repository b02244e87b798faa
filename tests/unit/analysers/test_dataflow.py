from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from codeloupe.analysers.dataflow.analyser import DataflowAnalyser
from codeloupe.analysers.dataflow.syntax import parse
from codeloupe.analysers.dataflow.values import MEANINGS, Harm
from codeloupe.analysers.dataflow.worker import examine, read_module
from codeloupe.analysers.interface import AnalyserReport
from codeloupe.model.finding import Severity
from tests.unit.analysers.written import Files, analyse

FLASK = "from flask import Flask, request\napp = Flask(__name__)\n@app.route('/x')\ndef view():\n"


def harms(code: str) -> set[str]:
    tree = parse(code)
    assert tree is not None, code
    return {flow.harm.value.removeprefix("py-") for flow in read_module(tree, len(code)).flows}


def in_view(*lines: str) -> str:
    return FLASK + "".join(f"    {line}\n" for line in lines)


def follow(root: Path, files: Files, /, **more: Any) -> AnalyserReport:
    return analyse(DataflowAnalyser(), root, files, **more)


SQL = "sql-injection"
SHELL = "command-injection"
CODE = "code-injection"
PATH = "path-traversal"
HTML = "cross-site-scripting"
REDIRECT = "open-redirect"
GUESSABLE = "guessable-secret"

# How outside text travels: what is done with `x`, which comes from the request, before it is run as code in `y`.
TRAVELS = {
    "y = x": True,
    "y = x.strip().lower()": True,
    "y = f'print({x})'": True,
    "y = 'print(%s)' % x": True,
    "y = 'print({})'.format(x)": True,
    "y = ', '.join(['a', x])": True,
    "y = 'a'; y += x": True,
    "y, z = x, 'a'": True,
    "z, y = x, 'a'": False,
    "y = [x, 'a'][0]": True,
    "y = [x, 'a'][1]": False,
    "d = {'a': x, 'b': 'c'}; y = d['a']": True,
    "d = {'a': x, 'b': 'c'}; y = d['b']": False,
    "d = {}; d['a'] = x; y = d.get('a')": True,
    "d = {}; d['a'] = x; d['b'] = 'c'; y = d.get('b')": False,
    "l = []; l.append('a'); l.append(x); l.pop(0); y = l[0]": True,
    "l = []; l.append(x); l.append('a'); l.pop(0); y = l[0]": False,
    "y = x if x else 'a'": True,
    "y = 'a' if x else 'b'": False,
    "y = 'a' if 7 * 6 > 40 else x": False,
    "y = 'a' if 7 * 6 > 50 else x": True,
    "y = x[1:3]": True,
    "y = [part for part in x.split()][0]": True,
    "y = ''.join('?' for part in x)": False,
    "y = x or 'a'": True,
    "y = str(len(x))": False,
    "y = int(x)": False,
    "y = float(x)": False,
    "import uuid; y = str(uuid.UUID(x))": False,
    "import base64; y = base64.b64decode(x).decode()": True,
    "import json; y = json.loads(x)['a']": True,
    "import urllib.parse; y = urllib.parse.unquote(x)": True,
    "import hashlib; y = hashlib.sha256(x).hexdigest()": False,
    "y = {'a': 'b'}[x]": False,
    "y = f'{x:d}'": False,
    "y = '%d' % x": False,
    "y = (lambda: 'a')()": False,
    "y = x; y = 'a'": False,
}


def test_outside_text_is_followed_through_expressions() -> None:
    views = {line: in_view("x = request.args['x']", line, "eval(y)", "return {}") for line in TRAVELS}
    assert {line: CODE in harms(view) for line, view in views.items()} == TRAVELS


# Tests that let a value through, or not, before it is run as code in `x`.
GUARDS = {
    "if x not in ('a', 'b'): return {}": False,
    "if x in ('a', 'b'): return {}": True,
    "if not x.isalnum(): return {}": False,
    "if not re.fullmatch(r'[a-z]+', x): return {}": False,
    "if not re.match(r'[a-z]+', x): return {}": True,
    "if not re.fullmatch(r'.*', x): return {}": True,
    "if x not in ALLOWED: abort(400)": False,
    "if x not in ALLOWED: raise ValueError": False,
    "if x not in ALLOWED: print('odd')": True,
    "if x == 'a' or x == 'b': pass": True,
    "if not x: return {}": True,
    "if not is_valid(x): return {}": False,
    "assert x in ALLOWED": False,
}


def test_a_check_that_leaves_makes_what_follows_safe() -> None:
    head = "import re\nfrom flask import abort\nfrom checks import is_valid\nALLOWED = {'a'}\n"
    views = {line: head + in_view("x = request.args['x']", line, "eval(x)", "return {}") for line in GUARDS}
    assert {line: CODE in harms(view) for line, view in views.items()} == GUARDS


# What a statement does with outside text in `x`.
SINKS = {
    "db.execute('SELECT * FROM t WHERE a = ' + x)": {SQL},
    "db.execute('SELECT * FROM t WHERE a = ?', (x,))": set(),
    "db.session.execute(text(f'SELECT * FROM t WHERE a = {x}'))": {SQL},
    "executor.execute(x)": set(),
    "os.system('ls ' + x)": {SHELL},
    "os.system('ls ' + shlex.quote(x))": set(),
    "subprocess.run(['ls', x])": set(),
    "subprocess.run([x, '-l'])": {SHELL},
    "subprocess.run(['bash', '-c', 'ls ' + x])": {SHELL},
    "subprocess.run('ls ' + x, shell=True)": {SHELL},
    "subprocess.run(['ls', x], shell=False)": set(),
    "open('/srv/' + x)": {PATH},
    "open('/srv/' + os.path.basename(x))": set(),
    "pathlib.Path('/srv', x).read_text()": {PATH},
    "(pathlib.Path('/srv') / pathlib.Path(x).name).read_text()": set(),
    "shutil.rmtree(f'/srv/{x}')": {PATH},
    "tree.xpath(f'//a[b=\"{x}\"]')": {"xpath-injection"},
    "tree.xpath('//a[b=$x]', x=x)": set(),
    "'abc'.find(x)": set(),
    "directory.search_s('dc=a', 2, f'(cn={x})')": {"ldap-injection"},
    "pattern.search(x)": set(),
    "render_template_string('<p>' + x)": {"template-injection"},
    "render_template_string('<p>{{ x }}', x=x)": set(),
    "redirect(x)": {REDIRECT},
    "redirect('/user/' + x)": set(),
    "redirect('https://' + x + '/')": {REDIRECT},
    "redirect('https://example.org/' + x)": set(),
    "requests.get(x)": {"request-forgery"},
    "requests.get('https://example.org/' + x)": set(),
    "pickle.loads(x)": {"unsafe-deserialization"},
    "json.loads(x)": set(),
    "yaml.load(x, Loader=yaml.SafeLoader)": set(),
    "yaml.load(x, Loader=yaml.Loader)": {"unsafe-deserialization"},
    "importlib.import_module(x)": {CODE},
    "make_response('<p>' + x)": {HTML},
    "make_response('<p>' + html.escape(x))": set(),
    "Markup(x)": {HTML},
    "return '<p>' + x": {HTML},
    "return {'x': x}": set(),
    "return '<p>' + x, 200, {'Content-Type': 'text/plain'}": set(),
    "lxml.etree.fromstring(x, lxml.etree.XMLParser(resolve_entities=True))": {"xml-external-entity"},
    "defusedxml.ElementTree.fromstring(x)": set(),
    "print(x)": set(),
    "session['name'] = x": set(),
}
IMPORTS = (
    "import os, shlex, subprocess, pathlib, shutil, requests, pickle, json, yaml, importlib, html, lxml.etree\n"
    "import defusedxml.ElementTree\nfrom sqlalchemy import text\nfrom markupsafe import Markup\n"
    "from flask import make_response, redirect, render_template_string, session\n"
    "from app import db, executor, tree, directory, pattern\n"
)


def test_each_place_where_outside_text_does_harm_is_known() -> None:
    assert {line: harms(IMPORTS + in_view("x = request.args['x']", line)) for line in SINKS} == SINKS


SOURCES = {
    "def view(request):\n    eval(request.GET['x'])\n": True,
    "def view(request):\n    eval(request.user.name)\n": False,
    "def application(environ, start_response):\n    eval(environ['QUERY_STRING'])\n": True,
    "def application(environ, start_response):\n    eval(environ['SERVER_NAME'])\n": False,
    "def plain(environ):\n    eval(environ['QUERY_STRING'])\n": False,
    "@app.get('/x')\ndef view(x: str):\n    eval(x)\n": True,
    "@app.get('/x')\ndef view(x: int):\n    eval(x)\n": False,
    "@app.get('/x')\ndef view(x=Depends(get)):\n    eval(x)\n": False,
    "@app.route('/<int:x>')\ndef view(x):\n    eval(x)\n": False,
    "@app.route('/<x>')\ndef view(x):\n    eval(x)\n": True,
    "@cache.get('key')\ndef view(x):\n    eval(x)\n": False,
    "async def view(request):\n    data = await request.json()\n    eval(data['x'])\n": True,
    "class H(web.RequestHandler):\n    def get(self):\n        eval(self.get_argument('x'))\n": True,
    "class H(Other):\n    def get(self):\n        eval(self.get_argument('x'))\n": False,
    "def plain(x):\n    eval(x)\n": False,
}


def test_what_counts_as_outside_depends_on_who_calls_the_function() -> None:
    assert {code: CODE in harms(code) for code in SOURCES} == SOURCES


HELPERS = {
    "def h(a):\n    return 'x' + a\n{view}    eval(h(request.args['x']))\n": True,
    "def h(a):\n    return 'x'\n{view}    eval(h(request.args['x']))\n": False,
    "def h(a):\n    return int(a)\n{view}    eval(h(request.args['x']))\n": False,
    "def h(a, b):\n    eval(b)\n{view}    h(request.args['x'], 'y')\n": False,
    "def h(a, b):\n    eval(b)\n{view}    h('y', request.args['x'])\n": True,
    "def h(a, b):\n    eval(b)\n{view}    h('y', b=request.args['x'])\n": True,
    "def h(a):\n    return g(a)\ndef g(a):\n    return a\n{view}    eval(h(request.args['x']))\n": True,
    "def h(a):\n    return h(a)\n{view}    eval(h(request.args['x']))\n": True,
}


def test_functions_of_the_same_module_are_looked_into() -> None:
    assert {code: CODE in harms(code.format(view=FLASK)) for code in HELPERS} == HELPERS


OTHER = {
    "import random\ndef reset_token():\n    return random.random()\n": {GUESSABLE},
    "import random\ndef roll():\n    return random.randint(1, 6)\n": set(),
    "import random\nsession_id = str(random.getrandbits(64))\n": {GUESSABLE},
    "import random\ntoken_count = random.randint(1, 6)\n": set(),
    "import random\nuser(password=''.join(random.choices('abc', k=8)))\n": {GUESSABLE},
    "import random\npassword = random.SystemRandom().random()\n": set(),
    "import secrets\ntoken = secrets.token_hex()\n": set(),
    "r.set_cookie('a', 'b', secure=False)\n": {"insecure-cookie"},
    "r.set_cookie('theme', 'dark')\n": set(),
    "r.set_cookie('session_id', s)\n": {"insecure-cookie"},
    "r.set_cookie('session_id', s, secure=True)\n": set(),
    "import ssl\nc.verify_mode = ssl.CERT_NONE\n": {"tls-not-verified"},
    "import ssl\nc.verify_mode = ssl.CERT_REQUIRED\n": set(),
    "def f(user):\n    assert user.is_superuser\n": {"assert-as-guard"},
    "def f(user):\n    assert user.name\n": set(),
}


def test_weaknesses_without_a_flow_are_seen_where_names_show_that_they_matter() -> None:
    assert {code: harms(code) for code in OTHER} == OTHER


QUIET = {
    "def f(db, n: int):\n    db.execute(f'SELECT * FROM t WHERE a = {n}')\n": True,
    "def f(db, n):\n    db.execute(f'SELECT * FROM t WHERE a = {n}')\n": False,
    "def f(db, n):\n    if is_valid(n):\n        db.execute(f'SELECT * FROM t WHERE a = {n}')\n": False,
    "def f(db, n):\n    if n not in ('a',):\n        return\n    db.execute(f'SELECT a FROM t ORDER BY {n}')\n": True,
    "def f(db, n):\n    db.execute(f'SELECT * FROM {quote_ident(n)} LIMIT {db.most + 1}')\n": True,
    "def f(db, n):\n    db.execute(f'SELECT * FROM {quote_ident(n)} LIMIT {db.most}')\n": False,
    "def f(sql, n):\n    return sql == f'SELECT * FROM {n}'\n": True,
    "class A:\n    name = 't'\n    def f(self, db):\n        db.execute('SELECT * FROM ' + self.name)\n": True,
    "n = 't'\ndef g(x):\n    global n\n    n = x\ndef f(db):\n    db.execute(f'SELECT * FROM {n}')\n": False,
}


def test_ruff_stays_in_force_unless_nothing_from_outside_can_be_in_a_query() -> None:
    wrong = []
    for code, expected in QUIET.items():
        line = code.count("\n")
        notes = read_module(parse(code) or pytest.fail(code), len(code))
        is_quiet = Harm.SQL in notes.harmless.get(line, set()) - notes.doubtful.get(line, set())
        if (is_quiet or "S608" in notes.quiet[line]) is not expected:
            wrong.append(code)
    assert wrong == []


def test_every_harm_has_a_meaning_and_injections_block() -> None:
    assert set(MEANINGS) == set(Harm)
    blocking = {harm for harm, meaning in MEANINGS.items() if meaning.severity == "high"}
    assert {Harm.SQL, Harm.SHELL, Harm.CODE, Harm.PATH, Harm.TEMPLATE, Harm.OBJECT, Harm.HTML} <= blocking


VIEW = in_view("x = request.args['x']", "y = 'SELECT * FROM t WHERE a = ' + x", "z = 1", "db.execute(y)")


@pytest.mark.program
def test_a_flow_counts_when_the_change_touches_any_line_of_it(tmp_path: Path) -> None:
    places = {}
    for line in range(1, 9):
        report = follow(tmp_path, {"a.py": VIEW}, added={"a.py": [line]})
        places[line] = [(issue.line_start, issue.line_end) for issue in report.issues]
    assert places == {1: [], 2: [], 3: [], 4: [], 5: [(5, 5)], 6: [(6, 6)], 7: [], 8: [(8, 8)]}


@pytest.mark.program
def test_a_finding_names_where_the_text_comes_from_and_where_it_goes(tmp_path: Path) -> None:
    (issue,) = follow(tmp_path, {"a.py": VIEW}).issues
    assert issue.rule == "py-sql-injection"
    assert issue.severity is Severity.HIGH
    assert issue.line_start == 8
    assert issue.body.startswith("`request.args` (line 5) reaches `execute` (line 8), by way of line 6.")


def test_tests_are_not_read() -> None:
    paths = ("a.py", "tests/a.py", "test_a.py", "a.js", "a.pyw")
    assert [path for path in paths if DataflowAnalyser().accepts(path)] == ["a.py", "a.pyw"]


def test_no_child_is_started_where_there_is_nothing_to_find(tmp_path: Path) -> None:
    assert analyse(DataflowAnalyser(program="/nonexistent"), tmp_path, {"a.py": "x = 1\n"}) == AnalyserReport()


NEWER = {
    "x = f'{a['b']}' 'c' f\"{d!r:>{w}}\"\n": 1,
    "def f[T: int](a: list[T]) -> T:\n    return a\n": 2,
    "type A[T] = list[T]\nb = 1\n": 2,
    "x = f'{\n    a['b']\n}'\ny = 1\n": 4,
    "x = f'{a['b']}\\N{DASH}{{c}}'\n": 1,
}


def test_code_for_newer_python_is_read_line_by_line_as_it_is() -> None:
    for code, last in NEWER.items():
        tree = parse(code)
        assert tree is not None, code
        assert (tree.body[-1].end_lineno or 0) == last, code
    assert parse("def (") is None


def test_text_in_newer_f_strings_is_followed() -> None:
    code = in_view("x = request.args['x']", "eval(f'{x['a']} {', '.join(['b'])}')", "return {}")
    assert harms(code) == {CODE}


HOSTILE = {
    "long sum": "x = " + "a+" * 100_000 + "a\n",
    "deep brackets": "x = " + "(" * 5000,
    "deep signs": "x = " + "-" * 50_000 + "1\n",
    "long chain": "x = a" + ".b()" * 900 + "\n",
    "ever more branches": "def f(a):\n"
    + "".join(f"    v{i} = a\n" for i in range(1500))
    + "".join(f"    if v{i}:\n        v{i} = 1\n" for i in range(1500)),
    "calls of calls": "".join(f"def f{i}(a):\n    return f{i + 1}(f{i + 1}(a))\n" for i in range(300)),
    "nested loops": "def f(a):\n"
    + "".join("    " * (i + 1) + f"for x{i} in a:\n" for i in range(18))
    + " " * 76
    + "g(a)\n",
    "huge numbers": "x = 9 ** 9 ** 9\ny = 'a' * 10 ** 12\nz = 1 << 10 ** 9\n",
    "nested strings": "x = " + "f'{" * 60 + "1" + "}'" * 60 + "\n",
    "not text": "\x00\ufffe",
}


def test_hostile_code_is_read_or_refused_within_the_time_limit_of_a_test(tmp_path: Path) -> None:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(3000)
    try:
        for name, code in HOSTILE.items():
            (tmp_path / "a.py").write_text(code, encoding="utf-8")
            assert examine(tmp_path, "a.py", frozenset({1})).issues == [], name
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.program
def test_a_file_that_cannot_be_read_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    deep = "request = " + "-" * 50_000 + "1\n"
    report = follow(tmp_path, {"a.py": deep, "b.py": VIEW})
    assert report.failed == {"a.py": "its code is nested too deeply to follow data through it"}
    assert [issue.file for issue in report.issues] == ["b.py"]
