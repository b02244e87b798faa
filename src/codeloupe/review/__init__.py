"""From change to verdict: what is reviewed, identity, verdict, and one runner that puts them in order. No I/O of its own."""
