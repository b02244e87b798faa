"""What a person said about a stage that waited, as an event and as the word of a gate. Pure."""

from __future__ import annotations

from codeloupe.model.pipeline import Approval, CriticVerdict, Critique, Decision, PipelineEvent
from codeloupe.model.pipeline_definition import GateKind
from codeloupe.pipeline.logbook import Logbook

_SAID = {
    Decision.APPROVE: ("a person approved it", CriticVerdict.PASS),
    Decision.RETRY: ("a person asked for another attempt", CriticVerdict.REWORK),
    Decision.REJECT: ("a person rejected it", CriticVerdict.FAIL),
}


def in_words(word: Approval) -> str:
    """What was decided, and the note."""
    said, _ = _SAID[word.decision]
    note = word.note.strip()
    return f"{said}: {note}" if note else said


def critique_of(word: Approval) -> Critique:
    """A person's word as that of a gate: approve passes, retry asks for rework, reject fails."""
    _, verdict = _SAID[word.decision]
    return Critique(verdict=verdict, gate=GateKind.APPROVAL, summary=in_words(word))


def word_event(book: Logbook, word: Approval) -> PipelineEvent:
    """That a person decided."""
    return book.event("approval_given", in_words(word), stage=word.stage, decision=word.decision.value)
