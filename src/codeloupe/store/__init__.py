"""What outlives a run: finished agent calls, in one SQLite file. It never buys, asks or reviews anything itself."""
