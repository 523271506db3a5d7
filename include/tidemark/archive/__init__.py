"""Archive: join an hour's small boom files into large ones, with an index to the byte."""
