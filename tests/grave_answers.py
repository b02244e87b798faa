"""Answers that each claim one grave defect in some broken or hostile form, and clean ones that claim none.

None of the first passes. Of the second, only the exact ones pass.
"""

import base64
import html
import json
from typing import Any

FILE = "app.py"
LINE = 4
QUOTE = "    return eval(text)"
BEFORE = "def load(text):\n    return text\n"
AFTER = "def load(text):\n    # As the caller wants it.\n    text = text.strip()\n    return eval(text)\n"
GRAVE: dict[str, Any] = {
    "file": FILE,
    "line": LINE,
    "quote": QUOTE,
    "title": "Code of strangers is run",
    "body": "eval runs whatever the text holds.",
    "category": "security",
    "severity": "critical",
    "confidence": 0.9,
}
LOW: dict[str, Any] = {**GRAVE, "title": "A name could be clearer", "body": "A nit.", "severity": "low"}
FORM: dict[str, Any] = {
    "file_path": FILE,
    "line_start": LINE,
    "line_end": LINE,
    "priority": 0,
    "title": "[P0] Code of strangers is run",
    "body": "eval runs whatever the text holds.",
}
CLEAN = '{"findings": []}'


def _answer(*findings: Any, **more: Any) -> str:
    return json.dumps({"findings": list(findings), **more})


def _with(**changes: Any) -> dict[str, Any]:
    return {**GRAVE, **changes}


def _without(*names: str, of: dict[str, Any] = GRAVE) -> dict[str, Any]:
    return {name: value for name, value in of.items() if name not in names}


UNRATED = _without("severity")
_PLAIN = _answer(GRAVE)
_INDENTED = json.dumps({"findings": [GRAVE]}, indent=2)
_BULLET = (
    f"- **Severity:** CRITICAL\n- **Description:** Code of strangers is run\n- **Evidence:** {FILE}:{LINE} - {QUOTE}\n"
)

_UNDER_OTHER_KEYS = {
    f"empty list beside {name}": _answer(**{name: [GRAVE]})
    for name in (
        *("Findings", "FINDINGS", "critical_issues", "criticalIssues", "issues_found", "blocking", "blockers"),
        *("must_fix", "security_issues", "vulnerabilities", "bugs", "problems", "defects", "other", "additional"),
        *("high_priority", "results", "comments", "review_comments", "P0", "new", "x", "remaining_findings"),
    )
}
_SIGNS = {
    f"empty list beside {json.dumps(sign)}": _answer(**sign)
    for sign in (
        *({"truncated": True}, {"Truncated": "yes"}, {"incomplete": True}, {"partial": True}, {"status": "failed"}),
        *({"Status": "PARTIAL"}, {"status": "error"}, {"status": "timed out"}, {"error": "context length exceeded"}),
        *({"errors": ["could not read app.py"]}, {"stop_reason": "max_tokens"}, {"finish_reason": "length"}),
        *({"continued": True}, {"complete": False}, {"verdict": "FAIL"}, {"passed": False}, {"approved": False}),
        *({"decision": "request changes"}, {"recommendation": "do not merge"}, {"score": 12}),
        *({"risk_level": "critical"}, {"critical": 1}, {"summary": {"critical": 1, "high": 0, "low": 0}}),
        *({"stats": {"total_findings": 2}}, {"counts": {"bySeverity": {"Critical": 1}}}, {"has_issues": True}),
        {"summary": "1 critical issue found: eval runs what strangers write."},
        {"summary": "The new load() is vulnerable to code injection and must be fixed."},
        {"notes": "To be continued in the next message."},
    )
}
_BROKEN_JSON = {
    "unescaped quotes": _PLAIN.replace('"    return eval(text)"', '"    return eval("x", {"a": "b"})"'),
    "single quotes": str({"findings": [GRAVE]}),
    "smart quotes": _PLAIN.replace('"', "”"),
    "trailing commas": _PLAIN.replace("}]", ",},]"),
    "no commas": _INDENTED.replace('",\n', '"\n'),
    "comments": _INDENTED.replace('"title"', '// the title\n "title"'),
    "bare keys": _INDENTED.replace('"title":', "title:").replace('"severity":', "severity:"),
    "missing brace": _PLAIN.replace("}]", "]"),
    "missing end": _PLAIN[:-2],
    "cut in the body": _PLAIN[: _PLAIN.index("eval runs") + 4],
    "cut in the severity": _PLAIN[: _PLAIN.index("critical") + 4],
    "cut in the first key": '{"findings": [{"fi',
    "NaN": _PLAIN.replace("0.9", "NaN"),
    "raw line ends": _PLAIN.replace("eval runs", "eval\nruns"),
    "a key twice": _PLAIN.replace('"severity": "critical"', '"severity": "low", "severity": "critical"'),
    "the list twice": f'{{"findings": [{json.dumps(GRAVE)}], "findings": []}}',
    "the list twice, clean first": f'{{"findings": [], "findings": [{json.dumps(GRAVE)}]}}',
    "a missing colon": _PLAIN.replace('"title": ', '"title" '),
    "a missing quote": _PLAIN.replace('"title": "', '"title": '),
    "semicolons": _PLAIN.replace('", "', '"; "'),
}
_ENVELOPES = {
    "a fence and prose": f"Here is my review.\n\n```json\n{_INDENTED}\n```\n\nLet me know.",
    "an open fence": f"```json\n{_INDENTED}",
    "a string of JSON": json.dumps(_PLAIN),
    "a list in a string": json.dumps({"findings": json.dumps([GRAVE])}),
    "JSON in the summary": _answer(summary=_PLAIN),
    "bullets in the summary": _answer(summary=_BULLET),
    "lines of objects": "\n".join(json.dumps(item) for item in (LOW, GRAVE)),
    "a bare list": json.dumps([GRAVE]),
    "a bare object": json.dumps(GRAVE),
    "an object of its own": json.dumps({"review": {"result": {"findings": [GRAVE]}}}),
    "the result of a program": json.dumps({"type": "result", "is_error": False, "result": _PLAIN}),
    "a failed run": json.dumps({"type": "result", "is_error": True, "result": CLEAN}),
    "a cut message": json.dumps({"stop_reason": "max_tokens", "content": [{"type": "text", "text": CLEAN}]}),
    "a tool call": f'<tool_call>{{"name": "report", "arguments": {_PLAIN}}}</tool_call>',
    "entities": html.escape(_PLAIN),
    "only a thought": f"<think>It must be reported: {_PLAIN}",
    "a thought, then the finding": f"<think>Nothing here, {CLEAN}</think>{_PLAIN}",
    "a mark in front": f"\ufeff{_PLAIN}",
    "many nested lists": json.dumps({"findings": [[[GRAVE]]]}),
}
_RESULT = {"level": "error", "message": {"text": "eval"}}
_SHAPES = {
    "by file": json.dumps({"findings": {FILE: [_without("file")]}}),
    "by file at the top": json.dumps({FILE: [_without("file")]}),
    "by file and line": json.dumps({"findings": {f"{FILE}:{LINE}": _without("file", "line")}}),
    "by severity": json.dumps({"findings": {"critical": [UNRATED], "low": []}}),
    "by severity at the top": json.dumps({"critical": [UNRATED], "high": []}),
    "by number": json.dumps({"findings": {"1": GRAVE}}),
    "texts by severity": _answer(critical_issues=[f"{FILE}:{LINE} runs the code of strangers"]),
    "texts for findings": _answer(f"critical: {FILE}:{LINE} runs the code of strangers"),
    "no severity": _answer(UNRATED),
    "no severity under another key": _answer(extra=[UNRATED]),
    "a severity nobody knows": _answer(_with(severity="apocalyptic")),
    "a severity as an object": _answer(_with(severity={"level": "critical"})),
    "a severity as a list": _answer(_with(severity=["critical"])),
    "P0": _answer(_with(severity="P0")),
    "a spelled out priority": _answer(_with(severity="Priority 0 (critical)")),
    "decorated": _answer(_with(severity="🔴 **CRITICAL**")),
    "blocker": _answer(_with(severity="Blocker")),
    "the form with a verdict": json.dumps({"verdict": "FAIL", "findings": [FORM]}),
    "the form without a verdict": json.dumps({"findings": [FORM]}),
    "the form without a file": json.dumps({"verdict": "FAIL", "findings": [_without("file_path", of=FORM)]}),
    "a verdict that fails over a nit": json.dumps({"verdict": "FAIL", "findings": [{**FORM, "priority": 3}]}),
    "a verdict nobody knows": json.dumps({"verdict": "MAYBE", "findings": []}),
    "a list of nulls": '{"findings": [null]}',
    "a number for the list": '{"findings": 1}',
    "words for the list": '{"findings": "eval runs the code of strangers in app.py"}',
    "null for the list": '{"findings": null}',
    "no title": _answer(_without("title", "body")),
    "a title as a list": _answer(_with(title=["Code of strangers is run"], body=None)),
    "the answer is the finding": json.dumps({**GRAVE, "findings": []}),
    "a nit and a finding apart": json.dumps({"findings": [LOW], "critical": [UNRATED]}),
    "SARIF": json.dumps({"version": "2.1.0", "runs": [{"tool": {"driver": {"name": "x"}}, "results": [_RESULT]}]}),
}
_PLACES = {
    "another quote": _answer(_with(quote="    return eval(user_input)")),
    "another quote without a line": _answer(_with(quote="eval(user_input)", line=None)),
    "no quote": _answer(_without("quote")),
    "no quote and a line beyond the file": _answer(_with(quote="", line=9000)),
    "no line and no quote": _answer(_without("quote", "line")),
    "no place at all": _answer(_without("quote", "line", "file")),
    "another file": _answer(_with(file="other.py")),
    "a file outside": _answer(_with(file="../../etc/passwd")),
    "a line of another kind": _answer(_with(line="the fourth", quote="")),
    "the quote of a diff": _answer(_with(quote=f"@@ -1 +1 @@\n+{QUOTE}")),
    "a quote cut in a word": _answer(_with(quote="return ev", line=LINE)),
    "a quote of two lines apart": _answer(_with(quote="def load(text):\n    return eval(text)")),
}
_TEXTS = {
    "bullets": _BULLET,
    "clean JSON, then bullets": f"{CLEAN}\n\n{_BULLET}",
    "a comment as codex prints it": f"- [P0] Code of strangers is run — {FILE}:{LINE}-{LINE}\n  eval runs it.\n",
    "a message": f"{FILE}:{LINE}:5: critical: eval runs the code of strangers",
    "a table": f"| Severity | File | Line | Issue |\n|---|---|---|---|\n| critical | {FILE} | {LINE} | eval |\n",
    "clean JSON, then a table": f"{CLEAN}\n\n| Severity | File | Bug |\n|---|---|---|\n| critical | {FILE} | eval |\n",
    "a numbered list": f"1. [CRITICAL] {FILE}:{LINE} - eval runs the code of strangers\n",
    "headings": f"## [CRITICAL] Code of strangers is run\n\n`{FILE}:{LINE}`\n\n```\n{QUOTE}\n```\n",
    "XML": f"<r><finding><severity>critical</severity><title>eval</title><file>{FILE}</file></finding></r>",
    "YAML": f"findings:\n  - severity: critical\n    title: Code is run\n    file: {FILE}\n    line: {LINE}\n",
    "CSV": f"severity,file,line,title\ncritical,{FILE},{LINE},Code of strangers is run\n",
    "prose": f"There is a critical vulnerability in {FILE}: eval runs the code of strangers.",
    "praise, then a finding": f"No issues found.\n\n{_PLAIN}",
    "nothing, but": "No critical issues found, but the eval in load() is vulnerable to code injection.",
    "a grave document, then a clean one": f"{_PLAIN}\n\nCorrected:\n\n{CLEAN}",
    "a clean document, then a grave one": f"{CLEAN}\n\nWait, I overlooked this:\n\n{_PLAIN}",
    "a grave document, then a quoted result": f'{_PLAIN}\n{{"type": "result", "result": "{{}}"}}',
    "prose that contradicts its JSON": f"The critical bug in {FILE} runs the code of strangers.\n```json\n{CLEAN}\n```",
    "an unfinished review": f"I could not review app.py, the diff was too long.\n{CLEAN}",
    "a refusal": "I cannot help with this request.",
    "nothing": " \n",
    "an empty object": "{}",
    "what was asked": "Findings as JSON, please.",
}

_OTHER_SEVERITIES = {
    f"a severity of {severity!r}": _answer(_with(severity=severity))
    for severity in (
        *("kritisch", "critique", "crítico", "критический", "严重", "重大", "치명적", "🔴", "🚨", "☠️ critical"),
        *("\u0441ritical", "\uff43\uff52\uff49tical", "cri\u200btical", "CRIT1CAL", "10/10", "9.8", "CVSS 9.8", "sev0"),
        *("showstopper", "very high", "catastrophic", "P00", "p-0", "critical|high", "low but actually critical", ""),
        *("SEV-0", "urgent", 9.8, 10, -1, True, [], {}, {"label": "critical"}, ["critical", "high"], None),
    )
}
_TWO_SEVERITIES = {
    f"a nit with {json.dumps(more)}": _answer({**LOW, **more})
    for more in (*({"priority": 0}, {"priority": "P0"}, {"children": [GRAVE]}, {"findings": [GRAVE]}),)
}
# Unknown keys with plain values are ignored, and so are words: the severity of an item is its `severity`.
RATED_LOW: dict[str, str] = {
    f"a nit with {json.dumps(more)}": _answer({**LOW, **more})
    for more in (
        *({"level": "critical"}, {"Severity": "critical"}, {"actual_severity": "critical"}),
        *({"title": "[P0] Code of strangers is run"}, {"title": "CRITICAL: code of strangers is run"}),
    )
}
_SAID_BESIDE = {
    f"{said}, beside an empty list": f"{said}\n{CLEAN}"
    for said in (
        f"The eval in {FILE} line {LINE} lets anybody run anything. Fix it before merging.",
        "The eval() lets an attacker execute whatever they like on the server.",
        "load() passes user input to eval, which allows RCE.",
        "However, please note that passing text to eval is extremely dangerous.",
        "No bugs in the tests, but the eval in load() is a critical vulnerability.",
        "Critical bug: the input is not validated before it reaches eval.",
        "Please fix the critical bug in load().",
        f"Kritischer Fehler in {FILE}, Zeile {LINE}: eval führt fremden Code aus.",
        f"Faille critique : eval exécute du code arbitraire dans {FILE} ligne {LINE}.",
        "严重漏洞: eval 会执行任意代码。",
        f"Критическая уязвимость: eval в {FILE} выполняет чужой код.",
        f"Vulnerabilidad crítica: eval ejecuta código arbitrario en {FILE}.",
        "重大な脆弱性があります。",
        f"> {_PLAIN}".replace("{", "{ "),
        f'[[findings]]\nfile = "{FILE}"\nseverity = "critical"\ntitle = "eval"',
        f"<table><tr><td>critical</td><td>{FILE}:{LINE}</td><td>eval runs code</td></tr></table>",
        f"<findings><critical file='{FILE}' line='{LINE}'>eval runs code</critical></findings>",
        f"+----------+--------+\n| severity | file |\n+----------+--------+\n| critical | {FILE} |\n+---+---+",
        f"| File | Issue |\n|---|---|\n| {FILE} | eval runs the code of strangers |",
        f"Finding(file='{FILE}', line={LINE}, severity='critical', title='Code is run')",
        f'<parameter name="severity">critical</parameter><parameter name="file">{FILE}</parameter>',
        "\u200b".join(_PLAIN),
        "".join(chr(ord(letter) + 0xFEE0) if 33 <= ord(letter) <= 126 else letter for letter in _PLAIN),
        base64.b64encode(_PLAIN.encode()).decode(),
        f"\x1b[31mcritical\x1b[0m {FILE}:{LINE} eval runs code",
        *("VERDICT: FAIL", "**Verdict:** ❌", "Final verdict: REQUEST_CHANGES", "I would not approve this.", "NACK"),
        f"# Findings\n\n1. `{FILE}:{LINE}` - eval runs the code of strangers",
        *(f"Issues:\n* {FILE} line {LINE} — eval", f"- [ ] Fix eval in {FILE}:{LINE} (critical)"),
        "> [!CAUTION]\n> eval runs code of strangers",
        f"::error file={FILE},line={LINE}::eval runs code of strangers",
        f"{FILE}:{LINE}:5: error: eval runs code of strangers",
        "```suggestion\n    return ast.literal_eval(text)\n```",
        "As an AI model I must decline this request.",
        f"The file {FILE} was not accessible, so I skipped it.",
        "I don't have access to the file contents. Please provide the diff.",
        f"I'll now look at {FILE}.",
        f"add_finding(severity='critical', file='{FILE}', title='eval')",
    )
}
_STATED_BESIDE = {
    f"empty list beside {json.dumps(sign, ensure_ascii=False)}": json.dumps({"findings": [], **sign})
    for sign in (
        {"comments": [f"{FILE}:{LINE} eval runs whatever a stranger sends"]},
        {"message": "Please fix the eval, it lets strangers run code"},
        {"critical": "eval runs whatever a stranger sends"},
        {"vulnerability": f"RCE through eval in {FILE}:{LINE}"},
        *({"bug": {"where": f"{FILE}:{LINE}", "what": "eval of a text"}}, {"critical": "1"}, {"total_findings": "2"}),
        *({"total": 3}, {"risk_score": 95}, {"security_score": 0}, {"risk_assessment": "High"}),
        *({"safe_to_merge": False}, {"ready_to_merge": "no"}, {"is_secure": False}, {"approve": 0}),
        *({"final_verdict": "FAIL"}, {"review_result": "FAIL"}, {"review": {"verdict": "FAIL"}}),
        {"should_merge": False},
        {"befunde": [{"datei": FILE, "zeile": LINE, "schweregrad": "kritisch", "titel": "eval führt Code aus"}]},
        *({"f\u0456nd\u0456ngs": [{"t\u0456tle": "x", "sever\u0456ty": "critical"}]}, {"find\u200bings": [UNRATED]}),
        {"columns": ["severity", "file"], "rows": [["critical", FILE]]},
        *({"encoded": base64.b64encode(_PLAIN.encode()).decode()}, {"a": {"b": _PLAIN}}, {"log": ["step 1", _PLAIN]}),
        *({"skipped_files": [FILE]}, {"files_not_reviewed": [FILE]}, {"reviewed": False}, {"files_reviewed": 0}),
        *({"needs_more_context": True}, {"summary": "I must decline to review this change."}),
        *({"summary": "No diff was provided."}, {"summary": "Kritischer Fehler: eval führt fremden Code aus."}),
    )
}
_OTHER_FORMS = {
    "a comment for the findings": f'{{"findings": [ /* {json.dumps(GRAVE)} */ ]}}',
    "a note for the findings": '{"findings": [\n// 3 findings left out for brevity\n]}',
    "dots for the findings": '{"findings": [ ... ]}',
    "a finding, then a clean result": f"{json.dumps({'type': 'finding', **GRAVE})}\n"
    f"{json.dumps({'type': 'result', 'result': CLEAN})}",
    "a run that ended in an error": json.dumps({"type": "result", "subtype": "error_max_turns", "result": CLEAN}),
    "two choices": json.dumps({"choices": [{"message": {"content": CLEAN}}, {"message": {"content": _PLAIN}}]}),
    "a filtered choice": json.dumps({"choices": [{"message": {"content": CLEAN}, "finish_reason": "content_filter"}]}),
    "rows": json.dumps({"findings": [["critical", FILE, LINE, "eval runs code"]]}),
    "columns": json.dumps({"findings": {"severity": ["critical"], "file": [FILE], "title": ["eval"]}}),
    "a nit, then bullets": f"{_answer(LOW)}\n{_BULLET}",
    "a nit, then a table": f"{_answer(LOW)}\n\n| Severity | File | Bug |\n|---|---|---|\n| P0 | {FILE} | eval |\n",
    "a nit, then a list": f"{_answer(LOW)}\n1. [CRITICAL] {FILE}:{LINE} - eval runs code\n",
    "strings in strings": json.dumps(json.dumps(json.dumps(_PLAIN))),
    "a letter at a time": "\0".join(_PLAIN),
    **{f"cut after {end} characters": _PLAIN[:end] for end in range(1, len(_PLAIN), 4)},
}
# What is said in so many ways that only the reading of it is tried with each.
WORDED_ANSWERS: dict[str, str] = _OTHER_SEVERITIES | _TWO_SEVERITIES | _SAID_BESIDE | _STATED_BESIDE | _OTHER_FORMS
GRAVE_ANSWERS: dict[str, str] = {
    **dict([*_SAID_BESIDE.items()][::6] + [*_STATED_BESIDE.items()][::6]),
    **(_UNDER_OTHER_KEYS | _SIGNS | _BROKEN_JSON | _ENVELOPES | _SHAPES | _PLACES | _TEXTS),
}

# The finding of these is read, although they are not exact.
READABLE: tuple[str, ...] = (
    *("missing end", "a fence and prose", "an open fence", "lines of objects", "a bare list", "a bare object"),
    *("only a thought", "a thought, then the finding", "the form without a verdict", "praise, then a finding"),
    *("a grave document, then a clean one", "a clean document, then a grave one"),
    "a grave document, then a quoted result",
)
# No finding is read from these, so an exact second answer decides.
UNREADABLE: tuple[str, ...] = (
    *_UNDER_OTHER_KEYS,
    *("unescaped quotes", "missing brace", "a key twice", "the list twice", "cut in the body", "entities"),
    *("by file", "by severity", "texts by severity", "no severity", "a severity nobody knows", "no title"),
    *("XML", "CSV", "a table", "headings", "a numbered list", "prose", "prose that contradicts its JSON"),
    *('empty list beside {"critical": 1}', 'empty list beside {"has_issues": true}', 'empty list beside {"score": 12}'),
)

_CLEAN_WORDS: dict[str, str] = {
    **{
        f"{said}, beside an empty list": f"{said}\n\n{CLEAN}"
        for said in (
            "The change adds a loader that strips its input and evaluates it. I read every hunk.",
            "I checked for injection, race conditions and leaks and found none.",
            *("This fixes a crash when the list is empty.", "Line 4 is fine.", "## Review\n\n### Findings"),
            "The error handling is correct and the tests cover the new branch.",
            "No bugs, vulnerabilities or regressions were found.",
            *("I did not find any defects in this change.", "Keine kritischen Fehler gefunden.", "✅ All good."),
            *("No encontré vulnerabilidades críticas.", "没有发现严重漏洞。", "重大な脆弱性はありません。"),
            *("Критических уязвимостей нет.", "Aucune faille critique."),
            "**Critical:** 0\n**High:** 0",
            "## Critical\n\nNone.\n\n## High\n\nNone.",
            "| File | Change |\n|---|---|\n| app.py | adds load |",
            "| Severity | Count |\n|---|---|\n| critical | 0 |\n| high | 0 |",
            "<thinking>Could the text be malicious? The caller validates it.</thinking>",
        )
    },
    **{
        f"empty list beside {json.dumps(beside)}": _answer(**beside)
        for beside in (
            {"security_score": 95, "risk": "low", "risk_level": "Low", "risk_score": 0},
            *({"security": "No security concerns."}, {"security": "The change does not touch authentication."}),
            {"no_issues": True, "issues_found": False, "has_bugs": "no"},
            {"safe_to_merge": True, "is_secure": True, "approved": "yes"},
            {"decision": "approve", "recommendation": "merge", "overall": "good", "confidence": "high"},
            {"critical": "0", "high": "0", "total": 0, "total_files": 3, "lines_changed": 40},
            {"summary": "Fixes an off-by-one error and removes a race condition."},
            *({"summary": "Adds tests for the crash in load()."}, {"summary": "This change fixes bug 1234."}),
            {"notes": ["Reads well", "Naming is consistent"], "tools_used": ["Read"]},
            {"files_reviewed": [FILE], "reviewed": True, "coverage": 1.0},
            {"metadata": {"model": "x", "duration_ms": 1200}, "usage": {"input_tokens": 1200}},
        )
    },
    "trailing comma": '{"findings": [],}',
    "single quotes": "{'findings': []}",
    "a choice": json.dumps({"choices": [{"message": {"content": CLEAN}, "finish_reason": "stop"}]}),
    "a candidate": json.dumps({"candidates": [{"content": {"parts": [{"text": CLEAN}]}, "finishReason": "STOP"}]}),
    "a nit and words": f"{_answer(LOW)}\nOnly a nit.",
}

CLEAN_ANSWERS: dict[str, str] = {
    "the list": CLEAN,
    "a fence": f"```json\n{CLEAN}\n```",
    "words": "No issues found.",
    "the form": '{"verdict": "PASS", "findings": []}',
    "a nit": _answer(LOW),
}
INEXACT_CLEAN_ANSWERS: dict[str, str] = {
    "a bare list": "[]",
    "a fence and prose": f"I looked at every hunk.\n\n```json\n{CLEAN}\n```\n",
    "denials around": f"I checked for critical bugs and security vulnerabilities and found none.\n{CLEAN}",
    "praise": "LGTM. No problems found in the code.",
    "passed": '{"passed": true, "summary": "It reads well.", "issues": []}',
    "a summary": _answer(summary="Adds load(). No critical issues, nothing to report."),
    "a summary of what is mended": _answer(summary="Fixes a critical bug in load()."),
    "counts of nothing": _answer(summary={"critical": 0, "high": 0, "total_findings": 0}),
    "states of a whole answer": _answer(status="completed", truncated=False, error=None, complete=True, errors=[]),
    "a good score": _answer(score=95, confidence=0.8),
    "files that were read": _answer(files_reviewed=[{"file": FILE, "summary": "adds load"}], lines_reviewed=4),
    "strengths": _answer(strengths=["Small functions"], suggestions=["Consider a docstring"]),
    "empty lists beside": _answer(critical_issues=[], blockers=[], warnings=None),
    "an envelope": json.dumps({"type": "result", "is_error": False, "stop_reason": "end_turn", "result": CLEAN}),
    "a thought before": f"<think>Is this a critical bug? It is not.</think>{CLEAN}",
    "other keys": json.dumps({"Findings": [], "Summary": "Fine."}),
    **_CLEAN_WORDS,
}
