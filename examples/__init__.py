"""Examples to run and read."""
