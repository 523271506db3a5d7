"""How fast Tidemark is, beside others, on the same machine, the same topic and in the same run: `make bench`."""
