"""Keys, records and the store: from what went into a piece of work to the image that came out of it."""
