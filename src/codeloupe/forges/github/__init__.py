"""GitHub behind the forge protocol: client, addresses, events and failures."""
