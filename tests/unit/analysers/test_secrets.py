from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import string
import sys
from pathlib import Path
from typing import Any

import pytest

from codeloupe.analysers import secrets
from codeloupe.analysers.interface import AnalyserReport, AnalysisTarget
from codeloupe.analysers.secrets import TITLES, SecretsAnalyser
from codeloupe.model.finding import Severity
from codeloupe.system.process import Command, Completed, inherited_environment, run
from tests.endings import with_enough_time

HEX = "0123456789abcdef"
ALPHANUMERIC = string.ascii_letters + string.digits


def made_up(length: int, alphabet: str = ALPHANUMERIC, seed: int = 7) -> str:
    """A value that looks generated, the same in every run, and that stands in no file."""
    generator = random.Random(seed)
    return "".join(generator.choice(alphabet) for _ in range(length))


def search(
    root: Path, text: str | bytes, *, name: str = "src/app.py", trusted: bool = False, added: set[int] | None = None
) -> AnalyserReport:
    """Write one file and search it; all its lines count as added unless said otherwise."""
    content = text.encode() if isinstance(text, str) else text
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_bytes(content)
    numbers = frozenset(added if added is not None else range(1, content.count(b"\n") + 1))
    target = AnalysisTarget(
        root=root, files=(name,), added_lines={name: numbers}, trusted=trusted, timeout_seconds=30.0
    )
    return asyncio.run(SecretsAnalyser().analyse(target))


def found(root: Path, text: str, *, name: str = "src/app.py") -> list[tuple[str, Severity]]:
    report = search(root, text + "\n", name=name)
    assert report.failed == {}
    return [(issue.rule, issue.severity) for issue in report.issues]


def found_in(root: Path, files: dict[str, str]) -> dict[str, tuple[str, Severity]]:
    """What is found in files of one line each."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n", encoding="utf-8")
    added = dict.fromkeys(files, frozenset({1}))
    target = AnalysisTarget(root=root, files=tuple(files), added_lines=added, trusted=False, timeout_seconds=30.0)
    report = asyncio.run(SecretsAnalyser().analyse(target))
    assert report.failed == {}
    return {issue.file: (issue.rule, issue.severity) for issue in report.issues}


def web_token() -> str:
    parts = ({"alg": "HS256", "typ": "JWT"}, {"sub": "1234", "name": "somebody"})
    header, payload = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return f"{header}.{payload}.{made_up(43)}"


TOKENS = [
    ("aws-access-key", Severity.CRITICAL, "AK" + "IA" + made_up(16, string.ascii_uppercase + string.digits)),
    ("azure-storage-account-access-key", Severity.CRITICAL, "Account" + "Key=" + made_up(86) + "=="),
    (
        "age-secret-key",
        Severity.CRITICAL,
        "AGE-SECRET-" + "KEY-1" + made_up(58, string.ascii_uppercase + string.digits),
    ),
    ("digitalocean-token", Severity.CRITICAL, "dop" + "_v1_" + made_up(64, HEX)),
    ("hashicorp-vault-token", Severity.CRITICAL, "hv" + "s." + made_up(60)),
    ("github-token", Severity.HIGH, "gh" + "p_" + made_up(36)),
    ("github-token", Severity.HIGH, "github" + "_pat_" + made_up(82)),
    ("gitlab-token", Severity.HIGH, "gl" + "pat-" + made_up(20)),
    ("anthropic-api-key", Severity.HIGH, "sk-" + "ant-" + made_up(90)),
    ("openai-token", Severity.HIGH, "sk-" + "proj-" + made_up(100)),
    ("google-api-key", Severity.HIGH, "AI" + "za" + made_up(35)),
    ("hugging-face-token", Severity.HIGH, "h" + "f_" + made_up(34)),
    ("npm-tokens", Severity.HIGH, "np" + "m_" + made_up(36)),
    ("pypi-token", Severity.HIGH, "pypi-" + "AgEIcHlwaS5vcmc" + made_up(90)),
    ("sendgrid-api-key", Severity.HIGH, "S" + "G." + made_up(22) + "." + made_up(43)),
    ("slack-token", Severity.HIGH, "xo" + "xb-" + made_up(12, string.digits) + "-" + made_up(24)),
    ("stripe-access-key", Severity.HIGH, "sk_" + "live_" + made_up(40)),
    ("shopify-token", Severity.HIGH, "shp" + "at_" + made_up(32, HEX)),
    ("telegram-bot-token", Severity.HIGH, made_up(10, "123456789") + ":" + made_up(35)),
    ("json-web-token", Severity.MEDIUM, web_token()),
]


def test_every_form_of_token_is_found_and_its_value_is_known_as_sensitive_and_in_no_issue(tmp_path: Path) -> None:
    report = search(tmp_path, "".join(f'VALUE = "{token}"\n' for _, _, token in TOKENS))

    assert [(issue.line_start, issue.rule, issue.severity) for issue in report.issues] == [
        (line, rule, severity) for line, (rule, severity, _) in enumerate(TOKENS, start=1)
    ]
    assert {issue.category for issue in report.issues} == {"security"}
    assert all("history" in issue.body and "Revoke" in (issue.suggestion or "") for issue in report.issues)
    assert not [token for _, _, token in TOKENS if token in repr(report)]
    assert report.sensitive["src/app.py"] == {line: (token,) for line, (_, _, token) in enumerate(TOKENS, start=1)}


def test_a_password_by_name_is_found_in_every_language(tmp_path: Path) -> None:
    examples = [
        ('password = "hunter2"', "src/app.py", Severity.MEDIUM),
        ('db_password = "{random}"', "src/app.py", Severity.HIGH),
        ('connect(user="me", password="{random}")', "src/app.py", Severity.HIGH),
        ("const apiKey = '{random}';", "web/app.js", Severity.HIGH),
        ('{{"client_secret": "{random}"}}', "config/app.json", Severity.HIGH),
        ("password: {random}  # production", "deploy/values.yaml", Severity.HIGH),
        ("DB_PASSWORD={random}", ".env", Severity.HIGH),
        ("export API_KEY={random}", "deploy/run.sh", Severity.HIGH),
        ("ENV SECRET_KEY={random}", "Dockerfile", Severity.HIGH),
        ('password := "{random}"', "cmd/main.go", Severity.HIGH),
        ('String password = "{random}";', "src/App.java", Severity.HIGH),
        ('$password = "{random}";', "src/app.php", Severity.HIGH),
        ("password = admin", "app.ini", Severity.MEDIUM),
        ("POSTGRES_PASSWORD: postgres", "docker-compose.yml", Severity.MEDIUM),
    ]
    files = {f"{number}/{name}": text.format(random=made_up(20)) for number, (text, name, _) in enumerate(examples)}

    assert found_in(tmp_path, files) == {
        f"{number}/{name}": ("secret-keyword", severity) for number, (_, name, severity) in enumerate(examples)
    }


def test_a_random_value_behind_the_name_of_a_credential_in_a_header_and_in_an_address_is_found(tmp_path: Path) -> None:
    examples = [
        ('auth_token = "{random}"', "src/app.py"),
        ('headers = {{"Authorization": "{random}"}}', "src/app.py"),
        ("AUTH_TOKEN={random}", ".env"),
        ("auth_token: {random}", "deploy/values.yaml"),
        ("encryptionKey: '{random}'", "web/app.ts"),
    ]
    files = {f"{number}/{name}": text.format(random=made_up(40)) for number, (text, name) in enumerate(examples)}

    header = {"deploy/run.sh": f"curl -H 'Authorization: Bearer {made_up(40)}' https://host.internal/"}
    address = {"src/app.py": 'URL = "postgres://app:' + made_up(16) + '@db.internal/app"'}

    assert found_in(tmp_path, files | header | address) == {
        **dict.fromkeys(files, ("high-entropy-string", Severity.MEDIUM)),
        **dict.fromkeys(header, ("bearer-token", Severity.HIGH)),
        **dict.fromkeys(address, ("basic-auth-credentials", Severity.HIGH)),
    }


def test_what_is_plainly_no_secret_is_not_reported(tmp_path: Path) -> None:
    lines = [
        'password = "changeme"',
        'password = "password"',
        'api_key = "your-api-key-here"',
        'api_key = "<your-key>"',
        'api_key = "xxxxxxxxxxxxxxxx"',
        'api_key = "****************"',
        'api_key = "test-api-key"',
        'secret = "${SECRET}"',
        'secret = "{{ secret }}"',
        'password = "%(password)s"',
        'password = os.environ["PASSWORD"]',
        'password = getenv("DB_PASSWORD")',
        'PASSWORD_VARIABLE = "DB_PASSWORD"',
        'password_file = "/run/secrets/db"',
        'secret_name = "tls-certificate-2024"',
        'password = ""',
        'error = "Password must have 8 characters"',
        'password_error = "too short"',
        'client_secret_basic = "client_secret_basic"',
        'sha256 = "{hex64}"',
        'commit = "{hex40}"',
        '"integrity": "sha512-{random}=="',
        "rev: {hex40}",
        'token_hash = "{hex64}"',
        'public_key = "{random}{random}"',
        'uuid_token = "123e4567-e89b-12d3-a456-426614174000"',
        'letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"',
        'data = "{random}{random}"',
        'key = "AKIA' + 'IOSFODNN7EXAMPLE"',
        "url = 'https://user:password@host.internal/'",
        "url = 'https://user:{random}@example.com/'",
        "url = f'https://{{user}}:{{password}}@host/'",
        'if "-----BEGIN RSA PRIVATE KEY-----" in text:',
        "key: convert_number_values_for_function_call_args(value)",
    ]
    text = "\n".join(lines).replace("{{", "{").replace("}}", "}")
    for name, value in (("random", made_up(40)), ("hex40", made_up(40, HEX)), ("hex64", made_up(64, HEX))):
        text = text.replace(f"{{{name}}}", value)

    report = search(tmp_path, text + "\n")

    assert [lines[issue.line_start - 1] for issue in report.issues] == []
    assert report.failed == {}


def test_lock_files_and_hashes_are_quiet(tmp_path: Path) -> None:
    digests = [made_up(64, HEX, seed) for seed in range(200)]
    lines = [f"package-{index}==1.0 --hash=sha256:{digest}" for index, digest in enumerate(digests)]
    lines += [f'    {{"url": "https://host.internal/p", "hash": "sha256:{digest}"}},' for digest in digests]
    lines += [f'"resolved": "https://host.internal/a.tgz#{digest}", "integrity": "{digest}"' for digest in digests]

    assert found(tmp_path, "\n".join(lines), name="pylock.toml") == []


def test_in_tests_and_prose_only_certain_forms_and_random_values_count(tmp_path: Path) -> None:
    texts = {"weak": 'password = "hunter2"', "random": f'password = "{made_up(20)}"', "token": f'x = "{TOKENS[5][2]}"'}
    names = ("tests/{}/test_app.py", "docs/{}.md", "web/{}.spec.js")

    reported = found_in(tmp_path, {name.format(kind): text for kind, text in texts.items() for name in names})

    assert reported == {
        **{name.format("random"): ("secret-keyword", Severity.LOW) for name in names},
        **{name.format("token"): ("github-token", Severity.HIGH) for name in names},
    }


def private_key() -> list[str]:
    body = [made_up(64, ALPHANUMERIC + "+/", seed) for seed in range(5)]
    return ["-----BEGIN RSA " + "PRIVATE KEY-----", *body, "-----END RSA " + "PRIVATE KEY-----"]


def test_a_private_key_is_critical_and_its_whole_body_is_sensitive(tmp_path: Path) -> None:
    report = search(tmp_path, "\n".join(["key = '''", *private_key(), "'''", ""]))

    assert [(issue.rule, issue.line_start, issue.severity) for issue in report.issues] == [
        ("private-key", 2, Severity.CRITICAL)
    ]
    assert {line: values for line, values in report.sensitive["src/app.py"].items() if values} == {
        line: (body,) for line, body in enumerate(private_key()[1:-1], start=3)
    }


def test_a_private_key_on_one_line_is_found(tmp_path: Path) -> None:
    text = json.dumps({"private_key": "\n".join(private_key())})

    report = search(tmp_path, text + "\n", name="account.json")

    assert [issue.rule for issue in report.issues] == ["private-key"]
    assert private_key()[2][2:] in " ".join(report.sensitive["account.json"][1])


def test_several_secrets_on_a_line_are_one_issue_for_the_worst(tmp_path: Path) -> None:
    line = f'{{"password": "{made_up(20)}", "id": "{TOKENS[0][2]}", "token": "{TOKENS[5][2]}"}}'

    report = search(tmp_path, line + "\n", name="a.json")

    (issue,) = report.issues
    assert issue.rule == "aws-access-key"
    assert "3 secrets" in issue.body
    assert len(report.sensitive["a.json"][1]) == 3


def test_only_added_lines_are_searched(tmp_path: Path) -> None:
    text = f'a = "{TOKENS[5][2]}"\nb = 1\nc = "{TOKENS[5][2]}"\n'

    assert [issue.line_start for issue in search(tmp_path, text, added={2, 3}).issues] == [3]


def test_a_file_without_added_lines_starts_nothing(tmp_path: Path) -> None:
    target = AnalysisTarget(
        root=tmp_path, files=("a.py",), added_lines={"a.py": frozenset()}, trusted=False, timeout_seconds=5.0
    )

    assert asyncio.run(SecretsAnalyser("/nonexistent/python").analyse(target)) == AnalyserReport()


def test_added_lines_of_a_bare_diff_are_searched_without_a_file(tmp_path: Path) -> None:
    target = AnalysisTarget(
        root=tmp_path,
        files=("a.py",),
        added_lines={"a.py": frozenset({41})},
        trusted=False,
        timeout_seconds=30.0,
        added_text={"a.py": {41: f'x = "{TOKENS[5][2]}"'.encode()}},
    )

    assert [issue.line_start for issue in asyncio.run(SecretsAnalyser().analyse(target)).issues] == [41]


def test_a_line_that_is_not_utf8_is_searched(tmp_path: Path) -> None:
    report = search(tmp_path, b"\xff\xfe caf\xe9 = '" + TOKENS[5][2].encode() + b"'\r\n", name="a.txt")

    assert [issue.rule for issue in report.issues] == ["github-token"]


def test_a_secret_anywhere_in_a_long_line_is_found(tmp_path: Path) -> None:
    distances = (0, 2990, 3980, 9_999, 250_000)
    files = {f"{distance}.js": "x," * (distance // 2) + TOKENS[5][2] + ",y" * 5000 for distance in distances}

    assert found_in(tmp_path, files) == dict.fromkeys(files, ("github-token", Severity.HIGH))


ALLOWED = {
    "a.py": 'password = "{}"  # pragma: allowlist secret',
    "b.js": 'const password = "{}"; // pragma: allowlist secret',
    "c.py": '# pragma: allowlist nextline secret\npassword = "{}"',
}


@pytest.mark.parametrize("trusted", [True, False])
def test_an_allowlist_comment_counts_only_in_a_trusted_change(tmp_path: Path, trusted: bool) -> None:
    for name, text in ALLOWED.items():
        (tmp_path / name).write_text(text.format(made_up(20)) + "\n", encoding="utf-8")
    added = dict.fromkeys(ALLOWED, frozenset({1})) | {"c.py": frozenset({1, 2})}
    target = AnalysisTarget(
        root=tmp_path, files=tuple(ALLOWED), added_lines=added, trusted=trusted, timeout_seconds=30.0
    )

    report = asyncio.run(SecretsAnalyser().analyse(target))

    assert [issue.file for issue in report.issues] == ([] if trusted else list(ALLOWED))


def test_a_file_that_lost_lines_is_not_clean(tmp_path: Path) -> None:
    report = search(tmp_path, f'x = "{TOKENS[5][2]}"\n', added={1, 7})

    assert [issue.line_start for issue in report.issues] == [1]
    assert "fewer lines" in report.failed["src/app.py"]


def test_a_file_that_vanished_is_not_clean(tmp_path: Path) -> None:
    target = AnalysisTarget(
        root=tmp_path, files=("gone",), added_lines={"gone": frozenset({1})}, trusted=False, timeout_seconds=5.0
    )

    assert asyncio.run(SecretsAnalyser().analyse(target)).failed == {
        "gone": "cannot be read: No such file or directory"
    }


def test_a_hostile_line_costs_its_file_and_not_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_LINE_SECONDS", 0.2)  # the real one would make this test wait for long
    names = ("hostile.py", "other.py")
    (tmp_path / names[0]).write_text("password" * 4000 + f'\nx = "{TOKENS[5][2]}"\n', encoding="ascii")
    (tmp_path / names[1]).write_text(f'x = "{TOKENS[5][2]}"\n', encoding="ascii")
    target = AnalysisTarget(
        root=tmp_path,
        files=names,
        added_lines={names[0]: frozenset({1, 2}), names[1]: frozenset({1})},
        trusted=False,
        timeout_seconds=50.0,
    )

    report = asyncio.run(SecretsAnalyser().analyse(target))

    assert [(issue.file, issue.line_start) for issue in report.issues] == [(names[0], 2), (names[1], 1)]
    assert report.failed == {names[0]: "line 1 took too long to search for secrets"}


def python(*words: str, stdin: bytes = b"") -> Completed:
    command = Command(
        argv=(sys.executable, "-I", *words),
        cwd=Path(os.sep),
        environment=inherited_environment(),
        timeout_seconds=50.0,
        max_output_bytes=1_000_000,
        stdin=stdin,
    )
    return asyncio.run(run(command))


def test_when_the_time_runs_out_the_child_names_the_rest() -> None:
    hostile = [[number, "password" * 4000] for number in range(1, 51)]
    files = {"a.py": [[1, f'x = "{TOKENS[5][2]}"']], "b.py": hostile, "c.py": hostile}

    def searched(seconds: float) -> dict[str, Any]:
        asked = {"budget_seconds": seconds, "line_seconds": 1.0, "files": files}
        stdin = json.dumps(asked).encode()
        answer: dict[str, Any] = json.loads(python("-m", "codeloupe.analysers.secret_detectors", stdin=stdin).stdout)
        return answer

    answer = with_enough_time(searched, ready=lambda answer: bool(answer["hits"]), seconds=(0.4, 2.0, 12.0))
    assert [hit["file"] for hit in answer["hits"]] == ["a.py"]
    assert answer["unfinished"] == ["b.py", "c.py"]


def test_what_the_child_could_not_search_is_not_clean(tmp_path: Path) -> None:
    program = tmp_path / "python"
    answer = {"hits": [], "slow": [["a.py", 3]], "unfinished": ["b.py"]}
    program.write_text(f"#!/bin/sh\ncat >/dev/null\necho '{json.dumps(answer)}'\n", encoding="ascii")
    program.chmod(0o755)
    names = ("a.py", "b.py")
    for name in names:
        (tmp_path / name).write_text("x\n", encoding="ascii")
    added = dict.fromkeys(names, frozenset({1}))
    target = AnalysisTarget(root=tmp_path, files=names, added_lines=added, trusted=False, timeout_seconds=30.0)

    report = asyncio.run(SecretsAnalyser(str(program)).analyse(target))

    assert report.failed == {
        "a.py": "line 3 took too long to search for secrets",
        "b.py": "the time ran out before all its added lines were searched for secrets",
    }


def test_the_child_can_open_no_socket_and_start_no_program() -> None:
    script = """
import json, os, socket, subprocess, sys, urllib.request
from codeloupe.analysers.secret_detectors import forbid_network

def told(attempt):
    try:
        attempt()
    except Exception as error:
        return str(error)
    return ""

attempts = [
    lambda: socket.socket().close(),
    lambda: socket.getaddrinfo("localhost", 80),
    lambda: subprocess.run(["true"]),
    lambda: os.system("true"),
]
before = [told(attempt) for attempt in attempts]
forbid_network()
attempts.append(lambda: urllib.request.urlopen("http://127.0.0.1:9/"))
print(json.dumps([before, [told(attempt) for attempt in attempts]]))
"""
    before, refused = json.loads(python("-c", script).stdout)

    assert before == [""] * 4
    assert [words for words in refused if "is not allowed while searching for secrets" not in words] == []
    assert len(refused) == 5


def test_the_child_never_loads_an_http_client_or_verifies_a_secret() -> None:
    script = """
import io, json, sys
from codeloupe.analysers import secret_detectors
lines = [[1, 'x = "AK' + 'IAQ3EGRIJ7NK2D5XWZ"'], [2, 'y = "sk_' + 'live_4eC39HqLyjWDarjtT1zdp7dc"']]
asked = {"budget_seconds": 40, "line_seconds": 10, "files": {"a.py": lines}}
sys.stdin = io.StringIO(json.dumps(asked))
secret_detectors.main()
print()
clients = {"urllib3", "http.client", "ssl"} & set(sys.modules)
print(json.dumps([hasattr(sys.modules.get("requests"), "get"), sorted(clients)]))
"""
    completed = python("-c", script)

    answer, modules = completed.stdout.decode().splitlines()
    assert [hit["line"] for hit in json.loads(answer)["hits"]] == [1, 2]
    assert json.loads(modules) == [False, []]


def test_every_kind_that_can_be_found_has_a_title() -> None:
    script = (
        "from codeloupe.analysers.secret_detectors import load_detectors\n"
        "print('\\n'.join(sorted({kind for kind, _ in load_detectors().patterns})))"
    )

    assert set(python("-c", script).stdout.decode().splitlines()) <= set(TITLES)


def test_the_version_is_a_number() -> None:
    assert asyncio.run(SecretsAnalyser().version()).split(".")[0].isdigit()
