"""The offline analysers, one file each. They run on a snapshot, never on the repository's own configuration."""
