"""What operators look at: the ledger as it stands, read without changing it."""
