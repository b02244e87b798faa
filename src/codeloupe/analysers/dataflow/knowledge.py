"""What is known of libraries: where outside text comes in, where it does harm, and what makes it harmless.

Names are full ones, as the imports of a module give them. A name that begins with a dot is a method of an object whose
class is not known.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from codeloupe.analysers.dataflow.meanings import ALL_TEXT, Harm, words
from codeloupe.analysers.dataflow.values import Value

# Where outside text comes in.

REQUEST_OBJECTS = frozenset(
    {"flask.request", "quart.request", "bottle.request", "flask.globals.request", "webob.request", "pyramid.request"}
)
REQUEST_PARTS = words(
    "args form values cookies headers json data files query_string full_path url base_url referrer view_args "
    "stream GET POST body META FILES COOKIES REQUEST query_params path_params match_info rel_url query forms "
    "params raw_post_data get_json get_data post text read form_data arguments files_data uri body_arguments "
    "getlist query_arguments url_rule get_full_path get_raw_uri build_absolute_uri input_stream"
)
ENVIRONMENT_KEYS = re.compile(r"QUERY_STRING|PATH_INFO|REQUEST_URI|RAW_URI|CONTENT_TYPE|HTTP_\w+|wsgi\.input")
OUTSIDE_METHODS = words(
    "get_argument get_arguments get_query_argument get_query_arguments get_body_argument get_body_arguments get_cookie"
)
HANDLER_PARTS = frozenset({"path", "headers", "rfile", "requestline"})
NETWORK_METHODS = frozenset({"recv", "recvfrom", "receive_text", "receive_json", "receive_bytes"})
READS_REQUEST = re.compile(
    r"^(?!.*safe).*(?:param|arg(?:ument)?s?$|field|value|input|query|header|cookie|wrap)", re.IGNORECASE
)
ROUTE_METHODS = frozenset(
    ["route", "get", "post", "put", "delete", "patch", "options", "head", "websocket", "api_route", "view"]
)
SAFE_ANNOTATIONS = re.compile(
    r"(?:typing\.)?(?:Optional\[)?(?:int|float|bool|Decimal|UUID|uuid\.UUID|date|datetime|timedelta|IPv\w+|"
    r"(?:starlette\.|fastapi\.)?(?:Response|BackgroundTasks|SecurityScopes|HTTPConnection)|.*(?:Session|Connection|"
    r"Settings|Service|Repository|Client|Enum|Literal|Depends).*)\b"
)
_WRAPPED = re.compile(r"(?:typing\.)?(?:Annotated\[([^,\[\]]+),.*|Optional\[([^\[\]]+)\]|([^|\[\]]+?) ?\| ?None)")


def is_plain(annotation: str) -> bool:
    """Whether what is annotated so holds no text of the sender."""
    wrapped = _WRAPPED.fullmatch(annotation)
    return SAFE_ANNOTATIONS.fullmatch(next(filter(None, wrapped.groups())) if wrapped else annotation) is not None


# What makes outside text harmless.

CLEANERS = words(
    "int float bool len abs round hash ord id type isinstance issubclass any all sum callable complex range "
    "uuid.UUID decimal.Decimal datetime.date.fromisoformat datetime.datetime.fromisoformat "
    "datetime.datetime.strptime ast.literal_eval ipaddress.ip_address hmac.compare_digest secrets.compare_digest "
    "django.utils.text.slugify slugify.slugify"
)
GUARDS_BY_NAME = re.compile(
    r"(?:^|_)(?:is_|_)?(?:safe|valid|allowed|permitted|trusted|whitelisted|known)|^(?:validate|check|verify)_"
)
ESCAPERS: tuple[tuple[re.Pattern[str], frozenset[Harm]], ...] = (
    (re.compile(r"(?:shlex|pipes)\.(?:quote|join)"), frozenset({Harm.SHELL})),
    (re.compile(r".*\b(?:escape_filter_chars|escape_dn_chars|escape_rdn|filter_format)"), frozenset({Harm.LDAP})),
    (re.compile(r".*\b(?:secure_filename|safe_join|basename|get_valid_filename|sanitize_filename)"),
     frozenset({Harm.PATH})),
    (re.compile(r".*\b(?:url_for|reverse|iri_to_uri)"), frozenset({Harm.REDIRECT, Harm.HTML, Harm.FETCH})),
    (re.compile(r"(?:urllib\.parse\.|urllib\.)(?:quote|quote_plus|urlencode)"),
     frozenset({Harm.REDIRECT, Harm.HTML, Harm.XPATH, Harm.LDAP, Harm.HEADER, Harm.FETCH})),
    (re.compile(r"(?:.*\.)?(?:_*(?:quote|escape)_?(?:ident|name|string|sql|table|column)\w*|sql\.Identifier|sql\.Literal)"),
     frozenset({Harm.SQL})),
    (re.compile(r"(?:.*\.)?(?:sqlescape|mogrify)"), frozenset({Harm.SQL})),
    (re.compile(r"(?i)(?:.*\.)?\w*(?:escape|sanitize|sanitise|bleach|striptags|strip_tags|linkify|format_html|nh3|clean_html)\w*"
                r"(?:\.clean)?"), frozenset({Harm.HTML})),
    (re.compile(r"(?:json\.dumps|.*jsonify)"), frozenset({Harm.HTML})),
)  # fmt: skip
PROPAGATORS = re.compile(
    r"(?:str|bytes|bytearray|repr|format|ascii|list|tuple|dict|set|frozenset|sorted|reversed|next|iter|zip|enumerate|"
    r"map|filter|max|min|print|super|vars|getattr|os\.path\.\w+|os\.fspath|os\.fsdecode|posixpath\.\w+|ntpath\.\w+|"
    r"urllib\.parse\.\w+|urllib\.unquote\w*|base64\.\w+|json\.\w+|simplejson\.\w+|orjson\.\w+|ujson\.\w+|codecs\.\w+|"
    r"binascii\.\w+|copy\.\w+|io\.StringIO|io\.BytesIO|pathlib\.\w+|html\.unescape|textwrap\.\w+|string\.Template|"
    r"string\.capwords|functools\.reduce|itertools\.\w+(?:\.\w+)?|collections\.\w+|operator\.\w+|zlib\.\w+|"
    r"gzip\.\w+|email\.\w+(?:\.\w+)*|http\.cookies\.\w+|cgi\.\w+|xmltodict\.parse|yaml\.safe_load|unicodedata\.\w+|"
    r"werkzeug\.urls\.\w+|shlex\.split|django\.utils\.encoding\.\w+|re\.(?:sub|subn|split|search|match|fullmatch|findall)"
    r"|typing\.cast|asyncio\.wait_for|__fstring__|__format__|pydantic\.\w+|jinja2\.Markup|markupsafe\.Markup|"
    r"sqlalchemy\.text)"
)
# A function of another module is taken to hand on what it is given, unless its name speaks of something else.
STOPS_BY_NAME = re.compile(
    r"(?i)^_*(?:get|find|fetch|load|look|search|filter|query|select|create|save|store|insert|update|delete|remove|add|"
    r"set|check|valid|verify|is|has|can|should|escape|clean|sanit|hash|encrypt|sign|render|log|debug|info|warn|error|"
    r"exception|critical|print|send|write|open|read|execute|run|call|commit|count|len|jsonify|redirect|abort|response|"
    r"post|put|patch|notify|publish|emit|authenticate|login|register|raise|assert|parse_int|to_int|safe|allowed|"
    r"secure|quote|int|float|bool|make|new|build|start|stop|close|exists|compare|match|test|schedule|submit|handle|"
    r"process|dispatch|serialize|first|one|all|token|generate|model)"
)

# Where outside text does harm: the name of the function, and which arguments matter (positions or names).

SINKS: dict[str, tuple[Harm, tuple[int | str, ...]]] = {
    **dict.fromkeys(("os.system", "os.popen", "os.popen2", "os.popen3", "subprocess.getoutput", "commands.getoutput",
                     "subprocess.getstatusoutput", "asyncio.create_subprocess_shell", "popen2.popen3", "pty.spawn",
                     "asyncio.subprocess.create_subprocess_shell", "os.startfile"), (Harm.SHELL, (0, "cmd"))),
    **dict.fromkeys(("os.execl", "os.execle", "os.execlp", "os.execv", "os.execve", "os.execvp", "os.execvpe",
                     "asyncio.create_subprocess_exec", "os.posix_spawn"), (Harm.SHELL, (0,))),
    **dict.fromkeys(("os.spawnl", "os.spawnlp", "os.spawnv", "os.spawnvp"), (Harm.SHELL, (1,))),
    **dict.fromkeys((".exec_command", ".getoutput"), (Harm.SHELL, (0,))),
    **dict.fromkeys(("eval", "exec", "builtins.eval", "builtins.exec", "compile", "__import__", "runpy.run_path",
                     "importlib.import_module", "code.interact", "timeit.timeit"), (Harm.CODE, (0,))),
    **dict.fromkeys((".execute", ".executemany", ".executescript", ".execute_sql", ".raw", ".fetchrow", ".fetchval"),
                    (Harm.SQL, (0, "sql", "query", "statement"))),
    **dict.fromkeys((".extra",), (Harm.SQL, ("where", "select", "tables", "order_by"))),
    **dict.fromkeys(("sqlalchemy.text", "sqlalchemy.sql.text", "django.db.models.expressions.RawSQL",
                     "sqlalchemy.sql.expression.text", "sqlalchemy.literal_column", "psycopg2.sql.SQL",
                     "psycopg.sql.SQL"), (Harm.SQL, (0,))),
    **dict.fromkeys(("pandas.read_sql", "pandas.read_sql_query"), (Harm.SQL, (0, "sql"))),
    **dict.fromkeys(("open", "io.open", "codecs.open", "os.open", "os.remove", "os.unlink", "os.rmdir", "os.removedirs",
                     "os.mkdir", "os.makedirs", "os.listdir", "os.scandir", "os.chmod", "os.walk", "os.truncate",
                     "shutil.rmtree", "flask.send_file", "zipfile.ZipFile", "tarfile.open", "gzip.open", "bz2.open",
                     "aiofiles.open", "fastapi.responses.FileResponse", "starlette.responses.FileResponse",
                     "aiohttp.web.FileResponse", "linecache.getline", "flask.send_from_directory"),
                    (Harm.PATH, (0, "file", "path", "path_or_file"))),
    **dict.fromkeys(("os.rename", "os.replace", "os.link", "os.symlink", "shutil.copy", "shutil.copy2", "shutil.move",
                     "shutil.copyfile", "shutil.copytree"), (Harm.PATH, (0, 1))),
    **dict.fromkeys((".xpath", "lxml.etree.XPath", "lxml.etree.ETXPath", "lxml.etree.XPathEvaluator"),
                    (Harm.XPATH, (0, "path"))),
    **dict.fromkeys((".find", ".findall", ".findtext", ".iterfind"), (Harm.XPATH, (0, "path"))),
    **dict.fromkeys(("elementpath.select", "elementpath.iter_select", "elementpath.Selector"),
                    (Harm.XPATH, (0, 1, "path"))),
    **dict.fromkeys((".search_s", ".search_ext_s", ".search_st", ".search_ext", ".search", ".paged_search"),
                    (Harm.LDAP, (0, 1, 2, "search_filter", "filterstr", "search_base"))),
    **dict.fromkeys(("flask.render_template_string", "jinja2.Template", ".from_string", "mako.template.Template",
                     "django.template.Template", "quart.render_template_string", "bottle.template",
                     "bottle.SimpleTemplate", "tornado.template.Template"), (Harm.TEMPLATE, (0, "source", "text"))),
    **dict.fromkeys(("flask.redirect", "werkzeug.utils.redirect", "django.shortcuts.redirect", "quart.redirect",
                     "django.http.HttpResponseRedirect", "django.http.HttpResponsePermanentRedirect",
                     "fastapi.responses.RedirectResponse", "starlette.responses.RedirectResponse", "bottle.redirect",
                     "aiohttp.web.HTTPFound", "aiohttp.web.HTTPSeeOther", "aiohttp.web.HTTPMovedPermanently"),
                    (Harm.REDIRECT, (0, "location", "url", "redirect_to"))),
    **dict.fromkeys(("pickle.loads", "pickle.load", "cPickle.loads", "cPickle.load", "_pickle.loads", "dill.loads",
                     "dill.load", "marshal.loads", "marshal.load", "shelve.open", "jsonpickle.decode", "joblib.load",
                     "jsonpickle.loads", "yaml.unsafe_load", "yaml.full_load", "yaml.unsafe_load_all",
                     "cloudpickle.loads", "pandas.read_pickle", "torch.load", "pickle.Unpickler", "yaml.load",
                     "yaml.load_all"),
                    (Harm.OBJECT, (0, "data", "file"))),
    **dict.fromkeys(("django.utils.safestring.mark_safe", "markupsafe.Markup", "flask.Markup", "jinja2.Markup",
                     "django.utils.safestring.SafeString", "django.utils.html.mark_safe",
                     "fastapi.responses.HTMLResponse", "starlette.responses.HTMLResponse"),
                    (Harm.HTML, (0, "content"))),
    **dict.fromkeys(("flask.make_response", "flask.Response", "django.http.HttpResponse", "quart.make_response",
                     "aiohttp.web.Response", "django.http.response.HttpResponse", "werkzeug.wrappers.Response",
                     "starlette.responses.Response", "fastapi.Response", "fastapi.responses.Response"),
                    (Harm.HTML, (0, "response", "content", "text"))),
    **{f"{module}.{verb}": (Harm.FETCH, (0, "url")) for module in ("requests", "httpx", "aiohttp.ClientSession()",
       "requests.Session()", "requests.session()", "httpx.Client()", "httpx.AsyncClient()")
       for verb in ("get", "post", "put", "delete", "patch", "head", "options")},
    **{f"{module}.request": (Harm.FETCH, (1, "url")) for module in ("requests", "httpx", "aiohttp.ClientSession()",
       "requests.Session()", "httpx.Client()", "httpx.AsyncClient()", "urllib3.PoolManager()", "urllib3")},
    **dict.fromkeys(("urllib.request.urlopen", "urllib.request.Request", "urllib.request.urlretrieve",
                     "urllib2.urlopen", "urllib.urlopen", "http.client.HTTPConnection", "http.client.HTTPSConnection",
                     "wget.download"),
                    (Harm.FETCH, (0, "url", "host"))),
}  # fmt: skip
SUBPROCESS = frozenset(f"subprocess.{name}" for name in ("run", "call", "check_call", "check_output", "Popen"))
SHELLS = re.compile(r"(?:/\w+)*/?(?:sh|bash|dash|zsh|ksh|cmd|cmd\.exe|powershell|pwsh)$")
PATH_METHODS = words("open read_text read_bytes write_text write_bytes unlink rmdir mkdir touch iterdir rename replace")
DATABASE_NAMES = re.compile(
    r"(?i)(?:^|[._])(?:c|cur|cursor|curs|conn|con|connection|db|database|session|engine|sqlite|pool|tx|transaction|"
    r"objects|store)\w*(?:\(\))?$"
)
SQL_TEXT = re.compile(
    r"(?i)\b(?:select\b.*\bfrom|insert\s+(?:or\s+\w+\s+)?into|update\b.*\bset|delete\s+from|drop\s+|alter\s+|"
    r"create\s+(?:table|view|index|user|database)|where\s|order\s+by|exec\s|call\s|union\s)"
)
FILTER_TEXT = re.compile(r"\([&|!]?\(?[\w-]*=|(?:^|,)\s*(?:ou|dc|cn|uid|o)=")
XPATH_TEXT = re.compile(r"//|\[@?|\./|/\w+/|::")
SECRET_NAMES = re.compile(
    r"(?i)(?:^|[_\W\d]|(?<=[a-z])(?=[A-Z]))(?:token|password|passwd|passphrase|secret|session_?(?:id|key|token)|"
    r"sess_?id|otp|one_?time|api_?key|apikey|nonce|salt|csrf|credential|auth_?(?:key|code|token)|reset_?(?:code|key|link)|"
    r"verification|activation|remember|private_?key|access_?key|encryption_?key|signing_?key|signature|pin_?code|"
    r"login_?code|captcha|cookie|initialization_vector)s?(?:$|[_\W\d]|(?=[A-Z]))"
)
NOT_SECRET_NAMES = re.compile(
    r"(?i)token(?:s|iz|_?(?:count|len|type|ids?|index|kind|limit|s?_per))\b|tokenize|n_tokens|num_"
)
HARMLESS_HASH = re.compile(
    r"(?i)cache|etag|checksum|fingerprint|dedup|bucket|shard|colou?r|gravatar|avatar|content_?hash|file_?hash|digest_of_file|"
    r"short_?id|slug|partition|identity|memo|cach|file_?name|version"
)
SECRET_HASH = re.compile(r"(?i)passw|secret|token|sign|auth|credential|session|login|hmac|mac\b|salt")
PRIVILEGES = re.compile(
    r"(?:is_superuser|is_staff|is_admin|is_authenticated|has_perms?|has_permission|check_password|is_owner|can_\w+|"
    r"is_authorized|is_authorised|has_role)$"
)


_PERMISSIVE = re.compile(r"(?<!\\)\.[*+]|\\S[*+]|\[\^[^\]]{1,3}\][*+]")
_PLAIN_TEXT = frozenset({"isdigit", "isalpha", "isalnum", "isnumeric", "isdecimal", "isidentifier"})
_HOST_PARTS = frozenset({"netloc", "hostname", "host"})
# Said of a value that is one of a few constants, or has only plain characters: this needs no trust in a name.
_PROVEN = ALL_TEXT | {Harm.RANDOM}
_QUOTED = frozenset({Harm.SQL, Harm.XPATH, Harm.LDAP})


def settled(test: ast.expr, patterns: Mapping[str, str], *, truth: bool) -> dict[str, frozenset[Harm]]:
    """Which harms the variables, by name, can no longer do after a test came out this way.

    `patterns` are the regular expressions that were compiled, by name.
    """
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return settled(operand, patterns, truth=not truth)
        case ast.BoolOp(op=operator, values=values) if isinstance(operator, ast.And) is truth:
            merged: dict[str, frozenset[Harm]] = {}
            for value in values:
                for name, harms in settled(value, patterns, truth=truth).items():
                    merged[name] = merged.get(name, frozenset()) | harms
            return merged
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            return _compared(left, operator, right, patterns, truth=truth)
        case ast.Call():
            return _called(test, patterns) if truth else {}
        case ast.NamedExpr(value=ast.Call() as call):
            return _called(call, patterns) if truth else {}
        case ast.Attribute(value=ast.Name(id=name), attr=part) if part in _HOST_PARTS and not truth:
            return {name: frozenset({Harm.REDIRECT, Harm.FETCH})}
    return {}


def _compared(
    left: ast.expr, operator: ast.cmpop, right: ast.expr, patterns: Mapping[str, str], *, truth: bool
) -> dict[str, frozenset[Harm]]:
    match operator:
        case ast.Is() | ast.IsNot() if isinstance(right, ast.Constant) and right.value is None:
            holds = isinstance(operator, ast.IsNot) is truth
            return _called(left, patterns) if holds and isinstance(left, ast.Call) else {}
        case ast.In() | ast.NotIn():
            is_in = isinstance(operator, ast.In) is truth
            if isinstance(left, ast.Constant):
                return {} if is_in else _without(str(left.value), right)
            return _among(left, right) if is_in else {}
        case ast.Eq() | ast.NotEq() if isinstance(operator, ast.Eq) is truth:
            return _among(left, right) if isinstance(right, (ast.Constant, ast.Name, ast.Attribute)) else {}
    return {}


def _without(text: str, right: ast.expr) -> dict[str, frozenset[Harm]]:
    """The variable is known not to hold this text."""
    name = name_of(right)
    if not name:
        return {}
    if text in ("..", "../", "/"):
        return {name: frozenset({Harm.PATH})}
    if text in ("'", '"', "`", "("):
        return {name: _QUOTED}
    if text in ("\n", "\r"):
        return {name: frozenset({Harm.HEADER})}
    return {name: frozenset({Harm.HTML})} if text == "<" else {}


def _among(left: ast.expr, right: ast.expr) -> dict[str, frozenset[Harm]]:
    """The left side is one of the values on the right."""
    is_fixed = isinstance(right, (ast.Constant, ast.Tuple, ast.List, ast.Set, ast.Dict)) or name_of(right).isupper()
    harms = _PROVEN if is_fixed else ALL_TEXT
    if name := name_of(left):
        return {name: harms}
    if isinstance(left, ast.Attribute) and left.attr in _HOST_PARTS:
        names = [node.id for node in ast.walk(left) if isinstance(node, ast.Name)]
        return dict.fromkeys(names, frozenset({Harm.REDIRECT, Harm.FETCH}))
    if isinstance(left, ast.Call):
        names = [node.id for argument in left.args for node in ast.walk(argument) if isinstance(node, ast.Name)]
        parts = ast.unparse(left.func)[-40:]
        if parts.endswith(("commonpath", "commonprefix", "dirname")):
            return dict.fromkeys(names, frozenset({Harm.PATH}))
        if isinstance(left.func, ast.Attribute) and left.func.attr in ("lower", "upper", "strip", "get"):
            return {name: harms} if (name := name_of(left.func.value)) else {}
    return {}


def _called(call: ast.Call, patterns: Mapping[str, str]) -> dict[str, frozenset[Harm]]:
    """A call with a true result."""
    function = call.func
    last = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    names = [name for argument in call.args if (name := name_of(argument))]
    if isinstance(function, ast.Attribute) and (receiver := name_of(function.value)):
        if last in _PLAIN_TEXT:
            return {receiver: _PROVEN}
        if last == "is_relative_to":
            return {receiver: frozenset({Harm.PATH})}
        if last == "startswith":
            return {receiver: _starts(call)}
    if last in ("fullmatch", "match", "search"):
        return dict.fromkeys(names, _matched(call, last, patterns))
    if last in ("url_has_allowed_host_and_scheme", "is_safe_url"):
        return dict.fromkeys(names, frozenset({Harm.REDIRECT, Harm.FETCH}))
    if last in ("isfile", "isdir", "exists"):
        return {}
    return dict.fromkeys(names, ALL_TEXT) if GUARDS_BY_NAME.search(last) else {}


def _starts(call: ast.Call) -> frozenset[Harm]:
    """What the start of a text rules out: another directory, if the path was resolved; or another host."""
    match call.args:
        case [ast.Constant(value=str(text))] if "://" in text and text.count("/") > 2:
            return frozenset({Harm.REDIRECT, Harm.FETCH})
        case [ast.Constant(value=str(text))] if not text.startswith("/"):
            return frozenset()
    return frozenset({Harm.PATH})


def _matched(call: ast.Call, how: str, patterns: Mapping[str, str]) -> frozenset[Harm]:
    pattern = next(
        (arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)),
        patterns.get(name_of(call.func.value) if isinstance(call.func, ast.Attribute) else ""),
    )
    if pattern is None:
        return ALL_TEXT
    is_whole = how == "fullmatch" or (pattern.endswith(("$", r"\Z")) and (how == "match" or pattern.startswith("^")))
    return _PROVEN if is_whole and not _PERMISSIVE.search(pattern) else frozenset()


def name_of(node: ast.AST) -> str:
    """The name of a variable, or of an attribute of `self`; else nothing."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return f"self.{name}"
        case ast.Call(func=ast.Name(id="str" | "Path"), args=[ast.Name(id=name)]):
            return name
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Slice()):
            return name
    return ""


def made_safe(
    env: dict[str, Value], settled_names: dict[str, frozenset[Harm]], made_from: dict[str, str]
) -> dict[str, Value]:
    """The variables after a test. What was tested as an address holds for the text that it was `made_from` too."""
    refined = dict(env)
    for name, harms in [
        *settled_names.items(),
        *((made_from.get(name, ""), found) for name, found in settled_names.items()),
    ]:
        value = refined.get(name)
        if value is not None and harms:
            refined[name] = value.but(
                safe=value.safe | harms,
                proven=value.proven if harms == ALL_TEXT else value.proven | harms,
                harmless=value.harmless or harms == _PROVEN,
            )
    return refined


def fits(pattern: ast.pattern, const: Any) -> bool | None:
    """Whether a pattern fits a constant; None where that is not known."""
    match pattern:
        case ast.MatchValue(value=ast.Constant(value=value)):
            return bool(value == const)
        case ast.MatchOr(patterns=patterns):
            answers = [fits(part, const) for part in patterns]
            return True if True in answers else None if None in answers else False
        case ast.MatchAs(pattern=None):
            return True
    return None


def captured(pattern: ast.pattern) -> list[str]:
    """The names that a pattern gives to what it fits."""
    return [part.name for part in ast.walk(pattern) if isinstance(part, (ast.MatchAs, ast.MatchStar)) and part.name]
