"""What outlives a run: finished agent calls and reviews in one SQLite file, and runs of pipelines. It buys nothing."""
