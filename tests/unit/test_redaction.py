"""Redaction: every known form is masked, nothing else is, in linear time. All secrets here are made up of pieces."""

import json
import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codeloupe.system.redaction import redact
from tests.rows import each

LETTERS = "aB3dE6gH9jK2mN5pQ8rS"
DASHES = "-" * 5
BASE64_LINE = "MIIEow" + "aB3+/" * 11 + "Zz9"
TOKENS = {
    "OpenAI": "sk" + "-proj-" + LETTERS,
    "Anthropic": "sk" + "-ant-api03-" + LETTERS,
    "Stripe": "sk" + "_live_" + LETTERS,
    "webhook": "whsec" + "_" + LETTERS,
    "GitHub": "gh" + "p_" + LETTERS * 2,
    "GitHub, fine-grained": "github" + "_pat_" + LETTERS * 2,
    "GitLab": "gl" + "pat-" + LETTERS,
    "Slack": "xox" + "b-" + "1234567890-abc",
    "Slack application": "xapp" + "-1-" + LETTERS,
    "AWS": "AK" + "IA" + "ABCDEFGHIJKLMNOP",
    "Google": "AI" + "za" + LETTERS * 2,
    "Google, short-lived": "ya" + "29." + LETTERS * 2,
    "Azure": "Account" + "Key=" + LETTERS * 3 + "==",
    "Hugging Face": "h" + "f_" + LETTERS * 2,
    "npm": "np" + "m_" + LETTERS * 2,
    "Python index": "py" + "pi-" + "AgEIcHlwaS5vcmc" + LETTERS * 3,
    "SendGrid": "S" + "G." + LETTERS + "." + LETTERS,
    "JSON web token": "ey" + "J" + LETTERS + "." + LETTERS + "." + LETTERS,
}


@each("name", TOKENS)
@pytest.mark.requirement("R16")
def test_every_known_form_is_masked_and_nothing_around_it(name: str) -> None:
    for frame in ("{}", "key={}", "a {} b", '"{}",', "line\\n{}", "({})"):
        assert redact(frame.format(TOKENS[name])) == frame.format("[redacted]")


@each(
    ("before", "secret", "after"),
    [
        ("https://", "ada:pass" + "word", "@host.invalid/path"),
        ("redis://", ":pass" + "word", "@host.invalid:6379"),
        ("https://", "x-access-token:" + LETTERS * 20, "@host.invalid"),
        ("https://", LETTERS * 2, "@host.invalid/owner/name.git"),
    ],
)
def test_credentials_in_an_address_are_masked_and_the_address_stays(before: str, secret: str, after: str) -> None:
    assert redact(before + secret + after) == f"{before}[redacted]{after}"


@each(
    ("before", "after"),
    [
        ("Authori" + "zation: ", ""),
        ("{'authori" + "zation': '", "'}"),
        ('{"authori' + 'zation": "', '"}'),
        ('{\\"Authori' + 'zation\\": \\"', '\\"}'),
    ],
)
def test_the_credential_of_a_header_is_masked_and_its_name_stays(before: str, after: str) -> None:
    for kind in ("Bearer ", "Basic "):
        assert redact(f"{before}{kind}{LETTERS}{after}") == f"{before}[redacted]{after}"


def test_a_private_key_that_is_written_as_several_strings_is_masked_in_each() -> None:
    rows = [f"{DASHES}BEGIN PRIVATE KEY{DASHES}", BASE64_LINE, "c2hvcnQ=", f"{DASHES}END PRIVATE KEY{DASHES}"]
    for joint in ('", "', '"\n+    "', '\\n" \\\n  "'):
        masked = redact(f'key = ["{joint.join(rows)}"]')
        assert masked.replace("\\n", "") == f'key = ["{joint.join(["[redacted]"] * 4)}"]'.replace("\\n", "")


def test_a_private_key_is_masked_with_its_short_last_row_and_its_start_alone_hides_nothing_that_follows() -> None:
    rest = "\n\n  a.py:3  high  Injection\n  b.py:9  critical  Path traversal\n\nFAIL: 2 findings"
    opening = f"{DASHES}BEGIN PRIVATE KEY{DASHES}"
    closing = f"{DASHES}END PRIVATE KEY{DASHES}"
    rows = [opening, BASE64_LINE, BASE64_LINE, "c2hvcnQ=", closing]
    for key in ("\n".join(rows), "\n".join(rows[:-2])):
        assert redact(f"before\n{key}\nand after.") == "before\n[redacted]\nand after."
    assert redact(opening + rest) == "[redacted]" + rest
    assert redact(opening + rest + closing) == "[redacted]" + rest + closing


@each(
    "text",
    [
        "task-management-system-configuration",
        "risk-assessment-of-the-whole-change",
        "a public key: -----BEGIN PUBLIC KEY-----",
        "https://host.invalid:8080/@scope/name",
        "git@host.invalid:owner/name.git",
        "ssh://git@host.invalid/owner/name.git",
        "eyJust a word. And another. And more.",
        "authorization: required for this page",
        "3f2a9c1be7d84f60a5b19c2e8d7f4a6b3c5e1d90",
    ],
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert redact(text) == text


def test_credentials_in_our_environment_are_masked_and_other_variables_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VENDOR_API_KEY", "GITHUB_TOKEN", "PGPASSWORD", "MYSQL_PWD", "client_secret", "NPM_CONFIG__AUTH"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "correct horse")
            assert redact("it said correct horse!") == "it said [redacted]!", name
        assert redact("correct horse") == "correct horse"
    for name in ("GIT_AUTHOR_NAME", "KEYBOARD_LAYOUT", "OLDPWD", "TOKENIZERS_PARALLELISM"):
        monkeypatch.setenv(name, "correct horse")
    monkeypatch.setenv("SOME_KEY", "true")
    assert redact("this is true: correct horse") == "this is true: correct horse"
    # One that begins with another leaves no tail, one in an address has another form, and one may be no UTF-8.
    for name, value in zip(
        "ABCD", ("battery-staple", "battery-staple-more", "it/is+so+é", "a \udcff horse"), strict=True
    ):
        monkeypatch.setenv(f"{name}_TOKEN", value)
    assert (
        redact("battery-staple-more ?p=it%2Fis%2Bso%2B%C3%A9 a \udcff horse") == "[redacted] ?p=[redacted] [redacted]"
    )
    monkeypatch.setattr(os, "environ", {"SOME_TOKEN": "correct horse"})
    assert redact("correct horse") == "[redacted]"


# What a pattern begins, goes on or ends with, and what JSON escapes.
HOSTILE = (
    *TOKENS.values(),
    *("https://", "postgres://", "a:b", ":", "@", "@host", "/", "?password=", " ", "\n", "\t", '"', "\\", "é"),
    *("authori" + "zation", "Bearer ", "Basic", "d", "k", ",", "{", "}", "[", "]", "null", LETTERS, LETTERS * 3),
    *(f"{DASHES}BEGIN PRIVATE KEY{DASHES}", f"{DASHES}END PRIVATE KEY{DASHES}", BASE64_LINE, "c2hvcnQ=", "Hash: x"),
    *("PrivateKey = ", "<D>", "</D>", "0x30, 0x02, 0x01, 0x00,", "0x11, " * 20, "n" + "fp_" + LETTERS * 2, "<br>"),
    *("aB3/" * 10, "f00d" * 8 + "-us1", "u00e9" + "AB" * 12 + "7Q~" + LETTERS * 2, "30820401020100" + "02" * 60),
)
STRINGS = st.lists(st.sampled_from(HOSTILE), max_size=6).map("".join)
SCALARS = STRINGS | st.integers(-9, 999) | st.booleans() | st.none()
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["findings", "title", "quote", "d", "k", "line", "authorization"]), inner)
    ),
    max_leaves=12,
)


def shape(value: object) -> object:
    """Return a value with each string replaced by its kind."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value]
    return "text" if isinstance(value, str) else value


@given(document=DOCUMENTS, indent=st.sampled_from([None, 0, 2]), is_ascii=st.booleans(), is_compact=st.booleans())
@settings(max_examples=1500)
def test_a_masked_json_document_keeps_its_structure_its_keys_and_its_items(
    document: object, indent: int | None, is_ascii: bool, is_compact: bool
) -> None:
    separators = (",", ":") if is_compact else None
    text = json.dumps(document, indent=indent, ensure_ascii=is_ascii, separators=separators)
    assert shape(json.loads(redact(text))) == shape(document)


def test_an_address_in_one_string_and_a_mention_in_another_hide_nothing_between_them() -> None:
    for scheme in ("http://", "https://a:", "postgres://", "https://token"):
        items = [{"quote": f'x("{scheme}")'}, {"quote": scheme}, {"quote": "eval(u)"}, {"quote": "@app.cli"}]
        for separators in ((",", ":"), (", ", ": ")):
            text = json.dumps({"findings": items}, separators=separators)
            assert redact(text) == text


@given(st.text())
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    assert redact(redact(text)) == redact(text)


@each(
    "piece",
    [
        *("eyJ", "eyJ" + "a" * 20 + ".", "S" + "G.", "sk" + "-", f"{DASHES}BEGIN ", "PRIVATE KEY "),
        *("://a:", "://", "a:b@", "-", " ", "A"),
        *(f"{DASHES}BEGIN PRIVATE KEY{DASHES}\n", f"{DASHES}END PRIVATE KEY{DASHES}", "authorization: ", "1 + \\n"),
    ],
)
@each("start", ["", f"{DASHES}BEGIN PRIVATE KEY{DASHES}", "https://"])
def test_no_hostile_text_keeps_a_secret_behind_it_from_being_found(start: str, piece: str) -> None:
    # Work that grows with the square of this size would not end within the time limit of a test.
    text = start + piece * (100_000 // len(piece))
    assert TOKENS["GitHub"] not in redact(f"{text} {TOKENS['GitHub']}")


@pytest.mark.defect("X2")
def test_a_private_key_in_bytes_is_masked_and_other_bytes_are_not() -> None:
    raw = bytes.fromhex("308204a40201000282010100") + random.Random(5).randbytes(300)
    rows = [", ".join(f"0x{byte:02x}" for byte in raw[start : start + 12]) + "," for start in range(0, len(raw), 12)]
    for margin in ("  ", "+  ", ":10\n+  "):
        masked = redact("key[] = {\n" + "\n".join(margin + row for row in rows) + "\n};\nafter")
        assert [row for row in rows if row in masked] == []
        assert masked.startswith("key[] = {\n")
        assert masked.endswith("\n};\nafter")
    assert raw.hex() not in redact(f"key = '{raw.hex()}'")
    public = "{0x30, 0x82, 0x04, 0xa4, 0x30, 0x82, 0x02, 0x01, " + "0x05, " * 40 + "}"
    assert redact(public) == public
