"""Child processes, temporary directories, redaction, and text that nobody trusts."""
