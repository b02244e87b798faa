"""Private keys and vendors' tokens that nobody issued, drawn anew from a fixed seed: none stands in any file."""

from __future__ import annotations

import base64
import json
import random
import string
import textwrap
from collections.abc import Callable, Sequence

_DASHES = "-" * 5
_HEX = "0123456789abcdef"
_LOWER = string.ascii_lowercase + string.digits
_UPPER = string.ascii_uppercase + string.digits
_ALL = string.ascii_letters + string.digits

Rows = Sequence[str]


def private_keys(seed: int = 7) -> dict[str, list[str]]:
    """Keys by kind, as the rows of their files."""
    drawn = random.Random(seed)

    def body(size: int, width: int) -> list[str]:
        return textwrap.wrap(base64.b64encode(drawn.randbytes(size)).decode(), width)

    def pem(kind: str, size: int, width: int = 64, headers: Rows = ()) -> list[str]:
        opening, closing = (f"{_DASHES}{word} {kind}PRIVATE KEY{_DASHES}" for word in ("BEGIN", "END"))
        return [opening, *headers, *body(size, width), closing]

    return {
        "RSA 2048": pem("RSA ", 1190),
        "RSA 4096": pem("RSA ", 2350),
        "PKCS 8": pem("", 1217),
        "encrypted": pem(
            "RSA ", 1190, headers=("Proc-Type: 4,ENCRYPTED", "DEK-Info: AES-256-CBC,0123456789ABCDEF", "")
        ),
        "elliptic curve": pem("EC ", 121),
        "Ed25519": pem("", 48),
        "OpenSSH": pem("OPENSSH ", 1800, 70),
        "PGP": [
            f"{_DASHES}BEGIN PGP PRIVATE KEY BLOCK{_DASHES}",
            "Version: 2",
            "",
            *body(2000, 64),
            "=aB3d",
            f"{_DASHES}END PGP PRIVATE KEY BLOCK{_DASHES}",
        ],
        "PuTTY": [
            "PuTTY-User-Key-File-3: ssh-rsa",
            "Encryption: none",
            "Comment: imported",
            "Public-Lines: 6",
            *body(270, 64),
            "Private-Lines: 14",
            *body(850, 64),
            "Private-MAC: " + "ab12" * 16,
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

    def some(letters: str, count: int) -> str:
        return "".join(drawn.choices(letters, k=count))

    def uuid() -> str:
        return "-".join(some(_HEX, count) for count in (8, 4, 4, 4, 12))

    def aws_secret() -> str:
        return some(_ALL + "+/", 40)

    return {
        "AWS access key": "AK" + "IA" + some(_UPPER, 16),
        "AWS secret key": aws_secret(),
        "Alibaba Cloud": "LT" + "AI" + some(_ALL, 20),
        "Azure client secret": some(_ALL, 3) + "8Q" + "~" + some(_ALL, 34),
        "Azure storage": "Account" + "Key=" + some(_ALL + "+/", 86) + "==",
        "Google API key": "AI" + "za" + some(_ALL, 35),
        "Google OAuth secret": "GOC" + "SPX-" + some(_ALL, 28),
        "Google access token": "ya" + "29." + some(_ALL, 60),
        "DigitalOcean": "dop" + "_v1_" + some(_HEX, 64),
        "Databricks": "da" + "pi" + some(_HEX, 32),
        "Heroku": "HR" + "KU-" + uuid(),
        "Fly.io": "fo" + "1_" + some(_ALL, 43),
        "Netlify": "nf" + "p_" + some(_ALL, 36),
        "Cloudflare origin": "v1" + ".0-" + some(_HEX, 24) + "-" + some(_HEX, 146),
        "PlanetScale": "pscale" + "_tkn_" + some(_ALL, 43),
        "Supabase": "sb" + "p_" + some(_HEX, 40),
        "Tailscale": "ts" + "key-auth-" + some(_ALL, 12) + "-" + some(_ALL, 32),
        "Vault": "hv" + "s." + some(_ALL, 90),
        "Terraform": some(_ALL, 14) + ".atlas" + "v1." + some(_ALL, 67),
        "Doppler": "dp" + ".pt." + some(_ALL, 43),
        "Pulumi": "pu" + "l-" + some(_HEX, 40),
        "GitHub": "gh" + "p_" + some(_ALL, 36),
        "GitHub, fine-grained": "github" + "_pat_" + some(_ALL, 22) + "_" + some(_ALL, 59),
        "GitLab": "gl" + "pat-" + some(_ALL, 20),
        "GitLab runner": "gl" + "rt-" + some(_ALL, 20),
        "Bitbucket": "AT" + "BB" + some(_ALL, 32),
        "Atlassian": "AT" + "ATT3" + some(_ALL, 180) + "=" + some(_UPPER, 8),
        "npm": "np" + "m_" + some(_ALL, 36),
        "Python index": "py" + "pi-AgEIcHlwaS5vcmc" + some(_ALL, 120),
        "RubyGems": "ruby" + "gems_" + some(_HEX, 48),
        "Cargo": "ci" + "o" + some(_ALL, 32),
        "NuGet": "oy" + "2" + some(_LOWER, 43),
        "Docker Hub": "dckr" + "_pat_" + some(_ALL, 27),
        "Artifactory": "AK" + "Cp" + some(_ALL, 69),
        "Buildkite": "bk" + "ua_" + some(_HEX, 40),
        "CircleCI": "CCI" + "PAT_" + some(_ALL, 22) + "_" + some(_HEX, 40),
        "SonarQube": "sq" + "p_" + some(_HEX, 40),
        "Postman": "PM" + "AK-" + some(_HEX, 24) + "-" + some(_HEX, 34),
        "Anthropic": "sk" + "-ant-api03-" + some(_ALL, 93) + "AA",
        "OpenAI": "sk" + "-proj-" + some(_ALL, 120),
        "OpenRouter": "sk" + "-or-v1-" + some(_HEX, 64),
        "Hugging Face": "h" + "f_" + some(_ALL, 34),
        "Groq": "gs" + "k_" + some(_ALL, 52),
        "xAI": "xa" + "i-" + some(_ALL, 80),
        "Perplexity": "ppl" + "x-" + some(_ALL, 48),
        "Replicate": "r" + "8_" + some(_ALL, 37),
        "NVIDIA": "nv" + "api-" + some(_ALL, 64),
        "Pinecone": "pc" + "sk_" + some(_ALL, 5) + "_" + some(_ALL, 63),
        "LangSmith": "ls" + "v2_pt_" + some(_HEX, 32) + "_" + some(_HEX, 10),
        "Stripe": "sk" + "_live_" + some(_ALL, 24),
        "Stripe webhook": "wh" + "sec_" + some(_ALL, 32),
        "Square": "sq0" + "csp-" + some(_ALL, 43),
        "Shopify": "shp" + "at_" + some(_HEX, 32),
        "Plaid": "access-" + "production-" + uuid(),
        "SendGrid": "S" + "G." + some(_ALL, 22) + "." + some(_ALL, 43),
        "Brevo": "xkey" + "sib-" + some(_HEX, 64) + "-" + some(_ALL, 16),
        "Mailgun": "ke" + "y-" + some(_HEX, 32),
        "Mailchimp": some(_HEX, 32) + "-u" + "s12",
        "Twilio": "S" + "K" + some(_HEX, 32),
        "Slack": "xo" + "xb-" + some(string.digits, 12) + "-" + some(string.digits, 12) + "-" + some(_ALL, 24),
        "Slack webhook": "https://hooks.slack"
        ".com/services/T" + some(_UPPER, 8) + "/B" + some(_UPPER, 8) + "/" + some(_ALL, 24),
        "Discord": "M" + some(_ALL, 23) + "." + some(_ALL, 6) + "." + some(_ALL, 27),
        "Telegram": some("123456789", 10) + ":A" + "A" + some(_ALL, 33),
        "Notion": "nt" + "n_" + some(_ALL, 46),
        "Linear": "lin" + "_api_" + some(_ALL, 40),
        "Figma": "fi" + "gd_" + some(_ALL, 40),
        "Airtable": "pa" + "t" + some(_ALL, 14) + "." + some(_HEX, 64),
        "Grafana": "gl" + "sa_" + some(_ALL, 32) + "_" + some(_HEX, 8),
        "Sentry": "snt" + "ryu_" + some(_HEX, 64),
        "New Relic": "NR" + "AK-" + some(_UPPER, 27),
        "Dynatrace": "dt0" + "c01." + some(_UPPER, 24) + "." + some(_UPPER, 64),
        "LaunchDarkly": "sd" + "k-" + uuid(),
        "age": "AGE-SECRET" + "-KEY-1" + some("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58),
    }


def look_alikes(seed: int = 13) -> list[str]:
    """What only looks like a secret: digests, names, paths, words, identifiers, encoded text."""
    drawn = random.Random(seed)

    def some(letters: str, count: int) -> str:
        return "".join(drawn.choices(letters, k=count))

    return [
        some(_HEX, 32),
        some(_HEX, 40),
        some(_HEX, 64),
        "-".join(some(_HEX, count) for count in (8, 4, 4, 4, 12)),
        "sha512-" + base64.b64encode(drawn.randbytes(64)).decode(),
        "sha256:" + some(_HEX, 64),
        "h1:" + base64.b64encode(drawn.randbytes(32)).decode(),
        "src/main/java/com/example/App2/Main1.java",
        "testShouldReturn404WhenTheUserIsNotFound1",
        "HttpURLConnectionFactoryBeanImplV2Adapter",
        base64.b64encode(b"the quick brown fox jumps over").decode(),
        "task-management-system-configuration-file",
        "risk-assessment-of-the-whole-change-today",
        "key-value-store-of-the-first-and-last-row",
        "live_reload_of_the_whole_page_and_more_of",
        "pattern.matches.something.else.altogether",
        "api-gateway-configuration-of-the-cluster1",
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
        "2026-11-16T17:13:43.123456+00:00",
        "eyJust a word. And another. And more.",
        "https://host.invalid:8080/@scope/name",
        "git@host.invalid:owner/name.git",
        "0x" + some(_HEX, 40),
        "M" * 24 + "." + "a" * 6 + "." + "b" * 27,
        "sdk-and-api-of-the-mobile-application-kit",
        "data:image/png;base64,iVBORw0KGgo=",
        "re_compile_the_pattern_of_the_first_row",
        "SKU" + some(string.digits, 31),
        "fc-cache-of-the-fonts-of-the-whole-system",
        "\n".join("- sha384-" + base64.b64encode(drawn.randbytes(48)).decode() for _ in range(4)),
        "projects/" + some(string.digits, 12) + "/locations/eu/Jobs/" + some(string.digits, 21),
        "sk-ecdsa-sha2-nistp256",
        "2024-11-14-pypi-supports-digital-attestations",
        "glc_text_of_the_first_and_the_second_row_and_of_the_third",
    ]
