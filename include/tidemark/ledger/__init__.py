"""What ZooKeeper remembers: the ledger of each stream, leases and workers."""
