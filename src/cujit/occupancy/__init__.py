"""Occupancy, and the tables that it is computed from: arithmetic over numbers, with no driver and no GPU."""
