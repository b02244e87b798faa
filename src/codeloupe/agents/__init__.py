"""One agent call, whichever vendor: a file a vendor, and what stands around a call. It reviews and decides nothing."""
