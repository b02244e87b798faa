import asyncio
import base64
import json
import random
import string
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from codeloupe.analysers import programs, secret_detectors
from codeloupe.analysers.interface import AnalyserReport
from codeloupe.analysers.secret_values import mask_secrets
from codeloupe.analysers.secrets import TITLES, SecretsAnalyser
from codeloupe.model.finding import Severity
from codeloupe.system.redaction import token_forms
from tests.secret_material import look_alikes, vendor_tokens
from tests.unit.analysers.written import Files, analyse, target

HEX = "0123456789abcdef"
ALPHANUMERIC = string.ascii_letters + string.digits
UPPER = string.ascii_uppercase + string.digits
APP = "src/app.py"
LOW, MEDIUM, HIGH, CRITICAL = Severity.LOW, Severity.MEDIUM, Severity.HIGH, Severity.CRITICAL


def made_up(length: int, alphabet: str = ALPHANUMERIC, seed: int = 7) -> str:
    """A value that looks generated, the same in every run, and that is in no file."""
    generator = random.Random(seed)
    return "".join(generator.choice(alphabet) for _ in range(length))


def search(root: Path, files: Files, /, *added: Any, **more: Any) -> AnalyserReport:
    return analyse(SecretsAnalyser(), root, files, *added, **more)


def found(root: Path, files: dict[str, str]) -> dict[str, tuple[str, Severity]]:
    """What is found in files of one line each."""
    report = search(root, {name: f"{text}\n" for name, text in files.items()})
    assert report.failed == {}
    return {issue.file: (issue.rule, issue.severity) for issue in report.issues}


def web_token() -> str:
    parts = ({"alg": "HS256", "typ": "JWT"}, {"sub": "1234", "name": "somebody"})
    header, payload = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return f"{header}.{payload}.{made_up(43)}"


TOKENS = [
    ("aws-access-key", CRITICAL, "AK" + "IA" + made_up(16, UPPER)),
    ("azure-storage-account-access-key", CRITICAL, "Account" + "Key=" + made_up(86) + "=="),
    ("age-secret-key", CRITICAL, "AGE-SECRET-" + "KEY-1" + made_up(58, UPPER)),
    ("digitalocean-token", CRITICAL, "dop" + "_v1_" + made_up(64, HEX)),
    ("hashicorp-vault-token", CRITICAL, "hv" + "s." + made_up(60)),
    ("github-token", HIGH, "gh" + "p_" + made_up(36)),
    ("github-token", HIGH, "github" + "_pat_" + made_up(82)),
    ("gitlab-token", HIGH, "gl" + "pat-" + made_up(20)),
    ("anthropic-api-key", HIGH, "sk-" + "ant-" + made_up(90)),
    ("openai-token", HIGH, "sk-" + "proj-" + made_up(100)),
    ("google-api-key", HIGH, "AI" + "za" + made_up(35)),
    ("npm-tokens", HIGH, "np" + "m_" + made_up(36)),
    ("pypi-token", HIGH, "pypi-" + "AgEIcHlwaS5vcmc" + made_up(90)),
    ("slack-token", HIGH, "xo" + "xb-" + made_up(12, string.digits) + "-" + made_up(24)),
    ("stripe-access-key", HIGH, "sk_" + "live_" + made_up(40)),
    ("telegram-bot-token", HIGH, made_up(10, "123456789") + ":A" + "A" + made_up(33)),
    ("json-web-token", MEDIUM, web_token()),
]
TOKEN = TOKENS[5][2]


def test_every_form_of_token_is_found_and_its_value_is_known_as_sensitive_and_in_no_issue(tmp_path: Path) -> None:
    report = search(tmp_path, {APP: "".join(f'VALUE = "{token}"\n' for _, _, token in TOKENS)})
    assert [(issue.line_start, issue.rule, issue.severity) for issue in report.issues] == [
        (line, rule, severity) for line, (rule, severity, _) in enumerate(TOKENS, start=1)
    ]
    assert {issue.category for issue in report.issues} == {"security"}
    assert all("history" in issue.body and "Revoke" in (issue.suggestion or "") for issue in report.issues)
    assert not [token for _, _, token in TOKENS if token in repr(report)]
    assert report.sensitive[APP] == {line: (token,) for line, (_, _, token) in enumerate(TOKENS, start=1)}
    assert {kind for kind, _ in secret_detectors.load_detectors().patterns} <= set(TITLES)


KEYWORD, ENTROPY = "secret-keyword", "high-entropy-string"
PLAIN = ("correcthorse", "P@ssw0rd!", "a-b-c-d", "abc.123", "x%yzabcd", "UPPERCASE", "Tr0ub4dor3", "kjHGfdNoPqRsXy")
NAMED = [
    ('password = "hunter2"', APP, KEYWORD, MEDIUM),
    ('connect(user="me", password="{20}")', APP, KEYWORD, HIGH),
    ("const apiKey = '{20}';", "web/app.js", KEYWORD, HIGH),
    ('{"client_secret": "{20}"}', "config/app.json", KEYWORD, HIGH),
    ("password: {20}  # production", "deploy/values.yaml", KEYWORD, HIGH),
    ("DB_PASSWORD={20}", ".env", KEYWORD, HIGH),
    ("ENV SECRET_KEY={20}", "Dockerfile", KEYWORD, HIGH),
    ('password := "{20}"', "cmd/main.go", KEYWORD, HIGH),
    ('$password = "{20}";', "src/app.php", KEYWORD, HIGH),
    ("password = admin", "app.ini", KEYWORD, MEDIUM),
    *((f'password = "{value}"', APP, KEYWORD, MEDIUM) for value in PLAIN),
    ('password = "a8Kd92LmQ0xZ7"', APP, KEYWORD, HIGH),
    ('auth_token = "{40}"', APP, ENTROPY, MEDIUM),
    ('headers = {"Authorization": "{40}"}', APP, ENTROPY, MEDIUM),
    ("AUTH_TOKEN={40}", ".env", ENTROPY, MEDIUM),
    ("curl -H 'Authorization: Bearer {40}' https://host.internal/", "deploy/run.sh", "bearer-token", HIGH),
    ('URL = "postgres://app:' + '{20}@db.internal/app"', APP, "basic-auth-credentials", HIGH),
]


def test_a_secret_by_its_name_in_a_header_and_in_an_address_is_found_in_every_language(tmp_path: Path) -> None:
    rows = {f"{number}/{row[1]}": row for number, row in enumerate(NAMED)}
    files = {name: row[0].replace("{20}", made_up(20)).replace("{40}", made_up(40)) for name, row in rows.items()}
    assert found(tmp_path, files) == {name: row[2:] for name, row in rows.items()}


def test_what_is_plainly_no_secret_is_not_reported(tmp_path: Path) -> None:
    values = (
        *("changeme", "password", "test_key", "your-token", "xxxxxxxx", "", "abc", "abcdefgh", "MyClientSecret", "foo"),
        *("$HOME", "${X}", "$(cat f)", "{{ x }}", "{x}", "<x>", "%s", "%(x)s", "%X%", "!vault x", "os.environ['X']"),
        *("process.env.X", "get_secret()", "config.secret", "DB_PASSWORD", "/run/secret", "~/x", "two words"),
        *("secrets.token", "row[0]", "self->key", "https://x/"),
    )
    lines = [
        *(f'password = "{value}"' for value in values),
        *('api_key = "your-api-key-here"', 'api_key = "<your-key>"'),
        *('api_key = "xxxxxxxxxxxxxxxx"', 'api_key = "****************"', 'api_key = "test-api-key"'),
        *('secret = "${SECRET}"', 'secret = "{{ secret }}"', 'password_error = "short"'),
        "package==1.0 --hash=sha256:{hex64}",
        *('password = os.environ["PASSWORD"]', 'password = getenv("DB_PASSWORD")', 'PASSWORD_VARIABLE = "DB_PASSWORD"'),
        *('password_file = "/run/secrets/db"', 'secret_name = "tls-certificate-2024"', "rev: {hex40}"),
        *('error = "Password must have 8 characters"', 'client_secret_basic = "client_secret_basic"'),
        *('sha256 = "{hex64}"', 'commit = "{hex40}"', '"integrity": "sha512-{random}=="', 'token_hash = "{hex64}"'),
        *('public_key = "{random}{random}"', 'uuid_token = "123e4567-e89b-12d3-a456-426614174000"'),
        *('letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"', 'data = "{random}{random}"'),
        *('key = "AKIA' + 'IOSFODNN7EXAMPLE"', "url = 'https://user:password@host.internal/'"),
        *("url = 'https://user:{random}@example.com/'", "url = f'https://{{user}}:{{password}}@host/'"),
        *('if "-----BEGIN RSA PRIVATE KEY-----" in text:', "key: convert_number_values_for_function_call_args(value)"),
    ]
    text = "\n".join(lines).replace("{{", "{").replace("}}", "}")
    for name, value in (("random", made_up(40)), ("hex40", made_up(40, HEX)), ("hex64", made_up(64, HEX))):
        text = text.replace(f"{{{name}}}", value)
    report = search(tmp_path, {APP: text + "\n"})
    assert [lines[issue.line_start - 1] for issue in report.issues] == []
    assert report.failed == {}


@pytest.mark.defect("N5")
def test_every_vendors_token_is_found_and_no_look_alike(tmp_path: Path) -> None:
    tokens = {vendor: f'value = "{token}"' for vendor, token in vendor_tokens().items()}
    assert set(found(tmp_path, {f"src/{vendor}.py": text for vendor, text in tokens.items()})) == {
        f"src/{vendor}.py" for vendor in tokens
    }
    alike = [text for text in look_alikes() if "\n" not in text]
    assert found(tmp_path, {f"src/{number}.py": f'value = "{text}"' for number, text in enumerate(alike)}) == {}


@pytest.mark.defect("N5")
def test_words_after_the_sign_of_a_token_are_no_token(tmp_path: Path) -> None:
    words = ("learn-pipeline-with-column-transformer", "thePipelineWithTheColumnTransformer", "THE_WHOLE_COLUMN_SET")
    signs = [sign for form in token_forms() for sign in form.signs if sign not in ("AccountKey=", "whsec_")]
    texts = [f'"{sign}{text}-{text}"' for sign in signs for text in words]
    assert len(texts) > 400
    assert [issue.title for issue in search(tmp_path, {APP: "\n".join((*texts, ""))}).issues] == []


@pytest.mark.defect("N5")
def test_a_public_key_and_the_name_of_a_key_in_a_signature_are_no_secrets(tmp_path: Path) -> None:
    key_id = TOKENS[0][2]
    texts = [
        f"https://bucket.s3.amazonaws.com/a?X-Amz-Credential={key_id}%2F20260101%2Feu-west-1%2Fs3%2Faws4_request",
        f"Credential={key_id}/20260101/eu-west-1/s3/aws4_request",
        f"AccountName=devstoreaccount1;{TOKENS[1][2]};",
    ]
    files = {f"src/{number}.py": f'value = "{text}"' for number, text in enumerate(texts)}
    assert found(tmp_path, files) == {}


PASSWORD = "x7" + "Kq2m9Rt4"
ADDRESSES = [
    ("amqp://guest:guest@localhost", False),
    (f"amqp://app:{PASSWORD}@localhost:5672//", False),
    (f"http://app:{PASSWORD}@127.0.0.1:8080/", False),
    (f"http://app:{PASSWORD}@[::1]/", False),
    (f"https://app:{PASSWORD}@host.invalid/", False),
    (f"https://app:{PASSWORD}@api.example.com/", False),
    ("postgres://postgres:postgres@db/app", False),
    (f"redis://:{PASSWORD}@cache.internal:6379/0", True),
    (f"redis://app:{PASSWORD}@cache.internal:6379/0", True),
    (f"https://app:{PASSWORD}@localhost.attacker.org/", True),
    (f"postgres://app:{PASSWORD}@10.0.0.3/app", True),
    *((f"postgres://app:{PASSWORD}{mark}x@db.internal/app", True) for mark in "!$&*+,;=:%"),
    ("postgres://app:$PASSWORD@db.internal/app", False),
    ("postgres://app:${PASSWORD}@db.internal/app", False),
    ("https://' + user + ':' + password + '@db.internal/app", False),
]


@pytest.mark.defect("N5")
def test_a_password_in_an_address_counts_unless_it_is_for_this_machine(tmp_path: Path) -> None:
    files = {f"src/{number}.py": f'url = "{address}"' for number, (address, _) in enumerate(ADDRESSES)}
    reported = found(tmp_path, files)
    assert [address for number, (address, _) in enumerate(ADDRESSES) if f"src/{number}.py" in reported] == [
        address for address, counts in ADDRESSES if counts
    ]
    assert {rule for rule, _ in reported.values()} == {"basic-auth-credentials"}


def test_in_tests_and_prose_only_certain_forms_and_random_values_count(tmp_path: Path) -> None:
    texts = {"weak": 'password = "hunter2"', "random": f'password = "{made_up(20)}"', "token": f'x = "{TOKEN}"'}
    names = ("tests/{}/test_app.py", "docs/{}.md", "web/{}.spec.js")
    reported = found(tmp_path, {name.format(kind): text for kind, text in texts.items() for name in names})
    assert reported == {
        **{name.format("random"): ("secret-keyword", LOW) for name in names},
        **{name.format("token"): ("github-token", HIGH) for name in names},
    }


def test_a_private_key_is_critical_and_its_whole_body_is_sensitive(tmp_path: Path) -> None:
    body = [made_up(64, ALPHANUMERIC + "+/", seed) for seed in range(5)]
    key = ["-----BEGIN RSA " + "PRIVATE KEY-----", *body, "-----END RSA " + "PRIVATE KEY-----"]
    one_line = json.dumps({"private_key": "\n".join(key)}) + "\n"
    report = search(tmp_path, {APP: "\n".join(["key = '''", *key, "'''", ""]), "account.json": one_line})
    assert [(issue.rule, issue.line_start, issue.severity) for issue in report.issues] == [
        ("private-key", 2, CRITICAL),
        ("private-key", 1, CRITICAL),
    ]
    sensitive = {line: values for line, values in report.sensitive[APP].items() if values}
    assert sensitive == {line: (row,) for line, row in enumerate(body, start=3)}
    assert body[1][2:] in " ".join(report.sensitive["account.json"][1])


def test_only_added_lines_are_searched_and_several_secrets_on_one_are_one_issue_for_the_worst(tmp_path: Path) -> None:
    line = f'{{"password": "{made_up(20)}", "id": "{TOKENS[0][2]}", "token": "{TOKEN}"}}'
    report = search(tmp_path, {"a.json": f"{line}\n" * 3}, added={"a.json": {2}})
    (issue,) = report.issues
    assert (issue.rule, issue.line_start) == ("aws-access-key", 2)
    assert "3 secrets" in issue.body
    assert len(report.sensitive["a.json"][2]) == 3
    assert search(tmp_path, {APP: line}, {APP: ()}) == AnalyserReport()


def test_a_secret_is_found_in_bytes_that_are_not_utf8_and_anywhere_in_a_long_line(tmp_path: Path) -> None:
    distances = (0, 2990, 3980, 9_999, 250_000)
    files = {f"{distance}.js": "x," * (distance // 2) + TOKEN + ",y" * 5000 for distance in distances}
    assert found(tmp_path, files) == dict.fromkeys(files, ("github-token", HIGH))
    report = search(tmp_path, {"a.txt": b"\xff\xfe caf\xe9 = '" + TOKEN.encode() + b"'\r\n"})
    assert [issue.rule for issue in report.issues] == ["github-token"]


@pytest.mark.parametrize("trusted", [True, False])
def test_an_allowlist_comment_above_silences_only_in_a_trusted_change(tmp_path: Path, trusted: bool) -> None:
    text = f'# pragma: allowlist nextline secret\npassword = "{made_up(20)}"\n'
    (issue,) = search(tmp_path, {APP: text}, trusted=trusted).issues
    assert issue.silenced_by == ("# pragma: allowlist nextline secret" if trusted else "")


def test_a_silenced_secret_is_sensitive_and_in_no_issue(tmp_path: Path) -> None:
    value = made_up(20)
    report = search(tmp_path, {APP: f'password = "{value}"  # pragma: allowlist secret {value}\n'}, trusted=True)
    (issue,) = report.issues
    assert issue.silenced_by == "# pragma: allowlist secret"
    assert value not in repr(issue)
    assert value in report.sensitive[APP][1]


def test_a_file_that_lost_lines_or_vanished_is_not_clean(tmp_path: Path) -> None:
    report = search(tmp_path, {APP: f'x = "{TOKEN}"\n'}, added={APP: {1, 7}})
    gone = search(tmp_path, {}, files=("gone",), added_lines={"gone": frozenset({1})})
    assert [issue.line_start for issue in report.issues] == [1]
    assert "fewer lines" in report.failed[APP]
    assert gone.failed == {"gone": "cannot be read: No such file or directory"}


def test_a_hostile_line_costs_its_file_and_not_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_detectors, "LINE_SECONDS", 0.2)  # the real one would make this test wait for long
    line = f'x = "{TOKEN}"\n'
    report = search(tmp_path, {"hostile.py": "password" * 4000 + f"\n{line}", "other.py": line})
    assert [(issue.file, issue.line_start) for issue in report.issues] == [("hostile.py", 2), ("other.py", 1)]
    assert report.failed == {"hostile.py": "line 1 took too long to search for secrets"}


def test_when_the_time_runs_out_the_rest_is_named() -> None:
    lines = [(number, f'x = "{TOKEN}"') for number in (1, 2)]
    over = iter([False, False, False, True])
    hits, failed = secret_detectors.search({"a.py": lines, "b.py": lines}, lambda: next(over))
    assert [(hit.file, hit.line) for hit in hits] == [("a.py", 1), ("a.py", 2), ("b.py", 1)]
    assert failed == {"b.py": "the time ran out before all its added lines were searched for secrets"}


@pytest.mark.program
def test_the_search_opens_no_socket_starts_no_program_and_loads_no_http_client() -> None:
    script = """
import sys
from codeloupe.analysers import secret_detectors
events = []
sys.addaudithook(lambda event, _: events.append(event))
lines = [(1, 'x = "AK' + 'IAQ3EGRIJ7NK2D5XWZ"'), (2, 'y = "sk_' + 'live_4eC39HqLyjWDarjtT1zdp7dc"')]
hits, failed = secret_detectors.search({"a.py": lines}, lambda: False)
forbidden = ("socket.", "subprocess.", "os.exec", "os.posix_spawn", "os.system", "os.fork")
print([hit.line for hit in hits], failed, [event for event in events if event.startswith(forbidden)])
print(sorted({"requests", "urllib3", "http.client", "ssl"} & set(sys.modules)))
"""
    completed = asyncio.run(programs.execute(sys.executable, "-I", "-c", script, seconds=50.0))
    assert completed.stdout.decode().splitlines() == ["[1, 2] {} []", "[]"]


def test_a_search_that_is_cancelled_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started, ended = threading.Event(), threading.Event()

    def endless(_files: object, is_over: Callable[[], bool]) -> None:
        started.set()
        while not is_over():
            time.sleep(0.01)
        ended.set()

    async def cancelled() -> None:
        written = target(tmp_path, {"a.txt": "x\n"}, timeout_seconds=10_000.0)
        running = asyncio.ensure_future(SecretsAnalyser().analyse(written))
        await asyncio.to_thread(started.wait)
        running.cancel()
        await running

    monkeypatch.setattr(secret_detectors, "search", endless)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    assert ended.is_set()


def test_loading_the_detectors_leaves_no_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("requests", "detect_secrets")]:
        monkeypatch.delitem(sys.modules, name)
    secret_detectors.load_detectors.cache_clear()
    secret_detectors.load_detectors()
    assert not {"requests", "detect_secrets"} & set(sys.modules)


def test_a_mask_keeps_at_most_four_characters_and_a_quarter() -> None:
    assert mask_secrets("x = 'abcdefghijklmnopqrst'", ["abcdefghijklmnopqrst"]) == "x = 'abcd********'"
    assert mask_secrets("x = 'abcdefgh'", ["abcdefgh", "abcd"]) == "x = 'ab********'"
    assert mask_secrets("x = 'abc'", ["abc", ""]) == "x = '********'"
