"""Finding a repository and resolving names in it to object names. Everything after that speaks in object names."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from codeloupe.errors import NotARepository, RevisionError, UsageError
from codeloupe.git.command import MINIMUM_VERSION, Place, ask_git, both, failure, git, git_for_user, try_git
from codeloupe.model.change import SUBMODULE_MODE
from codeloupe.system.directories import temporary_directory
from codeloupe.system.process import Completed

# For reading diffs: drivers off; text and eol stay, or a CRLF checkout would differ in every line.
DIFF_ATTRIBUTES = "* !filter !diff !merge !ident\n"
# For exports: every file byte for byte as in its blob.
EXPORT_ATTRIBUTES = "* !filter !diff !merge !ident !text !eol !working-tree-encoding !export-ignore !export-subst\n"


class Sources(Struct, frozen=True):
    """The parts of the reviewed repository that an engine borrows."""

    objects: Path
    shallow: Path
    object_format: str


@contextmanager
def private_directory() -> Iterator[Path]:
    """A directory for this user alone, removed at the end, after an error too. Raises UsageError without a place."""
    with ExitStack() as stack:
        try:
            directory = stack.enter_context(temporary_directory())
        except OSError as error:
            reason = error.strerror or str(error)
            raise UsageError(
                f"no temporary directory can be made: {reason}", hint="set TMPDIR to a directory that can be written"
            ) from error
        yield directory


@contextmanager
def temporary_engine(sources: Sources, attributes: str) -> Iterator[Path]:
    """A fresh engine repository as a context; it is removed at the end, after an error too."""
    with private_directory() as directory:
        git_dir = directory / "engine"
        for folder in ("objects/info", "refs", "info"):
            (git_dir / folder).mkdir(parents=True)
        (git_dir / "HEAD").write_text("ref: refs/heads/none\n", encoding="ascii")
        (git_dir / "config").write_text(_config(sources.object_format), encoding="ascii")
        (git_dir / "info" / "attributes").write_text(attributes, encoding="ascii")
        (git_dir / "objects" / "info" / "alternates").write_bytes(os.fsencode(sources.objects) + b"\n")
        _write_empty_blob(git_dir, sources.object_format)
        borrow(sources.shallow, git_dir / "shallow")
        yield git_dir


def borrow(file: Path, target: Path) -> None:
    """Copy one file of the reviewed repository into an engine, if it is there. Raises NotARepository in words.

    The modification time is kept: git compares the index's with those of files, to notice an edit made in the
    same moment.
    """
    try:
        if file.is_file():
            shutil.copyfile(file, target)
            times = file.stat()
            os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise NotARepository(
            f"{file}, a part of the repository, cannot be read: {reason}",
            hint="run codeloupe as a user who may read the whole repository",
        ) from error


def copy_index(index: Path, git_dir: Path) -> Path:
    """Copy an index, and the shared part of a split one, into the engine. Raises NotARepository in words."""
    target = git_dir / "index"
    borrow(index, target)
    for shared in index.parent.glob("sharedindex.*"):
        borrow(shared, git_dir / shared.name)
    return target


def in_engine(git_dir: Path, *settings: str, work_tree: Path | None = None) -> Place:
    """The place for commands that read through the engine."""
    return Place(git_dir, work_tree=work_tree, index_file=git_dir / "index", settings=settings)


def object_name(kind: str, content: bytes, object_format: str) -> str:
    """The name git gives to an object."""
    return hashlib.new(object_format, _framed(kind, content), usedforsecurity=False).hexdigest()


def _framed(kind: str, content: bytes) -> bytes:
    return f"{kind} {len(content)}".encode("ascii") + b"\0" + content


def _write_empty_blob(git_dir: Path, object_format: str) -> None:
    """Untracked files stand in the engine's index as empty ones, so that object has to exist."""
    name = object_name("blob", b"", object_format)
    target = git_dir / "objects" / name[:2] / name[2:]
    target.parent.mkdir()
    target.write_bytes(zlib.compress(_framed("blob", b"")))


def _config(object_format: str) -> str:
    lines = ["[core]", "\trepositoryformatversion = 1", "\tbare = false"]
    if object_format != "sha1":
        lines += ["[extensions]", f"\tobjectFormat = {object_format}"]
    return "\n".join(lines) + "\n"


_REMOTE_HEAD = "refs/remotes/origin/HEAD"
_USUAL_BASES = tuple(
    f"refs/{where}/{name}" for name in ("main", "master", "develop") for where in ("heads", "remotes/origin")
)
# Values that change how a working tree is compared; each is harmless, and anything else is left out. What tells git
# to trust a file's times and size is not among them: it would only save reading the file.
_COMPARISON_KEYS = "autocrlf|eol|filemode|precomposeunicode|symlinks"
_COMPARISON_VALUES = frozenset({"true", "false", "yes", "no", "on", "off", "1", "0", "input", "lf", "crlf", "native"})
_OBJECT_NAME = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class Repository(Struct, frozen=True):
    """A git work tree. `root` is the directory that holds `.git`, whatever core.worktree claims."""

    root: Path
    git_dir: Path
    common_dir: Path
    index: Path
    sources: Sources
    shallow: bool

    @property
    def place(self) -> Place:
        """For commands that only look up names; content is read through an engine."""
        return Place(self.git_dir, work_tree=self.root)


class Head(Struct, frozen=True):
    """What is checked out: the commit, None before the first one, and the branch, None when it is detached."""

    sha: str | None
    branch: str | None


class BaseBranch(Struct, frozen=True):
    """A base branch: its ref as git knows it, its commit, and whether HEAD is on it."""

    name: str
    sha: str
    checked_out: bool


# What git is asked about a repository, and how many lines its answer has.
_FACTS = (
    *("rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir", "--git-path", "index"),
    *("--git-path", "objects", "--git-path", "shallow", "--show-object-format", "--is-shallow-repository"),
)
_FACT_LINES = 7


async def open_repository(start: Path) -> Repository:
    """The repository that holds `start`; raises NotARepository in words."""
    root = find_root(start)
    # The work tree is named, or git would go to where the repository's configuration says it is.
    return _opened(root, await try_git(Place(root / ".git", work_tree=root), *_FACTS))


def open_repository_now(start: Path) -> Repository:
    """As `open_repository`, where there is no event loop."""
    root = find_root(start)
    return _opened(root, ask_git(Place(root / ".git", work_tree=root), *_FACTS))


def _opened(root: Path, completed: Completed) -> Repository:
    if completed.exit_code != 0:
        reason = failure("rev-parse", completed)
        raise NotARepository(
            f"{root} has a .git that git cannot read: {reason.message}", hint="run git status there to see why"
        ) from reason
    lines = os.fsdecode(completed.stdout).split("\n")[:-1]
    if len(lines) != _FACT_LINES:
        raise _not_understood(root, lines)
    git_dir, common_dir, index, objects, shallow, object_format, is_shallow = lines
    return Repository(
        root=root,
        git_dir=Path(git_dir),
        common_dir=Path(common_dir),
        index=_current_index(Path(index), Path(git_dir), root),
        sources=Sources(Path(objects), Path(shallow), object_format),
        shallow=is_shallow == "true",
    )


def _not_understood(root: Path, lines: list[str]) -> NotARepository:
    # An option that git does not know yet is printed as it is.
    if not lines or lines[0].startswith("--"):
        wanted = ".".join(map(str, MINIMUM_VERSION))
        return NotARepository(
            f"git does not answer what codeloupe asks about {root}",
            hint=f"install git {wanted} or newer; `git --version` shows which one is installed",
        )
    return NotARepository(f"the path of the repository {str(root)!r} contains a line break", hint="move it elsewhere")


def find_root(start: Path) -> Path:
    """The directory of the repository that holds `start`; raises NotARepository in words. Git is not asked."""
    if not os.path.isdir(start):  # noqa: PTH112 - Path.is_dir raises below a folder that may not be entered
        hint = "give --repo a directory inside a git repository"
        raise NotARepository(f"{start} {_why_no_directory(start)}", hint=hint)
    try:
        here = start.resolve()
    except OSError as error:
        raise NotARepository(
            f"{start} cannot be looked at: {error.strerror or error}",
            hint="go to a directory that is there",
        ) from error
    for directory in (here, *here.parents):
        if os.path.lexists(directory / ".git"):
            return directory
        if _looks_bare(directory):
            raise NotARepository(
                f"{directory} is a bare repository or the inside of one: there is no working tree to review",
                hint="clone it, and run codeloupe in the clone",
            )
    raise NotARepository(
        f"{start} is not inside a git repository",
        hint="run codeloupe in a checkout, give --repo DIR, or review a diff with --diff-file FILE",
    )


def _why_no_directory(start: Path) -> str:
    try:
        start.stat()
    except OSError as error:
        return f"is not a directory that can be entered: {(error.strerror or 'unknown error').lower()}"
    except ValueError:  # a name with a NUL in it
        pass
    return "is not a directory"


def _looks_bare(directory: Path) -> bool:
    return all(os.path.exists(directory / name) for name in ("HEAD", "objects", "refs"))  # noqa: PTH110 - as above


def _current_index(index: Path, git_dir: Path, root: Path) -> Path:
    """Inside a commit hook git names a temporary index; it is honoured when it lies in the repository's own folder."""
    named = os.environ.get("GIT_INDEX_FILE")
    if named:
        # git starts its hooks at the root, and a hook may have gone elsewhere before it came here.
        path = (root / named).resolve()
        if path.is_file() and path.is_relative_to(git_dir.resolve()):
            return path
    return index


async def resolve(repository: Repository, revision: str) -> str:
    """The commit a revision names; raises RevisionError when there is none or more than one."""
    if revision.startswith("-"):
        raise RevisionError(
            f"{revision!r} is not a revision: it begins with a dash",
            hint="give a branch, a tag or a commit; options go before it",
        )
    if not revision or "\0" in revision:
        raise RevisionError(f"{revision!r} is not a revision", hint="give a branch, a tag or a commit")
    completed = await try_git(repository.place, "rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}")
    if "is ambiguous" in completed.stderr and revision != "HEAD":
        raise RevisionError(
            f"the revision {revision!r} is ambiguous: more than one object or ref has that name",
            hint="give more digits, or the full ref such as refs/heads/NAME or refs/tags/NAME",
        )
    name = completed.stdout.decode("ascii", "replace").strip()
    if completed.exit_code != 0 or not _OBJECT_NAME.fullmatch(name):
        raise await _unknown(repository, revision, completed.stderr)
    return name


async def _unknown(repository: Repository, revision: str, words: str) -> RevisionError | NotARepository:
    if revision == "HEAD" and (await read_head(repository)).sha is None:
        return no_commits(repository)
    if other := re.search(r"dereferences to (\w+) type", words):
        return RevisionError(f"{revision!r} is a {other[1]}, not a commit", hint="give a branch, a tag or a commit")
    hint = "git branch --all and git log --oneline show what there is"
    if repository.shallow:
        hint = "this is a shallow clone: fetch the revision first (git fetch origin REVISION, or git fetch --unshallow)"
    return RevisionError(f"the revision {revision!r} is unknown in {repository.root}", hint=hint)


def no_commits(repository: Repository) -> NotARepository:
    """The error for a branch on which nothing was committed yet, as in a new repository."""
    return NotARepository(
        f"{repository.root} has no commits yet on its branch, so there is nothing to compare with",
        hint="make a first commit, or review what is there with --staged or --uncommitted",
    )


async def read_head(repository: Repository) -> Head:
    """What is checked out. Raises GitFailed when HEAD names a commit that is not there."""
    completed = await try_git(repository.place, "rev-parse", "HEAD^{commit}", "--symbolic-full-name", "HEAD")
    if completed.exit_code == 0:
        sha, _, ref = os.fsdecode(completed.stdout).rstrip("\n").partition("\n")
        return Head(sha, ref.removeprefix("refs/heads/") if ref.startswith("refs/heads/") else None)
    named = await try_git(repository.place, "rev-parse", "--verify", "--quiet", "HEAD")
    if named.exit_code == 0:
        raise failure("rev-parse", completed)
    return Head(None, None)


async def find_base_branch(repository: Repository, configured: str | None) -> BaseBranch | None:
    """The configured base branch, else origin/HEAD, else main, master or develop, local or of origin; None if none is.

    Raises RevisionError when the configured one does not exist, here or at origin.
    """
    _, base = await find_head_and_base(repository, configured)
    return base


async def find_head_and_base(repository: Repository, configured: str | None) -> tuple[Head, BaseBranch | None]:
    """What is checked out, and the base branch as `find_base_branch` finds it; none before the first commit."""
    names = (_REMOTE_HEAD, *_USUAL_BASES) if configured is None else _homes_of(configured)
    head, refs = await both(read_head(repository), _list_refs(repository, names))
    if head.sha is None:
        return head, None
    if configured is not None:
        # A CI checkout has the branch of the change alone, and the others as origin's.
        name = f"origin/{configured}" if list(refs) == [names[-1]] else configured
        base = name, await resolve(repository, name)
    elif refs:
        base = next(refs[name] for name in names if name in refs)
    else:
        return head, None
    return head, BaseBranch(
        *base, checked_out=head.branch is not None and head.branch == base[0].removeprefix("origin/")
    )


async def pushed_commit(repository: Repository, branch: str) -> str | None:
    """What a branch was at origin when git last talked to it; None where origin is not known to have it."""
    ref = f"refs/remotes/origin/{branch}"
    return (await _list_refs(repository, (ref,))).get(ref, ("", None))[1]


def _homes_of(name: str) -> tuple[str, ...]:
    return f"refs/heads/{name}", f"refs/tags/{name}", f"refs/remotes/origin/{name}"


async def _list_refs(repository: Repository, names: tuple[str, ...]) -> dict[str, tuple[str, str]]:
    """Those of some refs that exist, each with the short name of what it stands for and its object."""
    form = "--format=%(refname)%00%(objectname)%00%(symref)"
    output = await git(repository.place, "for-each-ref", form, *names)
    rows = (os.fsdecode(line).split("\0") for line in output.split(b"\n") if line)
    # A pattern of for-each-ref names whole folders too.
    return {name: (_short(target or name), sha) for name, sha, target in rows if name in names}


def _short(ref: str) -> str:
    return ref.removeprefix("refs/heads/").removeprefix("refs/remotes/")


async def merge_base(repository: Repository, one: str, other: str) -> str:
    """Their best common ancestor. Raises RevisionError when there is none, GitFailed when git cannot tell."""
    if one == other:
        return one
    completed = await try_git(repository.place, "merge-base", one, other)
    # With a commit missing in between, git complains and still answers, as if history ended there.
    if completed.exit_code not in (0, 1) or "error:" in completed.stderr:
        raise failure("merge-base", completed)
    if completed.exit_code == 0:
        return completed.stdout.decode("ascii").split("\n", 1)[0]
    if repository.shallow:
        raise RevisionError(
            f"no common ancestor of {one[:12]} and {other[:12]} is known in this shallow clone",
            hint="deepen it: git fetch --deepen=200, or git fetch --unshallow (in GitHub Actions: fetch-depth: 0)",
        )
    raise RevisionError(
        f"{one[:12]} and {other[:12]} have no common ancestor",
        hint="they are unrelated histories; compare them directly with A..B",
    )


async def is_lonely_branch(repository: Repository, head: Head) -> bool:
    """Whether the current branch is the only one and no remote has any: then it is its own base."""
    words = ("for-each-ref", "--count=2", "--format=%(refname)", "refs/heads", "refs/remotes")
    return head.branch is not None and len((await git(repository.place, *words)).splitlines()) == 1


async def comparison_settings(repository: Repository) -> tuple[str, ...]:
    """How this user's git compares a working tree: line ends and file modes as checked `core.*` values, own ignores.

    The ignore file is taken from the user's configuration alone, since the repository's could name any file.
    """
    pattern = f"^core\\.({_COMPARISON_KEYS}|excludesfile)$"
    completed = await git_for_user(repository.place, "config", "--null", "--show-scope", "--get-regexp", pattern)
    # The file system itself tells whether it ignores case; a setting that lies would hide files.
    values = {"core.ignorecase": str((repository.common_dir / "CoNfIg").exists()).lower()}
    values["core.excludesfile"] = _usual_ignore_file()
    fields = os.fsdecode(completed.stdout).split("\0")
    for scope, entry in zip(fields[::2], fields[1::2], strict=False):
        key, has_value, value = entry.partition("\n")
        if key == "core.excludesfile" and scope in ("system", "global"):
            values[key] = os.path.expanduser(value)  # noqa: PTH111 - Path.expanduser raises for an unknown user
        elif (word := value.lower() if has_value else "true") in _COMPARISON_VALUES and key != "core.excludesfile":
            values[key] = word
    return tuple(f"{key}={value}" for key, value in values.items())


def _usual_ignore_file() -> str:
    return os.path.join(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"), "git", "ignore")  # noqa: PTH111, PTH118 - as above


_KINDS = ("blob", "tree", "commit")
_REGULAR_MODES = ("100644", "100755")
# The system limits how much may stand on a command line; beyond this the whole list is read instead.
_MAX_ARGUMENT_BYTES = 64_000


class Entry(NamedTuple):
    """One file of a tree or an index: a regular file or a symbolic link."""

    mode: str
    blob: str
    path: str


async def read_file_at(repository: Repository, revision: str, path: str) -> bytes | None:
    """A regular file's content in a revision, or None; a symbolic link is not followed and counts as none."""
    with temporary_engine(repository.sources, DIFF_ATTRIBUTES) as git_dir:
        place = in_engine(git_dir)
        for entry in await list_entries(place, revision, [path]):
            if entry.path == path and entry.mode in _REGULAR_MODES:
                return await git(place, "cat-file", "blob", entry.blob)
    return None


async def list_entries(place: Place, tree: str | None, paths: Sequence[str] | None) -> list[Entry]:
    """The files of a tree, or of the index when `tree` is None; of submodules nothing.

    With `paths` at least those of them that are there. No path is checked: a hostile tree may hold any name.
    """
    verb = ("ls-files", "--stage", "-z") if tree is None else ("ls-tree", "-r", "-z", "--full-tree", tree)
    if paths is not None and not paths:
        return []
    few = paths is not None and sum(len(os.fsencode(path)) + 1 for path in paths) < _MAX_ARGUMENT_BYTES
    output = await git(place, *verb, "--", *(paths if paths and few else ()))
    return list(_parse_entries(output))


def _parse_entries(output: bytes) -> Iterator[Entry]:
    """Read `mode blob stage<TAB>path` of an index, or `mode type blob<TAB>path` of a tree, each ended by NUL."""
    for record in output.split(b"\0"):
        if record:
            facts, _, path = record.partition(b"\t")
            mode, first, second = facts.decode("ascii").split(" ")
            if mode != SUBMODULE_MODE:
                yield Entry(mode, second if first in _KINDS else first, os.fsdecode(path))


async def blob_sizes(place: Place, names: Sequence[str]) -> dict[str, int]:
    """The sizes of those blobs that are here. Raises GitFailed when git cannot tell."""
    if not names:
        return {}
    output = await git(place, "cat-file", "--batch-check", stdin=_lines(names))
    facts = (line.decode("ascii").split(" ") for line in output.split(b"\n"))
    return {words[0]: int(words[2]) for words in facts if words[1:2] == ["blob"]}


async def read_blobs(repository: Repository, names: Iterable[str], *, max_bytes: int) -> dict[str, bytes]:
    """The content of those blobs that are here, in order, as many as have room in the limit. Raises GitFailed."""
    with temporary_engine(repository.sources, DIFF_ATTRIBUTES) as git_dir:
        place = in_engine(git_dir)
        wanted: list[str] = []
        left = max_bytes
        # Asked for first, so that an enormous one is never read.
        for name, size in (await blob_sizes(place, list(dict.fromkeys(names)))).items():
            if size <= left:
                wanted.append(name)
                left -= size
        output = await git(place, "cat-file", "--batch", stdin=_lines(wanted)) if wanted else b""
    found: dict[str, bytes] = {}
    position = 0
    for name in wanted:
        end = output.index(b"\n", position)
        size = int(output[position:end].rsplit(b" ", 1)[1])
        found[name] = output[end + 1 : end + 1 + size]
        position = end + 1 + size + 1
    return found


def _lines(names: Iterable[str]) -> bytes:
    return b"".join(name.encode("ascii") + b"\n" for name in names)
