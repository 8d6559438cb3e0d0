"""From statements of PTX to one flat list of operations."""
