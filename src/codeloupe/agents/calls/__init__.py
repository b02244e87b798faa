"""What every agent call goes through: checks, limits, budget, retries, masking, the ledger."""
