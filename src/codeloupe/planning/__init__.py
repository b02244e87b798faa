"""From a change to a plan: files to review, skipped files with reasons, units, guidance and trust."""
