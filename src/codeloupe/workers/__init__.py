"""Jobs on workers: the queue in a shared database, and the processes that work on its jobs (extra `server`)."""
