import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codeloupe.errors import CodeloupeError, GitFailed, RevisionError, UsageError
from codeloupe.git.pull_request import (
    RemoteAddress,
    access_to,
    address_beside,
    branch_ref,
    page_of,
    parse_pull_request,
    parse_remote,
    remote_failure,
)
from codeloupe.system.process import Completed
from tests.rows import each

ROOT = Path("/some/where")
PASSWORD = "s3" + "cret-word"


@each(
    ("text", "number", "url", "family"),
    [
        ("https://github.com/owner/shop/pull/7", 7, "https://github.com/owner/shop.git", "pull"),
        ("https://github.com/owner/shop/pull/7/files#diff-1", 7, "https://github.com/owner/shop.git", "pull"),
        ("https://GitHub.com/owner/shop.git/pull/12?w=1", 12, "https://github.com/owner/shop.git", "pull"),
        ("https://forge.example:8443/owner/shop/pull/7", 7, "https://forge.example:8443/owner/shop.git", "pull"),
        ("https://codeberg.org/owner/shop/pulls/7", 7, "https://codeberg.org/owner/shop.git", "pull"),
        ("https://github.com/pull/pulls/pull/3", 3, "https://github.com/pull/pulls.git", "pull"),
        ("https://gitlab.com/a/b/c/-/merge_requests/9/diffs", 9, "https://gitlab.com/a/b/c.git", "merge-requests"),
        ("https://gitlab.com/a/b/merge_requests/9", 9, "https://gitlab.com/a/b.git", "merge-requests"),
        ("http://127.0.0.1:8080/owner/shop/pull/7", 7, "http://127.0.0.1:8080/owner/shop.git", "pull"),
        ("http://[::1]:8080/owner/shop/pull/7", 7, "http://[::1]:8080/owner/shop.git", "pull"),
    ],
)
def test_a_url_names_repository_number_and_kind_of_ref(text: str, number: int, url: str, family: str) -> None:
    found = parse_pull_request(text)
    assert found.address is not None
    assert (found.number, found.address.url, found.family) == (number, url, family)
    assert found.address.protocol == url.partition(":")[0]
    for alone in ("7", "#7", "!7"):
        found = parse_pull_request(alone)
        assert (found.number, found.address, found.family) == (7, None, None)


@each(
    "text",
    [
        *("", "0", "-7", "7a", "seven", "\u0667", "99999999999", "7 8", "main", "owner/shop", "shop#7", "o/s#0"),
        *("../shop#7", "o/..#7", "-o/s#7", "o/-s#7", "o//s#7", "/o/s#7", "o/s#7#8", "h:o/s#7", "o/s\n#7", "a@o/s#7"),
        *("https://github.com/owner/shop", "https://github.com/owner/pull/7", "https://github.com/pull/7"),
        *("https://github.com/owner/shop/pull/", "https://github.com/owner/shop/pull/x", "https:///o/s/pull/7"),
        *("https://github.com/owner/shop/pull/0", "https://github.com/../shop/pull/7", "https://h:port/o/s/pull/7"),
        *("ftp://github.com/owner/shop/pull/7", "file:///owner/shop/pull/7", "ext::sh -c x% /o/s/pull/7"),
        *("ssh://git@github.com/owner/shop/pull/7", "git://github.com/owner/shop/pull/7"),
        *("https://-oProxyCommand=x/o/s/pull/7", "https://ho st/o/s/pull/7", "https://h/o\n/s/pull/7"),
        *("https://h\u202e/o/s/pull/7", "https://[::zz]/o/s/pull/7", "x" * 5_000),
    ],
)
def test_what_names_no_pull_request_is_refused_in_words(text: str) -> None:
    with pytest.raises(UsageError, match="does not name a pull request") as error:
        parse_pull_request(text)
    assert "https://HOST/OWNER/NAME/pull/7" in error.value.hint
    assert len(error.value.message) < 600


@each(
    ("remotes", "url"),
    [
        ([], "https://github.com/owner/shop.git"),
        (["/srv/git/other.git"], "https://github.com/owner/shop.git"),
        (["git@forge.example:Owner/Shop.git"], "git@forge.example:Owner/Shop.git"),
        (["/srv/owner/shop.git", "https://forge.example/owner/shop"], "/srv/owner/shop.git"),
        (["ssh://git@forge.example:22/ada/shop"], "https://forge.example/owner/shop.git"),
        (["http://127.0.0.1:8080/not/owner/shops"], "http://127.0.0.1:8080/owner/shop.git"),
    ],
)
def test_owner_and_name_lead_to_a_remote_at_hand_or_to_its_host_or_to_github(remotes: list[str], url: str) -> None:
    found = parse_pull_request("owner/shop#7")
    assert (found.number, found.address, found.repository) == (7, None, "owner/shop")
    assert found.repository is not None
    assert address_beside(found.repository, [parse_remote(text, ROOT) for text in remotes]).url == url


@each("text", ["https://ada:{}@h/o/s/pull/7", "ssh://ada:{}@h/o/s/pull/7", "https://{}@h/o/s/pull/7"])
def test_a_password_in_a_url_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_pull_request(text.format(PASSWORD))
    assert PASSWORD not in error.value.message + error.value.hint


def test_plain_http_goes_to_this_machine_alone() -> None:
    with pytest.raises(UsageError, match="plain http"):
        parse_pull_request("http://github.com/owner/shop/pull/7")
    with pytest.raises(UsageError, match="plain http"):
        parse_remote("http://192.0.2.7/owner/shop.git", ROOT)
    local = parse_remote("http://localhost:3000/owner/shop.git", ROOT)
    assert local.protocol == "http"
    assert "http.followRedirects=false" in access_to("http", {}, with_helper=False)[0]
    assert "http.followRedirects=initial" in access_to("https", {}, with_helper=False)[0]


@each(
    ("text", "url", "protocol", "name"),
    [
        ("https://github.com/owner/shop.git", "https://github.com/owner/shop.git", "https", "github.com/owner/shop"),
        (f"https://x:{PASSWORD}@github.com/o/shop", "https://github.com/o/shop", "https", "github.com/o/shop"),
        ("git@github.com:owner/shop.git", "git@github.com:owner/shop.git", "ssh", "github.com/owner/shop"),
        ("github.com:owner/shop", "github.com:owner/shop", "ssh", "github.com/owner/shop"),
        (f"ssh://git:{PASSWORD}@h:2222/o/shop.git", "ssh://git@h:2222/o/shop.git", "ssh", "h/o/shop"),
        ("git+ssh://git@h/o/shop.git", "ssh://git@h/o/shop.git", "ssh", "h/o/shop"),
        ("/srv/git/shop.git", "/srv/git/shop.git", "file", "/srv/git/shop.git"),
        ("file:///srv/git/shop.git", "/srv/git/shop.git", "file", "/srv/git/shop.git"),
        ("../shop.git", "/some/shop.git", "file", "/some/shop.git"),
        ("./a:b", "/some/where/a:b", "file", "/some/where/a:b"),
    ],
)
def test_a_remote_of_the_users_own_is_read_as_git_reads_it_without_passwords(
    text: str, url: str, protocol: str, name: str
) -> None:
    found = parse_remote(text, ROOT)
    assert (found.url, found.protocol, found.name) == (url, protocol, name)


@each(
    "text",
    [
        *("", "-u", "--upload-pack=touch /tmp/x", "ext::sh -c 'touch x'", "fd::17", "git://h/o/s", "ftp://h/o/s"),
        *("-oProxyCommand=x:o/s", "ssh://-oProxyCommand=x/o/s", "a@-oProxyCommand=x:o/s", "file://host/x", "a\nb"),
        *("https://[zz]/x", "https://h:port/x", "x" * 5_000, "https:///x"),
    ],
)
def test_a_remote_that_could_run_something_or_is_not_safe_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_remote(text, ROOT)


def test_two_ways_to_one_repository_are_known_as_one_and_a_report_names_its_page() -> None:
    web = parse_pull_request("https://github.com/Owner/Shop/pull/7").address
    by_ssh = parse_remote("git@github.com:owner/shop.git", ROOT)
    assert web is not None
    assert web.is_same(by_ssh)
    assert not web.is_same(parse_remote("git@example.org:owner/shop.git", ROOT))
    assert page_of(by_ssh, 7, "pull") == "https://github.com/owner/shop/pull/7"
    assert page_of(by_ssh, 7, "merge-requests") == "https://github.com/owner/shop/-/merge_requests/7"
    assert page_of(parse_remote("ssh://git@h:22/o/s", ROOT), 7, "pull") == "https://h/o/s/pull/7"
    assert page_of(parse_remote("/srv/shop.git", ROOT), 7, "pull") == "7 of /srv/shop.git"


def test_git_gets_one_protocol_no_token_and_no_login_for_a_person() -> None:
    environment = {
        **dict.fromkeys(("GITHUB_TOKEN", "GH_TOKEN", "GIT_SSL_NO_VERIFY", "HOME", "GIT_ASKPASS", "SSH_ASKPASS"), "x"),
        "HTTPS_PROXY": "http://proxy",
        "SSH_AUTH_SOCK": "/agent",
        "GIT_SSH_COMMAND": "evil",
    }
    https, ssh, file = (access_to(each, environment, with_helper=False)[1] for each in ("https", "ssh", "file"))
    assert (https, file) == ({"HTTPS_PROXY": "http://proxy"}, {})
    assert set(ssh) == {"SSH_AUTH_SOCK", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT"}
    assert "BatchMode=yes" in ssh["GIT_SSH_COMMAND"]
    assert "evil" not in ssh["GIT_SSH_COMMAND"]
    assert access_to("https", environment, with_helper=True)[1]["GH_TOKEN"] == "x"


@each(
    ("protocol", "stderr", "kind", "words"),
    [
        ("https", "fatal: could not read Username for 'https://h': terminal prompts disabled", UsageError, "login"),
        ("https", "fatal: unable to access 'x': The requested URL returned error: 403", UsageError, "login"),
        ("https", "remote: Not Found\nfatal: repository 'https://h/o/s/' not found", UsageError, "h/o/s not found"),
        ("https", "fatal: unable to access 'x': Could not resolve host: h", GitFailed, "resolve host: h"),
        ("https", "fatal: unable to access 'x': SSL certificate problem: expired", UsageError, "certificate"),
        ("https", "fatal: unable to access 'x': The requested URL returned error: 301", UsageError, "error: 301"),
        ("https", "fatal: unable to access 'x': Protocol \"http\" disabled in libcurl", UsageError, "disabled in"),
        ("https", "fatal: remote error: upload-pack: not our ref 1234", RevisionError, "commit"),
        ("https", "fatal: something else", GitFailed, "something else"),
        ("ssh", "git@h: Permission denied (publickey).\nfatal: Could not read from remote", UsageError, "login"),
        ("ssh", "Host key verification failed.\nfatal: Could not read from remote", UsageError, "Host key"),
        ("ssh", "ERROR: Repository not found.\nfatal: Could not read from remote", UsageError, "h/o/s not found"),
        ("ssh", "ssh: connect to host h port 22: Connection refused\nfatal: Could not read", GitFailed, "refused"),
        ("file", "fatal: '/x' does not appear to be a git repository", UsageError, "h/o/s not found"),
    ],
)
def test_a_failure_is_told_in_words_with_a_way_out(
    protocol: str, stderr: str, kind: type[CodeloupeError], words: str
) -> None:
    address = RemoteAddress("x", protocol, "h/o/s")  # type: ignore[arg-type]  # one of the four
    error = remote_failure(address, Completed(128, b"", stderr, 0.1))
    assert type(error) is kind
    assert words in error.message
    assert error.hint
    assert "fsck" not in error.hint


@pytest.mark.program
@given(st.text(max_size=40))
@settings(max_examples=25)
def test_every_address_gives_a_branch_that_git_takes(text: str) -> None:
    ref = branch_ref(f"{text}/pull/7")
    assert ref.endswith("/pull/7")
    subprocess.run(("git", "check-ref-format", ref), check=True)
    assert branch_ref("github.com/o/s/pull/7") == "refs/heads/github.com/o/s/pull/7"
    assert branch_ref("/srv/my shop.lock/..x/pull/7") == "refs/heads/srv/my-shop-/-.x/pull/7"
