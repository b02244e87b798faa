import asyncio
import json
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codeloupe.analysers import ast_grep, programs
from codeloupe.analysers.ast_grep import AstGrepAnalyser
from codeloupe.analysers.interface import AnalyserReport
from codeloupe.analysers.php_code import only_code
from codeloupe.errors import AnalyserFailed, ProgramNotFound
from tests.program import PYTHON_HEADER
from tests.rows import each
from tests.unit.analysers.written import Files, analyse

pytestmark = pytest.mark.program

EVAL = "eval(code);\n"
RULE = "js-eval-dynamic"
SUMMARY = "sg: summary|file: scannedFileCount={scanned},skippedFileCount={skipped}"


def scan(root: Path, files: Files, /, program: str | None = None, **more: Any) -> AnalyserReport:
    return analyse(AstGrepAnalyser(program), root, files, **more)


def places(report: AnalyserReport) -> list[tuple[str, int, str]]:
    return [(issue.file, issue.line_start, issue.rule) for issue in report.issues]


def stand_in(directory: Path, body: str) -> str:
    """A program in the place of ast-grep: Python that has `files`, the paths it was asked to scan, and `say`."""
    program = directory / "stand-in"
    program.write_text(
        f"{PYTHON_HEADER}"
        "import json, os, signal, sys, time\n"
        "from pathlib import Path\n"
        'files = [Path(word) for word in sys.argv[sys.argv.index("--") + 1:]] if "--" in sys.argv else []\n'
        f"def say(skipped=0): print({SUMMARY!r}.format(scanned=len(files), skipped=skipped), file=sys.stderr)\n"
        f"{body}\n",
        encoding="utf-8",
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


def test_an_issue_has_its_place(tmp_path: Path) -> None:
    report = scan(tmp_path, {"src/app.js": f"// one\n\n{EVAL}x;\neval(\n  code\n);\n"})
    assert [(one.file, one.line_start, one.line_end) for one in report.issues] == [
        ("src/app.js", 3, 3),
        ("src/app.js", 5, 7),
    ]
    assert report.failed == {}


def test_an_issue_that_a_comment_hides_is_reported_with_the_comment(tmp_path: Path) -> None:
    files: Files = {
        "a.js": f"// ast-grep-ignore: {RULE}\n{EVAL}{EVAL}",
        "b.js": f"// ast-grep-ignore\n\nx;\n{EVAL}",
        "c.js": f"// ast-grep-ignore: another-rule\n{EVAL}",
        "d.php": "<p>\n<?php eval($_GET['code']); // ast-grep-ignore ?>\n",
    }
    report = scan(tmp_path, files, trusted=True)
    assert report.failed == {}
    assert [(issue.file, issue.line_start, issue.silenced_by) for issue in report.issues] == [
        ("a.js", 2, f"// ast-grep-ignore: {RULE}"),
        ("a.js", 3, ""),
        ("b.js", 4, "// ast-grep-ignore"),
        ("c.js", 2, ""),
        ("d.php", 2, ""),
    ]


def test_what_a_test_may_do_is_no_issue_in_a_test(tmp_path: Path) -> None:
    code = f"const agent = new https.Agent({{ rejectUnauthorized: false }});\n{EVAL}"
    report = scan(tmp_path, {"src/server.js": code, "src/server.test.js": code})
    assert places(report) == [
        ("src/server.js", 1, "js-tls-verification-off"),
        ("src/server.js", 2, RULE),
        ("src/server.test.js", 2, RULE),
    ]


def test_the_program_beside_the_interpreter_is_found_without_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert asyncio.run(AstGrepAnalyser().version())


def test_source_in_a_served_language_is_accepted_and_other_files_are_left_alone(tmp_path: Path) -> None:
    served = [
        *("a.js", "a.JSX", "a.mjs", "a.cts", "a.tsx", "a.go", "A.java", "a.rs", "a.c", "a.h", "a.hpp", "a.cc"),
        *("a.rb", "Rakefile", "x.gemspec", "a.php", "a.phtml", "a.sh", "x/.bashrc", ".github/a.bash", "a.py"),
    ]
    assert [name for name in served if not AstGrepAnalyser().accepts(name)] == []
    names = ("a.txt", "a", "js", "a.js.map", "a.zsh", "a.json", "a.html", "Makefile", "c/d")
    assert [name for name in names if AstGrepAnalyser().accepts(name)] == []
    assert scan(tmp_path, dict.fromkeys(names, EVAL)) == AnalyserReport()


def test_a_configuration_above_the_temporary_directory_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "sgconfig.yml").write_text("ruleDirs: []\nlanguageGlobs: {html: ['*.js']}\n")
    monkeypatch.setenv("TMPDIR", str(shared))
    monkeypatch.setattr(tempfile, "tempdir", None)  # tempfile remembers the first directory it saw
    assert places(scan(tmp_path, {"a.js": EVAL})) == [("a.js", 1, RULE)]


def test_the_program_sees_an_empty_directory_and_no_secret_and_no_path_of_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_TOKEN", "hush")
    seen = tmp_path / "seen.json"
    say = "[dict(os.environ), os.listdir('.'), os.listdir(os.environ['HOME']), sys.argv]"
    program = stand_in(tmp_path, f"Path({str(seen)!r}).write_text(json.dumps({say}))\nsay()")
    scan(tmp_path / "repository", {"a.js": EVAL}, program=program)
    environment, here, home, arguments = json.loads(seen.read_text())
    assert "hush" not in environment.values()
    assert (here, home) == ([], [])
    assert [word for word in arguments if str(tmp_path / "repository") in word] == []


def test_every_line_keeps_its_number_whatever_the_bytes(tmp_path: Path) -> None:
    contents = {
        "latin-1": (b"// caf\xe9\n" + EVAL.encode(), 2),
        "byte order mark": (b"\xef\xbb\xbf// one\n" + EVAL.encode(), 2),
        "CRLF": (b"// one\r\n// two\r\neval(code);\r\n", 3),
        "line separators": (b"// one\x0c\x1c\n'\xe2\x80\xa8';\neval(code)", 3),
        "NUL": (b"'\x00';\n" + EVAL.encode(), 2),
        "lone CR": (b"var x = 1;\reval(code);", 1),
        "long line": (b"var a = '" + b"x" * 100_000 + b"'; eval(code);\n", 1),
    }
    report = scan(tmp_path, {f"{name}.js": content for name, (content, _) in contents.items()})
    assert places(report) == sorted((f"{name}.js", line, RULE) for name, (_, line) in contents.items())
    assert report.failed == {}


def test_broken_code_is_analysed_and_a_translation_and_the_html_of_a_template_are_not(tmp_path: Path) -> None:
    translation = '<?xml version="1.0"?>\n<TS version="2.1"><context><name>eval(x)</name></context></TS>\n'
    template = "<p>eval($code);</p>\n<?php if ($on): ?>\n<b title='?'><?= $_GET['q'] ?></b>\n<?php endif ?>\n"
    report = scan(tmp_path, {"a.js": f"{EVAL}function ( {{ @@@\n", "de.ts": translation, "a.php": template})
    assert places(report) == [("a.js", 1, RULE), ("a.php", 3, "php-reflected-xss")]
    assert report.failed == {}


def test_what_cannot_be_read_is_named_with_the_reason_and_the_rest_is_scanned(tmp_path: Path) -> None:
    (tmp_path / "outside.js").write_text(EVAL)
    root = tmp_path / "root"
    (root / "folder.js").mkdir(parents=True)
    (root / "link.js").symlink_to(tmp_path / "outside.js")
    os.mkfifo(root / "pipe.js")
    (root / "wide.js").write_bytes(EVAL.encode("utf-16"))
    (root / "good.js").write_text(EVAL)
    report = scan(root, {}, files=("folder.js", "link.js", "pipe.js", "gone.js", "wide.js", "good.js"))
    assert places(report) == [("good.js", 1, RULE)]
    assert set(report.failed) == {"folder.js", "link.js", "pipe.js", "gone.js", "wide.js"}
    assert "not a regular file" in report.failed["pipe.js"]
    assert "No such file" in report.failed["gone.js"]
    assert "UTF-16" in report.failed["wide.js"]


def test_a_file_that_is_too_long_or_has_an_answer_without_end_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With each match comes the whole line. The real limit is reached only after seconds.
    monkeypatch.setattr(programs, "MAX_OUTPUT_BYTES", 1_000_000)
    long, wide = "var some = 1;\n" * 230_000 + EVAL, "eval(code);" * 500
    report = scan(tmp_path, {"long.js": long, "wide.js": wide, "good.js": EVAL})
    assert places(report) == [("good.js", 1, RULE)]
    assert "3,000,000 bytes and 200,000 lines" in report.failed["long.js"]
    assert "output is larger than" in report.failed["wide.js"]


def test_more_files_than_fit_in_one_call_are_all_scanned(tmp_path: Path) -> None:
    report = scan(tmp_path, {f"{number:04}.sh": "chmod 777 x\n" for number in range(2003)})
    assert len(report.issues) == 2003
    assert report.failed == {}


@each(
    ("body", "words"),
    [
        ("print('rules are broken', file=sys.stderr); sys.exit(8)", "exit code 8.*rules are broken"),
        ("print('{\"range\": {}}'); say()", "unexpected output"),
        ("print('[' * 100000); say()", "unexpected output"),
    ],
)
def test_what_cannot_be_trusted_is_a_failure_and_never_clean(body: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(AnalyserFailed, match=f"(?s){words}") as caught:
        scan(tmp_path, {"a.js": EVAL}, program=stand_in(tmp_path, body))
    assert caught.value.analyser == "ast-grep"
    assert caught.value.hint


@each(
    ("body", "reason"),
    [
        ("if bad: os.kill(os.getpid(), signal.SIGSEGV)\nsay()", "died of signal 11"),
        ("say(skipped=len(bad))", "skipped it"),
        ("if bad: print('x' * 2_000_000)\nsay()", "output is larger than"),
    ],
)
def test_a_file_that_breaks_the_scan_is_found_among_others(
    body: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "MAX_OUTPUT_BYTES", 1_000_000)
    find = "bad = [file for file in files if 'BAD' in file.read_text()]\n"
    files: dict[str, str | bytes] = {f"{number}.js": "BAD" if number == 5 else "good" for number in range(9)}
    report = scan(tmp_path, files, program=stand_in(tmp_path, find + body))
    assert set(report.failed) == {"5.js"}
    assert reason in report.failed["5.js"]


def test_a_file_that_is_made_to_be_slow_is_found_among_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ast_grep, "_CALL_SECONDS", 0.6)  # the real one would make this test wait for long
    program = tmp_path / "stand-in"
    # A shell starts at once, even on a busy machine.
    program.write_text(
        '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift\n'
        'if grep -q BAD "$@"; then while :; do :; done; fi\n'
        f'echo "{SUMMARY.format(scanned="$#", skipped=0)}" >&2\n'
    )
    program.chmod(0o755)
    report = scan(tmp_path, {"a.js": "good", "b.js": "BAD"}, program=str(program))
    assert report.failed == {"b.js": "ast-grep did not finish in time"}


def test_code_cannot_hide_after_a_closing_tag(tmp_path: Path) -> None:
    codes = [
        "<?php // done ?><?= eval($x) ?>",
        "<?php # done ?><p>?</p><? eval($x) ?>",
        "<?php $a = '?>'; eval($x);",
        '<?php $a = "\\"?>"; eval($x);',
        "<?php /* ?> */ eval($x);",
        "<?php $a = <<<END\n ?> <?php\nEND;\neval($x);",
        "<?PHP eval($x)?>",
    ]
    report = scan(tmp_path, {f"{number}.php": code for number, code in enumerate(codes)})
    assert places(report) == [
        (f"{number}.php", code[: code.index("eval")].count("\n") + 1, "php-eval-dynamic")
        for number, code in enumerate(codes)
    ]


PIECES = ["<?php", "<?=", "<?", "?>", "//", "#", "/*", "*/", "<<<A", "A", "'", '"', "\\", "\n", " ", "x;"]


@given(st.lists(st.sampled_from(PIECES)))
def test_every_line_stays_in_its_place(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert only_code(text).count("\n") == text.count("\n")


def test_a_file_without_the_text_that_a_rule_needs_is_not_scanned(tmp_path: Path) -> None:
    missing = str(tmp_path / "no-such-program")
    assert scan(tmp_path, {"a.py": "x = 1\n", "b.py": "await asyncio.sleep(1)\n"}, program=missing).failed == {}
    with pytest.raises(ProgramNotFound):
        scan(tmp_path, {"c.py": "jwt.decode(token, options={'verify_signature': False})\n"}, program=missing)
