"""Worker processes: their interpreter, their messages, and the files of the package."""
