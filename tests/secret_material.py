"""Private keys and vendors' tokens that nobody issued, drawn anew from a fixed seed: none stands in any file."""

import base64
import json
import random
import re
import string
import textwrap
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

_DASHES = "-" * 5
_FORMS = tomllib.loads(Path(__file__).with_name("secret_forms.toml").read_text(encoding="utf-8"))
_LETTERS = {
    "x": "0123456789abcdef",
    "d": string.digits,
    "l": string.ascii_lowercase + string.digits,
    "U": string.ascii_uppercase + string.digits,
    "a": string.ascii_letters + string.digits,
    "+": string.ascii_letters + string.digits + "+/",
}

Rows = Sequence[str]


def private_keys(seed: int = 7) -> dict[str, list[str]]:
    """Keys by kind, as the rows of their files."""
    drawn = random.Random(seed)

    def body(size: int, width: int) -> list[str]:
        return textwrap.wrap(base64.b64encode(drawn.randbytes(size)).decode(), width)

    def pem(kind: str, size: int, width: int = 64, headers: Rows = ()) -> list[str]:
        opening, closing = (f"{_DASHES}{word} {kind}PRIVATE KEY{_DASHES}" for word in ("BEGIN", "END"))
        return [opening, *headers, *body(size, width), closing]

    pgp = f"PGP PRIVATE KEY BLOCK{_DASHES}"
    proc = ("Proc-Type: 4,ENCRYPTED", "DEK-Info: AES-256-CBC,0123456789ABCDEF", "")
    return {
        "RSA 2048": pem("RSA ", 1190),
        "RSA 4096": pem("RSA ", 2350),
        "PKCS 8": pem("", 1217),
        "encrypted": pem("RSA ", 1190, headers=proc),
        "elliptic curve": pem("EC ", 121),
        "Ed25519": pem("", 48),
        "OpenSSH": pem("OPENSSH ", 1800, 70),
        "PGP": [f"{_DASHES}BEGIN {pgp}", "Version: 2", "", *body(2000, 64), "=aB3d", f"{_DASHES}END {pgp}"],
        "PuTTY": [
            *("PuTTY-User-Key-File-3: ssh-rsa", "Encryption: none", "Comment: imported", "Public-Lines: 6"),
            *(*body(270, 64), "Private-Lines: 14", *body(850, 64), "Private-MAC: " + "ab12" * 16),
        ],
        "Java key store": body(2200, 76),
    }


def body_rows(key: Rows) -> list[str]:
    """The rows of a key that must not get out; shorter ones could be any word."""
    return [
        row
        for row in key
        if len(row) >= 20 and not row.startswith((_DASHES, "PuTTY", "Private-MAC", "DEK-Info", "Proc-"))
    ]


def _numbered(rows: Rows) -> str:
    """As our own diff shows added lines: the number of every tenth line on a line of its own."""
    return "\n".join(
        f":{number}\n+{row}" if number % 10 == 0 else f"+{row}" for number, row in enumerate(rows, start=1)
    )


LAYOUTS: dict[str, Callable[[Rows], str]] = {
    "a file": "\n".join,
    "a file with CR LF": "\r\n".join,
    "our own diff": _numbered,
    "removed lines": lambda rows: "\n".join(f"-{row}" for row in rows),
    "indented": lambda rows: "key: |\n" + "\n".join(f"  {row}" for row in rows),
    "a listing": lambda rows: "\n".join(f"{number:>4} | {row}" for number, row in enumerate(rows, start=1)),
    "strings": lambda rows: "KEY = (\n" + "\n".join(f'    "{row}\\n"' for row in rows) + "\n)",
    "byte strings": lambda rows: "\n".join(f'    b"{row}\\n"' for row in rows),
    "joined strings": lambda rows: " +\n".join(f'      "{row}\\n"' for row in rows),
    "one string": lambda rows: 'KEY = "' + "\\n".join(rows) + '"',
    "one string in JSON": lambda rows: '"' + "\\\\n".join(rows) + '"',
    "a text in quotes": lambda rows: 'KEY = """' + "\n".join(rows) + '"""',
    "comments": lambda rows: "\n".join(f"# {row}" for row in rows),
    "one line": " ".join,
    "XML": "&#xA;".join,
    "JSON with escaped slashes": lambda rows: json.dumps({"key": "\n".join(rows)}).replace("/", "\\/"),
    "commands": lambda rows: "\n".join(f"echo '{row}' >> deploy.key" for row in rows),
    "lines with their places": lambda rows: "\n".join(
        f"deploy/site.key:{number}:{row}" for number, row in enumerate(rows, start=1)
    ),
    "a log of lines": lambda rows: "\n".join(
        f"a1b2c3d4 (A U Thor 2026-01-01 {number:>3}) {row}" for number, row in enumerate(rows, start=1)
    ),
    "without its opening": lambda rows: "\n".join(f"+{row}" for row in rows[3:]),
    "some lines of it": lambda rows: "\n".join(f" {row}" for row in rows[5:9]),
}


def vendor_tokens(seed: int = 11) -> dict[str, str]:
    """A token of each vendor, in the form that the vendor documents."""
    drawn = random.Random(seed)
    return {vendor: _made(form, drawn) for vendor, form in _FORMS["tokens"].items()}


def look_alikes(seed: int = 13) -> list[str]:
    """What only looks like a secret: digests, names, paths, words, identifiers, encoded text."""
    drawn = random.Random(seed)
    return [_made(form, drawn).replace("\\n", "\n") for form in _FORMS["look_alikes"].splitlines()]


def _made(form: str, drawn: random.Random) -> str:
    def piece(found: re.Match[str]) -> str:
        letters, count = found[1].removesuffix(":"), int(found[2])
        if letters == "b64":
            return base64.b64encode(drawn.randbytes(count)).decode()
        return "".join(drawn.choices(_LETTERS.get(letters, letters), k=count))

    return re.sub(r"<([xlUad+]|\w+:)(\d+)>", piece, form.replace("|", ""))
