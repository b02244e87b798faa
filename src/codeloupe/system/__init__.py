"""Child processes, temporary directories, redaction, and text that nobody trusts.

`process.run` is for git and the analysers: short, well known, many. It ends the child and its process group.
`streaming.stream` is for agents: long, read line by line, and free to start whatever they like. Each runs under a
guardian, a process of its own, which ends the program and everything that came of it, also what moved to a session of
its own, and also when we are killed outright. On systems other than Linux it can end the process group only.
"""
