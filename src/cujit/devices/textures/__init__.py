"""Textures and surfaces, and functions that create them for users."""
