"""The harms that outside text can do: how bad each is, and what to say of it."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from codeloupe.model.finding import Severity


class Harm(StrEnum):
    """What outside text can do at a place; its value is the rule's name."""

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


class Meaning(Struct, frozen=True):
    """How bad a harm is, what to say of it, and which of ruff's rules speak of the same."""

    severity: Severity
    title: str
    why: str
    fix: str
    same_as: frozenset[str] = frozenset()


MEANINGS: dict[Harm, Meaning] = {
    Harm.SQL: Meaning(
        Severity.HIGH,
        "Outside text becomes part of an SQL query",
        "Whoever sends it can read, change or delete other data.",
        "Pass the value as a parameter of the query; take names of columns and tables from a fixed list.",
        frozenset({"S608", "S610", "S611"}),
    ),
    Harm.SHELL: Meaning(
        Severity.HIGH,
        "Outside text becomes part of a command",
        "Whoever sends it can run commands of their own with the rights of this process.",
        "Start a fixed program with a list of arguments and without a shell.",
        frozenset({"S602", "S603", "S604", "S605", "S606", "S607"}),
    ),
    Harm.CODE: Meaning(
        Severity.HIGH,
        "Outside text is run as code",
        "Whoever sends it decides what this process does.",
        "Choose from a table of functions, or read data with `ast.literal_eval` or JSON.",
        frozenset({"S102", "S307"}),
    ),
    Harm.PATH: Meaning(
        Severity.HIGH,
        "Outside text decides which file is used",
        "`../` or an absolute path leads out of the intended directory, to any file that this process can reach.",
        "Take the base name only, or resolve the path and check that it is inside the directory.",
    ),
    Harm.XPATH: Meaning(
        Severity.HIGH,
        "Outside text becomes part of an XPath query",
        "Whoever sends it can ask for other nodes than were meant, and pass a check that the query makes.",
        "Pass the value as a variable of the query (`$name`), or compare it in Python.",
    ),
    Harm.LDAP: Meaning(
        Severity.HIGH,
        "Outside text becomes part of an LDAP filter",
        "Whoever sends it can widen the filter, read other entries or pass a check of a login.",
        "Escape the value with `ldap.filter.escape_filter_chars`.",
    ),
    Harm.TEMPLATE: Meaning(
        Severity.HIGH,
        "Outside text becomes part of a template",
        "Template expressions in it run on the server, which reaches as far as commands.",
        "Keep the template fixed, and pass the value as a variable of it.",
    ),
    Harm.REDIRECT: Meaning(
        Severity.MEDIUM,
        "The redirect goes wherever the request says",
        "A link to this site can lead to any other one, which makes a phishing page look trustworthy.",
        "Allow paths of this site only (`url_has_allowed_host_and_scheme` in Django), or choose from a fixed list.",
    ),
    Harm.OBJECT: Meaning(
        Severity.HIGH,
        "Outside data is loaded as objects",
        "Such data can name any function to be called while it is loaded, so its sender can run code.",
        "Use JSON, or verify a signature before loading.",
        frozenset({"S301", "S302", "S506"}),
    ),
    Harm.HTML: Meaning(
        Severity.HIGH,
        "Outside text becomes part of a page without escaping",
        "A script in it runs in the visitor's browser with their login.",
        "Escape it with `html.escape` or `markupsafe.escape`, or render a template that escapes.",
        frozenset({"S308", "S704"}),
    ),
    Harm.FETCH: Meaning(
        Severity.HIGH,
        "The server fetches whatever address the request names",
        "Whoever sends it can reach services inside the network and metadata of the machine through this server.",
        "Fetch from a fixed host only, or check the host against a list first.",
    ),
    Harm.XML: Meaning(
        Severity.HIGH,
        "Outside XML is read by a parser that resolves entities",
        "An entity in it can name files and addresses, which the parser then reads.",
        "Leave external entities off, or use the defusedxml package.",
    ),
    Harm.HEADER: Meaning(
        Severity.MEDIUM,
        "Outside text becomes part of a response header",
        "A line break in it starts headers, or a response, of the sender's choice.",
        "Refuse control characters, or choose from a fixed list.",
    ),
    Harm.RANDOM: Meaning(
        Severity.MEDIUM,
        "A secret comes from a guessable source",
        "The `random` module can be predicted from a few of its outputs, and so can every token made with it.",
        "Use the `secrets` module.",
        frozenset({"S311"}),
    ),
    Harm.COOKIE: Meaning(
        Severity.LOW,
        "The cookie is also sent over unencrypted connections",
        "Whoever listens on the way can take the cookie and with it the session.",
        "Pass `secure=True` (and `httponly=True`).",
    ),
    Harm.TLS: Meaning(
        Severity.MEDIUM,
        "The certificate of the other side is not checked",
        "Anybody between the two can read and change what is sent.",
        "Leave verification on, and add the missing certificate to the trusted ones.",
        frozenset({"S501", "S323"}),
    ),
    Harm.ASSERT: Meaning(
        Severity.MEDIUM,
        "An assert guards what only some may do",
        "With `python -O` asserts are removed, and then everybody may do it.",
        "Test with `if` and raise an error of its own.",
    ),
    Harm.TIMING: Meaning(
        Severity.MEDIUM,
        "A signature is compared in a time that depends on it",
        "The comparison ends at the first character that differs, so its time lets a sender guess one after the other.",
        "Compare with `hmac.compare_digest`.",
    ),
}

ALL_TEXT = frozenset(
    {
        Harm.SQL, Harm.SHELL, Harm.CODE, Harm.PATH, Harm.XPATH, Harm.LDAP, Harm.TEMPLATE, Harm.REDIRECT, Harm.OBJECT,
        Harm.HTML, Harm.FETCH, Harm.XML, Harm.HEADER,
    }
)  # fmt: skip
"""Every harm that text can do."""
