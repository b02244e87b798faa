"""The offline lane: one file an analyser. They run on a snapshot, never on the repository's own configuration."""
