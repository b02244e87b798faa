"""Knowledge about libraries and names: sources, sinks, sanitisers, and functions that pass data on.

The tables are Python code and not a data file, because a worker loads them at each start. A name such as `os.system` is
the full name that the imports of a module give. A name that starts with a dot is a method of any object.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from codeloupe.analysers.dataflow.harms import NO_HARMS, Harm, Harms
from codeloupe.system.regex import regex


class Sink(NamedTuple):
    """Functions in which outside data does harm, and the arguments that matter, by position or name."""

    harm: Harm
    arguments: tuple[int | str, ...]
    names: str


_FETCHING_CLIENTS = """
    requests httpx aiohttp.ClientSession() requests.Session() requests.session() httpx.Client() httpx.AsyncClient()"""
_METHODS_THAT_FETCH = [
    Sink(Harm.FETCH, (0, "url"), " ".join(f"{client}.{method}" for client in _FETCHING_CLIENTS.split()))
    for method in ("get", "post", "put", "delete", "patch", "head", "options")
]
_SINK_TABLE = (
    Sink(
        Harm.SHELL,
        (0, "cmd"),
        """
        os.system os.popen os.popen2 os.popen3 subprocess.getoutput commands.getoutput subprocess.getstatusoutput
        asyncio.create_subprocess_shell popen2.popen3 pty.spawn asyncio.subprocess.create_subprocess_shell
        os.startfile""",
    ),
    Sink(
        Harm.SHELL,
        (0,),
        """
        os.execl os.execle os.execlp os.execv os.execve os.execvp os.execvpe asyncio.create_subprocess_exec
        os.posix_spawn .exec_command .getoutput""",
    ),
    Sink(
        Harm.SHELL,
        (1,),
        "os.spawnl os.spawnlp os.spawnv os.spawnvp",
    ),
    Sink(
        Harm.CODE,
        (0,),
        """
        eval exec builtins.eval builtins.exec compile __import__ runpy.run_path importlib.import_module
        code.interact timeit.timeit""",
    ),
    Sink(
        Harm.SQL,
        (0, "sql", "query", "statement"),
        ".execute .executemany .executescript .execute_sql .raw .fetchrow .fetchval",
    ),
    Sink(
        Harm.SQL,
        ("where", "select", "tables", "order_by"),
        ".extra",
    ),
    Sink(
        Harm.SQL,
        (0,),
        """
        sqlalchemy.text sqlalchemy.sql.text django.db.models.expressions.RawSQL sqlalchemy.sql.expression.text
        sqlalchemy.literal_column psycopg2.sql.SQL psycopg.sql.SQL""",
    ),
    Sink(
        Harm.SQL,
        (0, "sql"),
        "pandas.read_sql pandas.read_sql_query",
    ),
    Sink(
        Harm.PATH,
        (0, "file", "path", "path_or_file"),
        """
        open io.open codecs.open os.open os.remove os.unlink os.rmdir os.removedirs os.mkdir os.makedirs os.listdir
        os.scandir os.chmod os.walk os.truncate shutil.rmtree flask.send_file zipfile.ZipFile tarfile.open gzip.open
        bz2.open aiofiles.open fastapi.responses.FileResponse starlette.responses.FileResponse
        aiohttp.web.FileResponse linecache.getline flask.send_from_directory""",
    ),
    Sink(
        Harm.PATH,
        (0, 1),
        "os.rename os.replace os.link os.symlink shutil.copy shutil.copy2 shutil.move shutil.copyfile shutil.copytree",
    ),
    Sink(
        Harm.XPATH,
        (0, "path"),
        ".xpath lxml.etree.XPath lxml.etree.ETXPath lxml.etree.XPathEvaluator .find .findall .findtext .iterfind",
    ),
    Sink(
        Harm.XPATH,
        (0, 1, "path"),
        "elementpath.select elementpath.iter_select elementpath.Selector",
    ),
    Sink(
        Harm.LDAP,
        (0, 1, 2, "search_filter", "filterstr", "search_base"),
        ".search_s .search_ext_s .search_st .search_ext .search .paged_search",
    ),
    Sink(
        Harm.TEMPLATE,
        (0, "source", "text"),
        """
        flask.render_template_string jinja2.Template .from_string mako.template.Template django.template.Template
        quart.render_template_string bottle.template bottle.SimpleTemplate tornado.template.Template""",
    ),
    Sink(
        Harm.REDIRECT,
        (0, "location", "url", "redirect_to"),
        """
        flask.redirect werkzeug.utils.redirect django.shortcuts.redirect quart.redirect
        django.http.HttpResponseRedirect django.http.HttpResponsePermanentRedirect
        fastapi.responses.RedirectResponse starlette.responses.RedirectResponse bottle.redirect
        aiohttp.web.HTTPFound aiohttp.web.HTTPSeeOther aiohttp.web.HTTPMovedPermanently""",
    ),
    Sink(
        Harm.OBJECT,
        (0, "data", "file"),
        """
        pickle.loads pickle.load cPickle.loads cPickle.load _pickle.loads dill.loads dill.load marshal.loads
        marshal.load shelve.open jsonpickle.decode joblib.load jsonpickle.loads yaml.unsafe_load yaml.full_load
        yaml.unsafe_load_all cloudpickle.loads pandas.read_pickle torch.load pickle.Unpickler yaml.load
        yaml.load_all""",
    ),
    Sink(
        Harm.HTML,
        (0, "content"),
        """
        django.utils.safestring.mark_safe markupsafe.Markup flask.Markup jinja2.Markup
        django.utils.safestring.SafeString django.utils.html.mark_safe fastapi.responses.HTMLResponse
        starlette.responses.HTMLResponse""",
    ),
    Sink(
        Harm.HTML,
        (0, "response", "content", "text"),
        """
        flask.make_response flask.Response django.http.HttpResponse quart.make_response aiohttp.web.Response
        django.http.response.HttpResponse werkzeug.wrappers.Response starlette.responses.Response fastapi.Response
        fastapi.responses.Response""",
    ),
    *_METHODS_THAT_FETCH,
    Sink(
        Harm.FETCH,
        (1, "url"),
        """
        requests.request httpx.request aiohttp.ClientSession().request requests.Session().request
        httpx.Client().request httpx.AsyncClient().request urllib3.PoolManager().request urllib3.request""",
    ),
    Sink(
        Harm.FETCH,
        (0, "url", "host"),
        """
        urllib.request.urlopen urllib.request.Request urllib.request.urlretrieve urllib2.urlopen urllib.urlopen
        http.client.HTTPConnection http.client.HTTPSConnection wget.download""",
    ),
)


SINKS: dict[str, Sink] = {}
for _sink in _SINK_TABLE:
    for _name in _sink.names.split():
        SINKS[_name] = _sink

# Functions that start a program.
SUBPROCESS_FUNCTIONS = frozenset(
    {"subprocess.run", "subprocess.call", "subprocess.check_call", "subprocess.check_output", "subprocess.Popen"}
)
# Methods of a path that use the file.
PATH_METHODS = frozenset(
    {
        *("open", "read_text", "read_bytes", "write_text", "write_bytes", "unlink", "rmdir", "mkdir", "touch"),
        *("iterdir", "rename", "replace"),
    }
)
# Functions of lxml that parse XML.
LXML_FUNCTIONS = frozenset({"fromstring", "parse", "XML", "iterparse", "fromstringlist"})

# Functions whose result can no longer do these harms. The first pattern that matches the full name counts.
_SANITISERS: tuple[tuple[re.Pattern[str], Harms], ...] = (
    (regex(r"(?:shlex|pipes)\.(?:quote|join)"), frozenset({Harm.SHELL})),
    (
        regex(r".*\b(?:escape_filter_chars|escape_dn_chars|escape_rdn|filter_format)"),
        frozenset({Harm.LDAP}),
    ),
    (
        regex(r".*\b(?:secure_filename|safe_join|basename|get_valid_filename|sanitize_filename)"),
        frozenset({Harm.PATH}),
    ),
    (regex(r".*\b(?:url_for|reverse|iri_to_uri)"), frozenset({Harm.HTML, Harm.REDIRECT, Harm.FETCH})),
    (
        regex(r"(?:urllib\.parse\.|urllib\.)(?:quote|quote_plus|urlencode)"),
        frozenset({Harm.HTML, Harm.HEADER, Harm.LDAP, Harm.REDIRECT, Harm.FETCH, Harm.XPATH}),
    ),
    (
        regex(
            r"(?:.*\.)?(?:_*(?:quote|escape)_?(?:ident|name|string|sql|table|column)\w*|sql\.Identifier|sql\.Literal)"
        ),
        frozenset({Harm.SQL}),
    ),
    (regex(r"(?:.*\.)?(?:sqlescape|mogrify)"), frozenset({Harm.SQL})),
    (
        regex(
            r"(?i)(?:.*\.)?\w*(?:escape|sanitize|sanitise|bleach|striptags|strip_tags|linkify|format_html|nh3|clean_html)"
            r"\w*(?:\.clean)?"
        ),
        frozenset({Harm.HTML}),
    ),
    (regex(r"(?:json\.dumps|.*jsonify)"), frozenset({Harm.HTML})),
    # Data that this program serialised itself loads no foreign objects.
    (regex(r"(?:pickle|cPickle|_pickle|dill|cloudpickle|marshal)\.dumps|jsonpickle\.encode"), frozenset({Harm.OBJECT})),
)


@cache
def sanitised_harms(path: str) -> Harms:
    """Return the harms that the result of the function with this full name can no longer do."""
    for pattern, safe in _SANITISERS:
        if pattern.fullmatch(path):
            return safe
    return NO_HARMS


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Requests as objects, and their parts that the sender decides.
REQUEST_OBJECTS = _words(
    "flask.request quart.request bottle.request flask.globals.request webob.request pyramid.request"
)
REQUEST_PARTS = _words("""
    args form values cookies headers json data files query_string full_path url base_url referrer view_args stream GET
    POST body META FILES COOKIES REQUEST query_params path_params match_info rel_url query forms params raw_post_data
    get_json get_data post text read form_data arguments files_data uri body_arguments getlist query_arguments url_rule
    get_full_path get_raw_uri build_absolute_uri input_stream""")
# Methods that return data of the sender: methods of tornado's handlers, and of connections.
HANDLER_METHODS = _words("""
    get_argument get_arguments get_query_argument get_query_arguments get_body_argument get_body_arguments
    get_cookie""")
NETWORK_METHODS = _words("recv recvfrom receive_text receive_json receive_bytes")
# Decorators that give a function an address, and parameters of such functions that the framework fills itself.
ROUTE_METHODS = _words("route get post put delete patch options head websocket api_route view")
NOT_FROM_ADDRESS = _words("obj form queryset response exception template context model_admin view_func change")
# Attributes of a request that contain no text of its sender.
WITHOUT_TEXT = _words("size content_length status_code method user session remote_addr scheme")
# Frameworks that show the text that a function returns as a page.
PAGE_FRAMEWORKS = _words("flask quart bottle")
# Functions that do not return.
ENDING_FUNCTIONS = _words("abort flask.abort sys.exit exit quit os._exit bottle.abort")
ARCHIVES = _words("zipfile.ZipFile() tarfile.open()")
# Functions of `random` that return nothing random.
WITHOUT_CHANCE = _words("seed getstate setstate SystemRandom Random shuffle")
# Parts of an address that name its host.
HOST_PARTS = _words("netloc hostname host")
# Parts of content types that no browser shows as a page.
OTHER_CONTENT_TYPES = ("json", "plain", "csv", "image", "octet", "pdf", "xml", "javascript", "event-stream")

# Functions and methods whose result contains no text of their arguments.
TEXTLESS_FUNCTIONS = _words("""
    int float bool len abs round hash ord id type isinstance issubclass any all sum callable complex range uuid.UUID
    decimal.Decimal datetime.date.fromisoformat datetime.datetime.fromisoformat datetime.datetime.strptime
    ast.literal_eval ipaddress.ip_address hmac.compare_digest secrets.compare_digest django.utils.text.slugify
    slugify.slugify""")
TEXTLESS_METHODS = _words("""
    isdigit isalpha isalnum isnumeric isdecimal isidentifier startswith endswith count find index rfind rindex exists
    is_file is_dir keys_count hexdigest digest __len__ is_relative_to""")

# Some of these functions and methods can return text: a literal, the scope of an address, or the result of a method of
# another object than a text. They never make a sink safe.
TRUSTED_TO_BE_TEXTLESS = _words(
    "ast.literal_eval ipaddress.ip_address type sum find index count rfind rindex keys_count"
)
# Modules whose functions also read files, of which the name alone is given.
READING_MODULES = _words("gzip codecs email http.cookies cgi pydantic copy collections operator")

# Functions that pass on what they are given: by full name, and every function of a module.
_PROPAGATORS = _words("""
    str bytes bytearray repr format ascii list tuple dict set frozenset sorted reversed next iter zip enumerate map
    filter max min print super vars getattr os.fspath os.fsdecode io.StringIO io.BytesIO html.unescape string.Template
    string.capwords functools.reduce xmltodict.parse yaml.safe_load shlex.split typing.cast asyncio.wait_for __format__
    jinja2.Markup markupsafe.Markup sqlalchemy.text re.sub re.subn re.split re.search re.match re.fullmatch
    re.findall""")
_PROPAGATING_MODULES = _words("""
    os.path posixpath ntpath urllib.parse base64 json simplejson orjson ujson codecs binascii copy pathlib textwrap
    collections operator zlib gzip http.cookies cgi unicodedata werkzeug.urls django.utils.encoding pydantic""")
_PROPAGATING_PREFIXES = ("email.", "itertools.", "urllib.unquote")


def passes_on(path: str) -> bool:
    """Return whether the function with this full name passes on what it is given."""
    if path in _PROPAGATORS:
        return True
    module, _, name = path.rpartition(".")
    if module in _PROPAGATING_MODULES:
        return "(" not in name
    return path.startswith(_PROPAGATING_PREFIXES) and "(" not in path


_STOPPING_NAMES = tuple(
    _words("""
    get find fetch load look search filter query select create save store insert update delete remove add set check
    valid verify is has can should escape clean sanit hash encrypt sign render log debug info warn error exception
    critical print send write open read execute run call commit count len jsonify redirect abort response post put patch
    notify publish emit authenticate login register raise assert parse_int to_int safe allowed secure quote int float
    bool make new build start stop close exists compare match test schedule submit handle process dispatch serialize
    first one all token generate model""")
)


def stops_by_name(name: str) -> bool:
    """Return whether a function of another module, by its name, does more than pass on what it is given."""
    return name.lstrip("_").lower().startswith(_STOPPING_NAMES)


# Names of functions that read a part of the request they are given.
READS_REQUEST = regex(r"(?i)^(?!.*safe).*(?:param|arg(?:ument)?s?$|field|value|input|query|header|cookie|wrap)")
# Variables of the WSGI environment that the server sets, and those that the sender decides.
SERVER_VARIABLES = regex(r"REMOTE_ADDR|SERVER_\w+|REQUEST_METHOD|wsgi\.(?!input)\w+|CONTENT_LENGTH")
SENDER_VARIABLES = regex(r"QUERY_STRING|PATH_INFO|REQUEST_URI|RAW_URI|CONTENT_TYPE|HTTP_\w+|wsgi\.input")
# Classes whose methods a web framework calls.
VIEW_CLASSES = regex(r"\b(?:MethodView|APIView|HTTPEndpoint|Resource)\b")
# Parameters in an address that are numbers.
NUMBERS_IN_ROUTE = regex(r"<(?:int|float|uuid)(?:\([^)]*\))?:(\w+)>|\{(\w+):(?:int|float|uuid)\}")
NUMBER_ANNOTATION = regex(r"(?:^|\[)(?:int|float|bool|(?:uuid\.)?UUID)\b")
_WRAPPED_ANNOTATION = regex(
    r"(?:typing\.)?(?:Annotated\[([^,\[\]]+),.*|Optional\[([^\[\]]+)\]|([^|\[\]]+?)[ ]?\|[ ]?None)"
)
_SAFE_ANNOTATION = regex(
    r"""(?:typing\.)?(?:Optional\[)?(?:int|float|bool|Decimal|UUID|uuid\.UUID|date|datetime|timedelta|IPv\w+
    |(?:starlette\.|fastapi\.)?(?:Response|BackgroundTasks|SecurityScopes|HTTPConnection)
    |.*(?:Session|Connection|Settings|Service|Repository|Client|Enum|Literal|Depends).*)\b""",
    re.VERBOSE,
)


def is_textless_annotation(annotation: str) -> bool:
    """Return whether a value with this annotation contains no text of a sender."""
    wrapped = _WRAPPED_ANNOTATION.fullmatch(annotation)
    if wrapped:
        annotation = wrapped[1] or wrapped[2] or wrapped[3]
    return _SAFE_ANNOTATION.fullmatch(annotation) is not None


# Functions that check their argument, by their names.
GUARD_NAMES = regex(
    r"(?:^|_)(?:is_|_)?(?:safe|valid|allowed|permitted|trusted|whitelisted|known)|^(?:validate|check|verify)_"
)
# Parts of a regular expression that let anything pass.
PERMISSIVE_PATTERN = regex(r"(?<!\\)\.[*+]|\\S[*+]|\[\^[^\]]{1,3}\][*+]")
# Functions that split an address into its parts.
ADDRESS_PARSERS = frozenset({"urlparse", "urlsplit", "make_url", "parse_url"})
# Programs that run the text they are given.
SHELL_PROGRAMS = regex(r"(?:/\w+)*/?(?:sh|bash|dash|zsh|ksh|cmd|cmd\.exe|powershell|pwsh)$")
# A text in which a quoted word is read by a second shell, or in which its quotes end others.
INTERPRETED_AGAIN = regex(r"['\"]|\b(?:sh|bash|dash|zsh|ksh|cmd|powershell|pwsh)\b|\b(?:ssh|eval|su|sudo|xargs|env)\b")
# The name of a constant.
CONSTANT_NAME = regex(r"[A-Z][A-Z0-9_]*")
# A computed signature.
SIGNATURE = regex(r"hmac\.(?:new\(\)\.(?:hex)?digest|digest)\(\)")
# Formats that accept only numbers: the format of a hole in an f-string, and a whole text for `%`.
NUMBER_FORMAT = regex(r"[^{}%]*[bcdoxXeEfFgGn%]")
NUMBERS_ONLY_FORMAT = regex(r"(?:[^%]|%%|%[-+ 0#]*\d*(?:\.\d+)?[diouxXeEfFgG])*")
# Names of objects that run queries, and texts that are queries in SQL, LDAP and XPath.
DATABASE_NAMES = regex(
    r"(?i)(?:^|[._])(?:c|cur|cursor|curs|conn|con|connection|db|database|session|engine|sqlite|pool|tx|transaction|"
    r"objects|store)\w*(?:\(\))?$"
)
SQL_TEXT = regex(
    r"(?i)\b(?:select\b.*\bfrom|insert\s+(?:or\s+\w+\s+)?into|update\b.*\bset|delete\s+from|drop\s+|alter\s+|"
    r"create\s+(?:table|view|index|user|database)|where\s|order\s+by|exec\s|call\s|union\s)"
)
# Texts that ruff takes for queries in SQL, and the words in the source code of such a text.
QUERY_TEXT = regex(r"(?is)\b(?:(?:select|delete)\s.*\bfrom|(?:insert|replace)\s.*\b(?:into|values)|update\s.*\bset)\b")
QUERY_START = regex(r"(?i)\b(?:select|delete|insert|replace|update)(?=[\s'\"\\{%])")
QUERY_END = regex(r"(?i)\b(?:from|into|values|set)\b(?!\()")
LDAP_FILTER = regex(r"\([&|!]?\(?[\w-]*=|(?:^|,)\s*(?:ou|dc|cn|uid|o)=")
XPATH_TEXT = regex(r"//|\[@?|\./|/\w+/|::")
# Names of secrets, and names that only look like them.
_SECRET_NAME = regex(
    r"""(?i)(?:^|[_\W\d]|(?<=[a-z])(?=[A-Z]))
    (?:token|password|passwd|passphrase|secret|session_?(?:id|key|token)|sess_?id|otp|one_?time|api_?key|apikey|nonce
    |salt|csrf|credential|auth_?(?:key|code|token)|reset_?(?:code|key|link)|verification|activation|remember
    |private_?key|access_?key|encryption_?key|signing_?key|signature|pin_?code|login_?code|captcha|cookie
    |initialization_vector)s?(?:$|[_\W\d]|(?=[A-Z]))""",
    re.VERBOSE,
)
_NOT_SECRET_NAME = regex(
    r"(?i)token(?:s|iz|_?(?:count|len|type|ids?|index|kind|limit|s?_per))\b|tokenize|n_tokens|num_"
)


def names_a_secret(name: str) -> bool:
    """Return whether a variable, key or function of this name contains a secret."""
    return _SECRET_NAME.search(name) is not None


def only_resembles_a_secret(name: str) -> bool:
    """Return whether a name only looks like that of a secret, such as `token_count`."""
    return _NOT_SECRET_NAME.search(name) is not None


# Names around a weak hash that is harmless, and names around one that is not.
HARMLESS_HASH = regex(
    r"(?i)cache|etag|checksum|fingerprint|dedup|bucket|shard|colou?r|gravatar|avatar|content_?hash|file_?hash|"
    r"digest_of_file|short_?id|slug|partition|identity|memo|cach|file_?name|version"
)
SECRET_HASH = regex(r"(?i)passw|secret|token|sign|auth|credential|session|login|hmac|mac\b|salt")
# Attributes and methods that check a user's permissions.
PERMISSION_CHECKS = regex(
    r"(?:is_superuser|is_staff|is_admin|is_authenticated|has_perms?|has_permission|check_password|is_owner|can_\w+|"
    r"is_authorized|is_authorised|has_role)$"
)
