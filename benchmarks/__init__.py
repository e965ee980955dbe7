"""Measurements behind the figures in docs/; each module is a command that prints its own."""
