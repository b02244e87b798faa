"""One agent call, whichever vendor: a file a vendor, and what surrounds a call. It reviews and decides nothing."""
