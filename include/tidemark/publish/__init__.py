"""Publish: flags that carry their proof, for hours and days."""
