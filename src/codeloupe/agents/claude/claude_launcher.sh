#!/bin/sh
# Starts the claude program for the Agent SDK, which cannot remove variables from its environment nor tie its life to
# ours. CODELOUPE_UNSET is "-u NAME" for each variable that has to go, CODELOUPE_PROGRAM the program. Where the system
# has the means, it gets a session of its own and is ended with the process that started it, however that ended.
set -- env -u CODELOUPE_UNSET -u CODELOUPE_PROGRAM ${CODELOUPE_UNSET} "${CODELOUPE_PROGRAM}" "$@"
if setpriv --pdeathsig KILL true 2>/dev/null; then
  set -- setpriv --pdeathsig KILL "$@"
fi
if command -v setsid >/dev/null 2>&1; then
  set -- setsid "$@"
fi
exec "$@"
