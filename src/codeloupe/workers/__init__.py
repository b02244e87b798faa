"""Jobs for many machines: a queue in the shared database, and the processes that work on it (extra `server`)."""
