"""Opening a repository, resolving names in it to object names, and reading its objects.

Names are looked up in the reviewed repository itself. Content is read through an engine: a repository of our own in
a temporary directory that borrows the objects (as an alternate) and the list of shallow commits, and nothing else: no
configuration, no hooks, no filter, diff or merge drivers, no refs. Attributes that name drivers or hide content are
overruled.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import zlib
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from codeloupe.errors import NotARepository, RevisionError
from codeloupe.git.command import WANTED_VERSION, Place, failure, git, git_for_user, try_git
from codeloupe.git.revisions import USUAL_NAMES, meant_revision, split_steps
from codeloupe.model.change import SUBMODULE_MODE
from codeloupe.system.directories import temporary_directory, temporary_folder
from codeloupe.system.process import Completed
from codeloupe.system.regex import regex

# For reading diffs: drivers off; text and eol stay, or a CRLF checkout would differ in every line.
DIFF_ATTRIBUTES = "* !filter !diff !merge !ident\n"
# For exports: every file byte for byte as in its blob.
EXPORT_ATTRIBUTES = "* !filter !diff !merge !ident !text !eol !working-tree-encoding !export-ignore !export-subst\n"
OBJECT_NAME = regex(r"[0-9a-f]{40}|[0-9a-f]{64}")
REGULAR_MODES = ("100644", "100755")

# Comparing more names would take long, and a hint is not worth that.
_MOST_REFS = 5_000
_USUAL_BASES = (
    "refs/remotes/origin/HEAD",
    *(f"refs/{where}/{name}" for name in USUAL_NAMES for where in ("heads", "remotes/origin")),
)
# Values that change how a working tree is compared; each is harmless, and anything else is left out. What tells git
# to trust a file's times and size is not among them: it would only save reading the file.
_COMPARISON_KEYS = frozenset(f"core.{key}" for key in ("autocrlf", "eol", "filemode", "precomposeunicode", "symlinks"))
_COMPARISON_VALUES = frozenset({"true", "false", "yes", "no", "on", "off", "1", "0", "input", "lf", "crlf", "native"})
# What git is asked about a repository, all at once. A pattern with brackets is one name that need not exist.
_GLOBS = tuple("--glob=" + re.sub(r"/(\w)(\w+)$", r"/[\1]\2", ref) for ref in _USUAL_BASES)
_FACTS = (
    *("rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir", "--git-path", "index"),
    *("--git-path", "objects", "--git-path", "shallow", "--show-object-format", "--is-shallow-repository"),
)
_FACT_LINES = 7
_NAMES = (*_GLOBS, "HEAD^{commit}", "--symbolic-full-name", *_GLOBS, "HEAD")
private_directory = temporary_directory


class Head(Struct, frozen=True):
    """What is checked out: the commit, None before the first one, and the branch, None when it is detached."""

    sha: str | None
    branch: str | None


class BaseBranch(Struct, frozen=True):
    """A base branch: its ref as git knows it, its commit, and whether HEAD is on it."""

    name: str
    sha: str
    checked_out: bool


class Entry(NamedTuple):
    """One file of a tree or an index: a regular file, a symbolic link or, where they count, a submodule."""

    mode: str
    blob: str
    path: str


class _Known(Struct):
    """What git has said already. `entries` are the changed files of a commit or the index, by the sides of it."""

    head: Head | None = None
    bases: tuple[tuple[str, str], ...] | None = None
    config: tuple[tuple[str, str, str | None], ...] | None = None
    entries: dict[object, dict[str, Entry]] = field(default_factory=dict)


class Repository(Struct, frozen=True):
    """A git work tree, at the directory that holds `.git`, as it was when it was opened: git is asked nothing twice."""

    root: Path
    git_dir: Path
    common_dir: Path
    index: Path
    objects: Path
    shallow_file: Path
    object_format: str
    shallow: bool
    known: _Known = field(default_factory=_Known)

    @property
    def place(self) -> Place:
        """For commands that only look up names; content is read through an engine."""
        return Place(self.git_dir, work_tree=self.root)


_opened: ContextVar[dict[Path, Repository] | None] = ContextVar("opened", default=None)


@contextmanager
def opening_once() -> Iterator[None]:
    """Within this context each repository is opened once: all who ask see one HEAD, and git answers once."""
    token = _opened.set({})
    try:
        yield
    finally:
        _opened.reset(token)


async def open_repository(start: Path) -> Repository:
    """The repository that holds `start`; raises NotARepository."""
    root = find_root(start)
    opened = _opened.get()
    if opened is not None and root in opened:
        return opened[root]
    # The work tree is named, or git would go to where the repository's configuration says it is.
    completed = await try_git(Place(root / ".git", work_tree=root), *_FACTS, *_NAMES)
    lines = os.fsdecode(completed.stdout).split("\n")[:-1]
    facts = lines[:_FACT_LINES]
    if completed.exit_code != 0 and len(facts) < _FACT_LINES:
        reason = failure("rev-parse", completed)
        message = f"{root} has a .git that git cannot read: {reason.message}"
        raise NotARepository(message, hint="run `git status` there to see why") from reason
    # An option that git does not know yet is printed as it is, and a line break in a path makes two lines of it.
    if len(facts) < _FACT_LINES or facts[-1] not in ("true", "false") or any(line.startswith("--") for line in facts):
        raise NotARepository(
            f"cannot read the layout of {str(root)!r}: git is too old, or the path contains a line break",
            hint=f"install {WANTED_VERSION}, or move the repository elsewhere",
        )
    git_dir, common_dir, index, objects, shallow = map(Path, facts[:5])
    # Inside a commit hook git names a temporary index, relative to the root. It is honoured in the repository's folder.
    named = (root / os.environ.get("GIT_INDEX_FILE", "")).resolve()
    repository = Repository(
        root=root,
        git_dir=git_dir,
        common_dir=common_dir,
        index=named if named.is_file() and named.is_relative_to(git_dir.resolve()) else index,
        objects=objects,
        shallow_file=shallow,
        object_format=facts[5],
        shallow=facts[6] == "true",
        known=_known(completed, lines[_FACT_LINES:]),
    )
    if opened is not None:
        opened[root] = repository
    return repository


def _known(completed: Completed, lines: list[str]) -> _Known:
    """HEAD and the usual bases, the likeliest first; nothing where git did not say all of it."""
    objects, names = lines[: len(lines) // 2], lines[len(lines) // 2 :]
    if completed.exit_code or len(names) != len(objects) or not objects or not all(map(OBJECT_NAME.fullmatch, objects)):
        return _Known()
    return _Known(_head(objects[-1], names[-1]), tuple(zip(names[:-1], objects[:-1], strict=True)))


def _head(sha: str, ref: str) -> Head:
    return Head(sha, ref.removeprefix("refs/heads/") if ref.startswith("refs/heads/") else None)


def find_root(start: Path) -> Path:
    """The directory of the repository that holds `start`; raises NotARepository. Git is not asked."""
    reason = ""
    try:
        here = start.resolve()
        is_there = here.is_dir()
    except (OSError, ValueError, RuntimeError) as error:  # a name with a NUL in it, or links that lead to themselves
        here, is_there = start, False
        reason = f" that can be entered: {(error.strerror or '').lower()}" if isinstance(error, PermissionError) else ""
    if not is_there:
        hint = "give --repo a directory inside a git repository"
        raise NotARepository(f"{start} is not a directory{reason}", hint=hint)
    for directory in (here, *here.parents):
        if os.path.lexists(directory / ".git"):
            return directory
        if all(os.path.exists(directory / name) for name in ("HEAD", "objects", "refs")):  # noqa: PTH110 - Path's raises below a folder that may not be entered
            message = f"{directory} is a bare repository or inside one, so there is no working tree to review"
            raise NotARepository(message, hint="clone it, and run codeloupe in the clone")
    hint = "run codeloupe in a checkout, give --repo DIR, or review a diff with --diff-file FILE"
    raise NotARepository(f"{start} is not inside a git repository", hint=hint)


async def resolve(repository: Repository, revision: str) -> str:
    """The commit a revision names; raises RevisionError when there is none or more than one."""
    return (await resolve_all(repository, (revision,)))[0]


async def resolve_all(repository: Repository, revisions: Sequence[str]) -> list[str]:
    """The commits that some revisions name, with one question to git. Raises RevisionError for the first wrong one."""
    for revision in revisions:
        if not revision or revision.startswith("-") or "\0" in revision:
            message = f"{revision!r} is not a revision: it is empty, contains a NUL byte or begins with a dash"
            raise RevisionError(message, hint="give a branch, a tag or a commit; options go before it")
    if repository.known.head and repository.known.head.sha and set(revisions) == {"HEAD"}:
        return [repository.known.head.sha] * len(revisions)
    names = [f"{revision}^{{commit}}" for revision in revisions]
    verify = ("--verify",) if len(names) == 1 else ()
    completed = await try_git(repository.place, "rev-parse", *verify, "--end-of-options", *names)
    # Without --verify git repeats that option.
    found = [line for line in completed.stdout.decode("utf-8", "replace").splitlines() if line != "--end-of-options"]
    is_ambiguous = "is ambiguous" in completed.stderr and tuple(revisions) != ("HEAD",)
    is_sound = completed.exit_code == 0 and not is_ambiguous and len(found) == len(names)
    if is_sound and all(map(OBJECT_NAME.fullmatch, found)):
        return found
    if len(revisions) > 1:
        return [await resolve(repository, revision) for revision in revisions]
    if is_ambiguous:
        message = f"the revision {revisions[0]!r} is ambiguous: more than one object or ref has that name"
        raise RevisionError(message, hint="give more digits, or the full ref such as refs/heads/NAME or refs/tags/NAME")
    if revisions[0] == "HEAD" and (await read_head(repository)).sha is None:
        raise no_commits(repository)
    if other := re.search(r"dereferences to (\w+) type", completed.stderr):
        raise RevisionError(f"{revisions[0]!r} is a {other[1]}, not a commit", hint="give a branch, a tag or a commit")
    hint = await _hint_for(repository, revisions[0])
    raise RevisionError(f"the revision {revisions[0]!r} is unknown in {repository.root}", hint=hint)


async def _hint_for(repository: Repository, revision: str) -> str:
    """Return what to do about an unknown revision."""
    meant = await suggest_revision(repository, revision)
    if repository.shallow:
        fetch = (
            "this is a shallow clone: fetch the revision first (git fetch origin REVISION, or git fetch --unshallow)"
        )
        return f"did you mean {meant}? Otherwise {fetch}" if meant else fetch
    if meant:
        return f"did you mean {meant}?"
    name, steps = split_steps(revision)
    if steps and name and (await try_git(repository.place, "rev-parse", "--verify", "--quiet", name)).exit_code == 0:
        return f"{name} exists, but {steps} leads to no commit; `git log --oneline {name}` lists its commits"
    return "list the revisions with `git branch --all` or `git log --oneline`"


async def suggest_revision(repository: Repository, revision: str) -> str | None:
    """Return the branch, tag or remote branch that is probably meant by an unknown revision, or None."""
    homes = ("refs/heads", "refs/tags", "refs/remotes")
    output = await git(repository.place, "for-each-ref", f"--count={_MOST_REFS}", "--format=%(refname)", *homes)
    return meant_revision(revision, os.fsdecode(output).split())


def no_commits(repository: Repository) -> NotARepository:
    """The error for a branch on which nothing was committed yet, as in a new repository."""
    message = f"{repository.root} has no commits yet on its branch, so there is nothing to compare with"
    return NotARepository(message, hint="create a first commit, or review with --staged or --uncommitted")


async def read_head(repository: Repository) -> Head:
    """What is checked out. Raises GitFailed when HEAD names a missing commit."""
    if repository.known.head is not None:
        return repository.known.head
    completed = await try_git(repository.place, "rev-parse", "HEAD^{commit}", "--symbolic-full-name", "HEAD")
    if completed.exit_code == 0:
        head = _head(*os.fsdecode(completed.stdout).split("\n")[:2])
    elif (await try_git(repository.place, "rev-parse", "--verify", "--quiet", "HEAD")).exit_code == 0:
        raise failure("rev-parse", completed)
    else:
        head = Head(None, None)
    repository.known.head = head
    return head


async def find_base_branch(repository: Repository, configured: str | None) -> BaseBranch | None:
    """The configured base branch, which must exist here or at origin, else origin/HEAD or a usual one, or None."""
    return (await find_head_and_base(repository, configured))[1]


async def find_head_and_base(repository: Repository, configured: str | None) -> tuple[Head, BaseBranch | None]:
    """What is checked out, and the base branch as `find_base_branch` finds it; none before the first commit."""
    head = await read_head(repository)
    if head.sha is None:
        return head, None
    if configured is not None:
        # A CI checkout has the branch of the change alone, and the others as origin's.
        homes = tuple(f"refs/{where}/{configured}" for where in ("heads", "tags", "remotes/origin"))
        refs = await list_refs(repository, homes)
        name = f"origin/{configured}" if [ref for ref, _ in refs] == [homes[-1]] else configured
        sha = await resolve(repository, name)
    else:
        bases = repository.known.bases
        bases = await list_refs(repository, _USUAL_BASES) if bases is None else bases
        if not bases:
            return head, None
        ref, sha = bases[0]
        name = ref.removeprefix("refs/heads/").removeprefix("refs/remotes/")
    return head, BaseBranch(name, sha, head.branch is not None and head.branch == name.removeprefix("origin/"))


async def pushed_commit(repository: Repository, branch: str) -> str | None:
    """What a branch was at origin when git last talked to it; None where origin is not known to have it."""
    ref = f"refs/remotes/origin/{branch}"
    bases = repository.known.bases
    found = bases if bases is not None and branch in USUAL_NAMES else await list_refs(repository, (ref,))
    return dict(found).get(ref)


async def list_refs(repository: Repository, names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Those of some refs that exist, in that order: each with what it points to, and its object."""
    output = await git(repository.place, "for-each-ref", "--format=%(refname)%00%(objectname)%00%(symref)", *names)
    rows = [os.fsdecode(line).split("\0") for line in output.split(b"\n") if line]
    # A pattern of for-each-ref names whole folders too.
    found = {name: (target or name, sha) for name, sha, target in rows if name in names}
    return tuple(found[name] for name in names if name in found)


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
        message = f"no common ancestor of {one[:12]} and {other[:12]} is known in this shallow clone"
        hint = "deepen it: git fetch --deepen=200, or git fetch --unshallow (in GitHub Actions: fetch-depth: 0)"
        raise RevisionError(message, hint=hint)
    hint = "they are unrelated histories; compare them directly with A..B"
    raise RevisionError(f"{one[:12]} and {other[:12]} have no common ancestor", hint=hint)


async def is_lonely_branch(repository: Repository, head: Head) -> bool:
    """Whether the current branch is the only one and no remote has any: then it is its own base."""
    words = ("for-each-ref", "--count=2", "--format=%(refname)", "refs/heads", "refs/remotes")
    return head.branch is not None and len((await git(repository.place, *words)).splitlines()) == 1


async def read_config(repository: Repository) -> tuple[tuple[str, str, str | None], ...]:
    """The configuration of the user and the repository: scope, key in lower case, value; None where `=` is missing."""
    if repository.known.config is not None:
        return repository.known.config
    completed = await git_for_user(repository.place, "config", "--null", "--show-scope", "--list")
    fields = os.fsdecode(completed.stdout).split("\0")
    pairs = ((scope, entry.partition("\n")) for scope, entry in zip(fields[::2], fields[1::2], strict=False))
    config = tuple((scope, key, value if sign else None) for scope, (key, sign, value) in pairs)
    repository.known.config = config
    return config


async def origin_url(repository: Repository) -> str | None:
    """The address of the remote `origin` as the repository's own configuration has it."""
    rows = await read_config(repository)
    own = [value for scope, key, value in rows if key == "remote.origin.url" and scope in ("local", "worktree")]
    return own[-1] if own else None


async def comparison_settings(repository: Repository) -> tuple[str, ...]:
    """How this user's git compares a working tree: checked `core.*` values, and the ignores of the user alone."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111 - Path's raises for an unknown user
    # The file system itself tells whether it ignores case; a setting that lies would hide files.
    values = {"core.ignorecase": str((repository.common_dir / "CoNfIg").exists()).lower()}
    values["core.excludesfile"] = f"{home}/git/ignore"
    for scope, key, value in await read_config(repository):
        if key == "core.excludesfile" and scope in ("system", "global"):
            values[key] = os.path.expanduser(value or "")  # noqa: PTH111 - as above
        elif key in _COMPARISON_KEYS and (word := "true" if value is None else value.lower()) in _COMPARISON_VALUES:
            values[key] = word
    return tuple(f"{key}={value}" for key, value in values.items())


def lay_out(
    git_dir: Path,
    object_format: str,
    *,
    lenders: Sequence[Path] = (),
    attributes: str = "",
    bare: bool = False,
    config: str = "",
) -> None:
    """Make a repository of our own, or complete one that was begun; it may borrow the objects of others."""
    for folder in ("objects/info", "objects/pack", "refs/heads", "info"):
        (git_dir / folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    core = f"[core]\n\trepositoryformatversion = 1\n\tbare = {str(bare).lower()}\n"
    extension = "" if object_format == "sha1" else f"[extensions]\n\tobjectFormat = {object_format}\n"
    (git_dir / "config").write_bytes(os.fsencode(core + extension + config))
    if attributes:
        (git_dir / "info" / "attributes").write_text(attributes, encoding="ascii")
    if lenders:
        # Quoted, since a path may hold a line end.
        escaped = (str(each).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for each in lenders)
        lines = "".join(f'"{each}"\n' for each in escaped)
        (git_dir / "objects" / "info" / "alternates").write_bytes(os.fsencode(lines))
    # git takes a directory for a repository when HEAD is there, so it comes last.
    (git_dir / "HEAD").write_text("ref: refs/heads/none\n", encoding="ascii")


def borrow(file: Path, target: Path) -> None:
    """Copy one file of the reviewed repository into an engine, if it is there, with its time. Raises NotARepository."""
    try:
        if file.is_file():
            shutil.copyfile(file, target)
            times = file.stat()
            os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        hint = "run codeloupe as a user who can read the whole repository"
        raise NotARepository(f"cannot read {file} of the repository: {reason}", hint=hint) from error


@asynccontextmanager
async def reading(
    repository: Repository, attributes: str = DIFF_ATTRIBUTES, *, index: bool = False
) -> AsyncIterator[Place]:
    """Yield the place for commands that read through a fresh engine, which may have a copy of the index."""
    async with temporary_folder() as directory:
        git_dir, object_format = directory / "engine", repository.object_format
        lay_out(git_dir, object_format, lenders=[repository.objects], attributes=attributes)
        # Untracked files are in the engine's index as empty ones, so that object has to exist.
        empty = object_name("blob", b"", object_format)
        (git_dir / "objects" / empty[:2]).mkdir()
        (git_dir / "objects" / empty[:2] / empty[2:]).write_bytes(zlib.compress(b"blob 0\0"))
        borrow(repository.shallow_file, git_dir / "shallow")
        if index:
            # With the shared part of a split one.
            borrow(repository.index, git_dir / "index")
            for shared in repository.index.parent.glob("sharedindex.*"):
                borrow(shared, git_dir / shared.name)
        yield Place(git_dir, index_file=git_dir / "index")


async def in_working_tree(repository: Repository, place: Place, *settings: str) -> Place:
    """The same engine for commands that look at the working tree, as the user's own git does."""
    borrow(repository.common_dir / "info" / "exclude", place.git_dir / "info" / "exclude")
    return replace(place, work_tree=repository.root, settings=(*await comparison_settings(repository), *settings))


def object_name(kind: str, content: bytes, object_format: str) -> str:
    """The name git gives to an object."""
    framed = f"{kind} {len(content)}".encode("ascii") + b"\0" + content
    return hashlib.new(object_format, framed, usedforsecurity=False).hexdigest()


async def list_entries(
    place: Place, tree: str | None, paths: Sequence[str] | None, *, submodules: bool = False
) -> list[Entry]:
    """The files of a tree, or of the index when `tree` is None; with `paths` at least those. No path is checked."""
    verb = ("ls-files", "--stage", "-z") if tree is None else ("ls-tree", "-r", "-z", "--full-tree", tree)
    if paths is not None and not paths:
        return []
    # The system limits how long a command line may be; beyond this the whole list is read instead.
    few = paths is not None and sum(len(os.fsencode(path)) + 1 for path in paths) < 64_000
    output = await git(place, *verb, "--", *(paths if paths and few else ()))
    entries: list[Entry] = []
    for record in filter(None, output.split(b"\0")):
        # `mode blob stage` of an index, or `mode type blob` of a tree, then a tab and the path.
        facts, _, path = record.partition(b"\t")
        mode, first, second = facts.decode("ascii").split(" ")
        if submodules or mode != SUBMODULE_MODE:
            entries.append(Entry(mode, first if tree is None else second, os.fsdecode(path)))
    return entries


async def read_file_at(repository: Repository, revision: str | None, path: str) -> bytes | None:
    """A regular file's content in a revision, or the index, or None; a symbolic link is not followed, it is none."""
    async with reading(repository, index=revision is None) as place:
        for entry in await list_entries(place, revision, [path]):
            if entry.path == path and entry.mode in REGULAR_MODES:
                return await git(place, "cat-file", "blob", entry.blob)
    return None
