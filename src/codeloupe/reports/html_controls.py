"""What a reader works the HTML report with: the bar at the top, the filters, and the list of keys."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from codeloupe.model.finding import Finding
from codeloupe.model.severity import Severity
from codeloupe.reports.html_finding import expert_of
from codeloupe.reports.html_markup import Html, element, joined
from codeloupe.reports.standing import Standing, standing_of

_KEYS = (
    (("j", "k"), "next and previous finding"),
    (("/",), "search"),
    (("1", "2", "3", "4"), "only critical, high, medium, low"),
    (("x",), "clear the filter"),
    (("o",), "open or fold all files"),
    (("t",), "light or dark"),
    (("?",), "these keys"),
)


def top_bar() -> Html:
    """The name, the button for filters on a narrow page, the theme, the keys."""
    return element(
        "header",
        element("a", _loupe(), element("span", "codeloupe"), class_="brand", href="#report"),
        element("span", class_="space"),
        element("button", "Filter", id="open-filters", type="button", aria_expanded="false", aria_controls="filters"),
        element("button", _half_moon(), id="theme", type="button", title="Light or dark (t)", aria_label="Theme"),
        element("button", "?", id="help", type="button", title="Keys (?)", aria_label="Keys"),
        class_="bar",
    )


def filter_panel(findings: Sequence[Finding]) -> Html:
    """Search, severities, experts and files, with the number of open findings of each; then what is listed apart."""
    counting = [finding for finding in findings if standing_of(finding) is Standing.OPEN]
    by_severity = Counter(finding.severity for finding in counting)
    by_expert = Counter(map(expert_of, counting))
    by_standing = Counter(map(standing_of, findings))
    by_file: dict[str, list[Finding]] = defaultdict(list)
    for finding in counting:
        by_file[finding.file or "?"].append(finding)
    severities = [
        _choice("severity", step.label, element("span", str(by_severity[step]), class_="count"), label=step.label)
        for step in Severity
        if by_severity[step]
    ]
    files = [_choice("file", path, _worst(by_file[path])) for path in sorted(by_file)]
    experts = [
        _choice("expert", name, element("span", str(count), class_="count"))
        for name, count in sorted(by_expert.items(), key=lambda item: (-item[1], item[0]))
    ]
    standings = [
        _choice("standing", name.value, element("span", str(by_standing[name]), class_="count"))
        for name in Standing
        if by_standing[name]
    ]
    return element(
        "aside",
        element("input", type="search", id="search", placeholder="Search findings", aria_label="Search findings"),
        element(
            "p",
            element("output", f"{len(counting)} of {len(counting)}", id="shown"),
            element("button", "Clear", type="button", id="clear", hidden=True),
            class_="tally",
        ),
        _group("Severity", severities),
        _group("Expert", experts),
        _group("Status", standings) if len(standings) > 1 else None,
        _group("File", files),
        id="filters",
        class_="filters",
        aria_label="Filters",
        hidden=not findings,
    )


def help_dialog() -> Html:
    """The keys, in a dialog."""
    rows = [
        element("div", element("dt", joined(element("kbd", key) for key in keys)), element("dd", words))
        for keys, words in _KEYS
    ]
    return element(
        "dialog",
        element("h2", "Keys"),
        element("dl", joined(rows)),
        element("button", "Close", type="button", id="close-help"),
        id="keys",
        aria_label="Keys",
    )


def _group(title: str, choices: Sequence[Html]) -> Html | None:
    if not choices:
        return None
    return element("div", element("h2", title), element("div", joined(choices), class_="choices"), class_="group")


def _choice(kind: str, value: str, count: Html, *, label: str = "") -> Html:
    """A button that is pressed or not; `label` is the class that gives it a colour."""
    return element(
        "button",
        # Isolated, so that the end of a long path can be shown without turning its slashes around.
        element("span", element("bdi", value), class_="name"),
        count,
        type="button",
        class_=f"choice {label}".strip(),
        aria_pressed="false",
        data_kind=kind,
        data_value=value,
        title=value if kind == "file" else None,
    )


def _worst(findings: Sequence[Finding]) -> Html:
    """How many, in the colour of the worst."""
    worst = min((finding.severity for finding in findings), key=lambda severity: severity.priority)
    return element("span", str(len(findings)), class_=f"dot {worst.label}")


def _loupe() -> Html:
    shape = element("path", d="M10 3a7 7 0 1 0 0 14a7 7 0 1 0 0-14M15.5 15.5L21 21")
    return element("svg", shape, viewBox="0 0 24 24", aria_hidden="true", class_="icon")


def _half_moon() -> Html:
    shape = element("path", d="M12 3a9 9 0 1 0 0 18a9 9 0 1 0 0-18M12 3v18")
    filled = element("path", d="M12 3a9 9 0 0 1 0 18z", class_="filled")
    return element("svg", shape, filled, viewBox="0 0 24 24", aria_hidden="true", class_="icon")
