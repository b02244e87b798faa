"""GitHub as a forge: client, addresses, events and failures."""
