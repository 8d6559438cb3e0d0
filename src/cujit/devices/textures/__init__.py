"""Textures and surfaces: what they are, and how users make them."""
