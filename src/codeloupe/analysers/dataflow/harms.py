"""The harms that the data-flow analysis reports, and the text of each finding."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Harm(StrEnum):
    """A harm that outside data can do at a place in the code. The value is the rule's name."""

    SQL = "py-sql-injection"
    SHELL = "py-command-injection"
    CODE = "py-code-injection"
    PATH = "py-path-traversal"
    XPATH = "py-xpath-injection"
    LDAP = "py-ldap-injection"
    TEMPLATE = "py-template-injection"
    REDIRECT = "py-open-redirect"
    OBJECT = "py-unsafe-deserialization"
    HTML = "py-cross-site-scripting"
    FETCH = "py-request-forgery"
    XML = "py-xml-external-entity"
    HEADER = "py-header-injection"
    RANDOM = "py-guessable-secret"
    COOKIE = "py-insecure-cookie"
    TLS = "py-tls-not-verified"
    ASSERT = "py-assert-as-guard"
    TIMING = "py-signature-comparison"

    # A harm is looked up in sets for each value. The hash of a plain string is cached, that of an enum member is not.
    __hash__ = str.__hash__


Harms = frozenset[Harm]
NO_HARMS: Harms = frozenset()
# The harms that text can do.
ALL_TEXT: Harms = frozenset(Harm) - {Harm.RANDOM, Harm.COOKIE, Harm.TLS, Harm.ASSERT, Harm.TIMING}
# Harms at calls that ruff reports as well, with any arguments.
JUDGED_CALLS: Harms = frozenset({Harm.SQL, Harm.SHELL, Harm.CODE, Harm.OBJECT})


class Meaning(NamedTuple):
    """The severity and the texts of a harm's finding."""

    severity: str
    title: str
    why: str
    fix: str


MEANINGS: dict[Harm, Meaning] = {
    Harm.SQL: Meaning(
        severity="high",
        title="SQL injection: the query contains untrusted input",
        why="An attacker can read, change or delete other data.",
        fix="Pass the value as a query parameter; take the names of columns and tables from a fixed list.",
    ),
    Harm.SHELL: Meaning(
        severity="high",
        title="Command injection: the command contains untrusted input",
        why="An attacker can run commands with the permissions of this process.",
        fix="Run a fixed program with a list of arguments, without a shell.",
    ),
    Harm.CODE: Meaning(
        severity="high",
        title="Code injection: untrusted input is executed as code",
        why="An attacker can run any code in this process.",
        fix="Use a table of functions, or read data with `ast.literal_eval` or JSON.",
    ),
    Harm.PATH: Meaning(
        severity="high",
        title="Path traversal: untrusted input chooses the file",
        why=(
            "`../` or an absolute path escapes the intended directory and reaches any file that this process can "
            "access."
        ),
        fix="Use only the base name, or resolve the path and check that it is inside the directory.",
    ),
    Harm.XPATH: Meaning(
        severity="high",
        title="XPath injection: the query contains untrusted input",
        why="An attacker can select other nodes and bypass a check that the query makes.",
        fix="Pass the value as a variable of the query (`$name`), or compare it in Python.",
    ),
    Harm.LDAP: Meaning(
        severity="high",
        title="LDAP injection: the filter contains untrusted input",
        why="An attacker can widen the filter, read other entries or bypass a login check.",
        fix="Escape the value with `ldap.filter.escape_filter_chars`.",
    ),
    Harm.TEMPLATE: Meaning(
        severity="high",
        title="Template injection: the template contains untrusted input",
        why="Template expressions in the input run on the server and can execute commands.",
        fix="Use a fixed template, and pass the value as a variable.",
    ),
    Harm.REDIRECT: Meaning(
        severity="medium",
        title="Open redirect: the target comes from the request",
        why="A link to this site can redirect visitors to any other site, which makes phishing pages look trustworthy.",
        fix="Allow only paths of this site (`url_has_allowed_host_and_scheme` in Django), or choose from a fixed list.",
    ),
    Harm.OBJECT: Meaning(
        severity="high",
        title="Unsafe deserialisation of untrusted data",
        why="The data can name any function to call while it is loaded, so an attacker can run code.",
        fix="Use JSON, or verify a signature before loading the data.",
    ),
    Harm.HTML: Meaning(
        severity="high",
        title="Cross-site scripting: untrusted input is inserted without escaping",
        why="A script in the input runs in the visitor's browser, in their session.",
        fix="Escape it with `html.escape` or `markupsafe.escape`, or render a template that escapes.",
    ),
    Harm.FETCH: Meaning(
        severity="high",
        title="Server-side request forgery: the URL comes from the request",
        why="An attacker can reach internal services and cloud metadata endpoints through this server.",
        fix="Send requests only to a fixed host, or check the host against a list first.",
    ),
    Harm.XML: Meaning(
        severity="high",
        title="XML external entities (XXE) are enabled for untrusted XML",
        why="An entity can name files and URLs, which the parser then reads.",
        fix="Disable external entities, or use the `defusedxml` package.",
    ),
    Harm.HEADER: Meaning(
        severity="medium",
        title="Header injection: a response header contains untrusted input",
        why="A line break in the input starts a new header or response that the attacker controls.",
        fix="Reject control characters, or choose from a fixed list.",
    ),
    Harm.RANDOM: Meaning(
        severity="medium",
        title="A secret is generated with a predictable random generator",
        why="The output of the `random` module can be predicted from earlier values, so the secret can be guessed.",
        fix="Use the `secrets` module.",
    ),
    Harm.COOKIE: Meaning(
        severity="low",
        title="The cookie is also sent over unencrypted connections",
        why="An attacker on the network can read the cookie and take over the session.",
        fix="Pass `secure=True` (and `httponly=True`).",
    ),
    Harm.TLS: Meaning(
        severity="medium",
        title="TLS certificate verification is disabled",
        why="An attacker on the network can read and change the traffic (man-in-the-middle attack).",
        fix="Keep verification enabled, and add the missing certificate to the trusted ones.",
    ),
    Harm.ASSERT: Meaning(
        severity="medium",
        title="An assert is used as a permission check",
        why="`python -O` removes assertions, so the check is skipped and anyone is allowed.",
        fix="Use an `if` statement, and raise an exception.",
    ),
    Harm.TIMING: Meaning(
        severity="medium",
        title="Timing attack: a signature is not compared in constant time",
        why=(
            "The comparison stops at the first difference, so its duration lets an attacker guess the signature "
            "one character at a time."
        ),
        fix="Use `hmac.compare_digest`.",
    ),
}
