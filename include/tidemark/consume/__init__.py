"""Consume: read the frozen ranges, write boom files, commit them all at once."""
