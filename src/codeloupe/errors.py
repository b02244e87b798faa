"""The one exception tree.

    CodeloupeError                  anything codeloupe raises on purpose
    ├── UsageError                  the user can mend it by calling differently (exit 2)
    │   ├── ConfigError             a configuration file, variable or flag is wrong
    │   ├── NotARepository          no git repository here, a bare one, or one without commits
    │   ├── RevisionError           a revision is unknown, ambiguous or has no merge base
    │   ├── RepositoryBusy          unresolved conflicts stand in the way
    │   ├── DiffSyntaxError         what was given as a diff is none
    │   └── OutputError             a result cannot be written where it was asked for
    ├── ProcessError                a child process did not do what it should (exit 3)
    │   ├── ProgramNotFound         it is not installed (exit 2)
    │   ├── ProcessTimedOut         it was ended at its deadline
    │   ├── OutputTooLarge          it wrote more than its cap
    │   └── ProcessFailed           it ended with a bad exit code
    │       └── GitFailed           git did
    └── AnalyserFailed              an offline analyser could not do its work

Every error says what happened to what (the message), what to do next (`hint`), and whether trying
the same thing again makes sense (`retryable`).
"""

from __future__ import annotations


class CodeloupeError(Exception):
    """The root. `hint` is a sentence on what to do next, or empty."""

    retryable = False
    exit_code = 4

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(CodeloupeError):
    """The call or its surroundings are wrong; nothing was reviewed."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration value is wrong; the message names file, line and key."""


class NotARepository(UsageError):
    """There is no git work tree to review here."""


class RevisionError(UsageError):
    """A revision cannot be resolved."""


class RepositoryBusy(UsageError):
    """An unfinished operation leaves the tree in no state to review."""


class DiffSyntaxError(UsageError):
    """The text is not a diff that can be read; the message names the line."""


class OutputError(UsageError):
    """The result cannot be written."""


class ProcessError(CodeloupeError):
    """A child process did not do what it should, so the change could not be reviewed. `program` is its short name."""

    exit_code = 3

    def __init__(self, message: str, *, program: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.program = program


class ProgramNotFound(ProcessError):
    """The program is not installed or not executable."""

    exit_code = 2


class ProcessTimedOut(ProcessError):
    """The program was ended at its deadline."""

    retryable = True


class OutputTooLarge(ProcessError):
    """The program wrote more than its cap, so its output is not whole."""


class ProcessFailed(ProcessError):
    """The program ended with an exit code that means failure; the tail of its stderr is kept."""

    def __init__(self, message: str, *, program: str, exit_code: int, stderr: str = "", hint: str = "") -> None:
        super().__init__(message, program=program, hint=hint)
        self.status = exit_code
        self.stderr = stderr


class GitFailed(ProcessFailed):
    """git ended with a failure that is not the caller's mistake."""


class AnalyserFailed(CodeloupeError):
    """An analyser crashed, is missing or gave output that cannot be read."""

    def __init__(self, message: str, *, analyser: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.analyser = analyser
