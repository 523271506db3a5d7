"""Plan: freeze what one run will read, before anything is read."""
