"""One agent call, whichever vendor. For now it only finds the agent programs on this machine; it calls none."""
