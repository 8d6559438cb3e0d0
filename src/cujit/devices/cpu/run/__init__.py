"""Launches: grids, threads, memory, faults."""
