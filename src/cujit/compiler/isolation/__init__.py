"""Work in a separate process, which may crash without ending this process."""
