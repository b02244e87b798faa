"""From change to verdict: selection, identity, verdict, and one runner that puts them in order. No I/O of its own."""
