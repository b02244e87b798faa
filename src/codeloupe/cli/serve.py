"""`codeloupe serve`: a database and workers for a team, on one machine, with one command."""

from __future__ import annotations

import argparse
import os
import re
import secrets
import socket
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import quote

from codeloupe.cli.parser import Parser, examples, flag, option
from codeloupe.cli.verbs import note, set_up_logging, write_result
from codeloupe.config.loading import database_url
from codeloupe.errors import StoreError, UsageError, install_command
from codeloupe.reports.wording import counted
from codeloupe.store import without_password
from codeloupe.store.records import replace_file
from codeloupe.store.sqlite import state_directory
from codeloupe.system.postgres_server import Listen, PostgresServer

_EPILOG = """\
Without a configured database, serve starts its own Postgres server (extra `embedded`), whose data is in the state
directory. Clients on this machine that run as the same user connect through a socket. With --listen, others connect
over TCP, always with a password, which is created once and stored in the state directory. Connections over TCP are
not encrypted: use them in a private network, or listen on 127.0.0.1 and connect through an SSH tunnel.

Ctrl-C or SIGTERM stops the workers, then the database. Jobs that were running continue at the next start.
"""
_ADDRESS = re.compile(r"(?:(?P<host>\[[0-9a-fA-F:]+\]|[^\[\]:,\s]+):)?(?P<port>[0-9]{1,5})")
# Each worker uses about a dozen connections, and each client two.
_CONNECTIONS = 300


def configure(parser: Parser) -> None:
    """Add the options of `serve`."""
    parser.epilog = _EPILOG
    option(parser, "--workers", "N", "worker processes to start (default: 2)", type=int, default=2)
    option(parser, "--concurrency", "N", "jobs at a time in each worker (default: 4)", type=int, default=4)
    about = "also accept connections over TCP, with a password (HOST: 127.0.0.1)"
    option(parser, "--listen", "[HOST:]PORT", about)
    option(parser, "--password-file", "FILE", "with --listen: the password (default: one is created)", type=Path)
    option(
        parser, "--grace", "SECONDS", "how long running jobs may take to end (default: 30)", type=float, default=30.0
    )
    option(parser, "--cache", "DIR", "where clones are stored (default: in the state directory)", type=Path)
    option(parser, "--cache-gb", "N", "the most space for clones (default: 20)", type=float, default=20.0)
    flag(parser, "-q --quiet", "print only the address for clients, and log only warnings")
    examples(parser, "codeloupe serve", "codeloupe serve --workers 4 --listen 0.0.0.0:5433")


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal comes."""
    if arguments.workers < 1 or arguments.concurrency < 1 or not 0 <= arguments.grace < 1e9:
        hint = "omit them to use the defaults"
        raise UsageError("--workers and --concurrency must be above 0, and --grace not below 0", hint=hint)
    if arguments.password_file is not None and arguments.listen is None:
        raise UsageError("--password-file is for --listen", hint="give --listen [HOST:]PORT as well")
    try:
        from codeloupe.workers.serving import DatabaseService, Service, WorkerService, serve
    except ImportError as error:
        raise StoreError("the Postgres driver is not installed", hint=install_command("embedded")) from error
    set_up_logging(verbose=True)
    services: list[Service] = []
    url = database_url(os.environ)
    client_url = url
    if url is None:
        listen = _listen(arguments)
        server = PostgresServer(
            state_directory(os.environ) / "postgres", settings=(f"max_connections={_CONNECTIONS}",), listen=listen
        )
        services.append(DatabaseService(server))
        url = server.url
        client_url = url
        if listen is not None:
            client_url = _client_url(listen)
            _warn_if_exposed(listen)
    elif arguments.listen is not None:
        hint = "omit --listen, or unset CODELOUPE_DATABASE and `database` in your settings"
        raise UsageError("--listen is for the server that serve starts, but a database is configured", hint=hint)
    options = _worker_options(arguments)
    services.append(WorkerService(url, arguments.workers, options, grace_seconds=arguments.grace))
    note(f"starting {counted(arguments.workers, 'worker')} on {without_password(url)}", quiet=arguments.quiet)
    serve(services, ready=partial(_show_ready, client_url or url, quiet=arguments.quiet))
    note("stopped", quiet=arguments.quiet)
    return 0


def _worker_options(arguments: argparse.Namespace) -> list[str]:
    options = ["--concurrency", str(arguments.concurrency), "--cache-gb", f"{arguments.cache_gb:g}"]
    if arguments.cache is not None:
        options += ["--cache", str(arguments.cache.absolute())]
    if arguments.quiet:
        options.append("--quiet")
    return options


def _show_ready(url: str, *, quiet: bool) -> None:
    variable = f"export CODELOUPE_DATABASE='{url}'"
    if quiet:
        write_result(f"{variable}\n")
        return
    lines = (
        "Ready. Set this variable where you run codeloupe:",
        "",
        f"    {variable}",
        "",
        "Then, in a clone whose commits are pushed:",
        "",
        "    codeloupe review --commit HEAD --on-workers",
        "    codeloupe workers",
        "",
        "Press Ctrl-C to stop.",
    )
    write_result("\n".join(lines) + "\n")


def _listen(arguments: argparse.Namespace) -> Listen | None:
    """Return the address and the password for connections over TCP. Raise UsageError."""
    if arguments.listen is None:
        return None
    found = _ADDRESS.fullmatch(arguments.listen)
    port = int(found["port"]) if found else 0
    if found is None or not 0 < port < 65536:
        raise UsageError(f"{arguments.listen!r} is not an address", hint="give PORT or HOST:PORT, such as 0.0.0.0:5433")
    host = (found["host"] or "127.0.0.1").strip("[]")
    return Listen(host, port, _password(arguments.password_file))


def _password(file: Path | None) -> str:
    """Return the password from a file of the user, or the one that was created by the first `serve --listen`."""
    chosen = file or state_directory(os.environ) / "serve-password"
    try:
        if file is None and not chosen.exists():
            chosen.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(chosen, f"{secrets.token_urlsafe(24)}\n".encode())
        password = chosen.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the password in {chosen}: {error}", hint="check that file") from error
    if len(password) < 12 or "\n" in password:
        hint = "write at least 12 characters on one line"
        raise UsageError(f"the password in {chosen} is too short, or has several lines", hint=hint)
    return password


def _client_url(listen: Listen) -> str:
    """Return the URL for clients."""
    host = _client_host(listen.host)
    if ":" in host:
        host = f"[{host}]"
    return f"postgresql://codeloupe:{quote(listen.password, safe='')}@{host}:{listen.port}/codeloupe"


def _warn_if_exposed(listen: Listen) -> None:
    """Warn that other machines connect without encryption, and say how to connect through SSH instead."""
    if _is_loopback(listen.host):
        return
    port = listen.port
    tunnel = f"ssh -N -L {port}:127.0.0.1:{port} {_client_host(listen.host)}"
    note(
        f"connections to port {port} are not encrypted: use them in a private network, or start with"
        f" `--listen {port}` and connect through an SSH tunnel (`{tunnel}` on the client's machine)"
    )


def _client_host(host: str) -> str:
    """Return the name of this machine for clients: its host name if the server listens on every address."""
    if host == "*":
        return socket.gethostname()
    try:
        is_every_address = ip_address(host).is_unspecified
    except ValueError:
        return host
    return socket.gethostname() if is_every_address else host


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
