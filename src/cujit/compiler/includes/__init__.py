"""Inputs of a CUDA C++ compile besides its source: every header that NVRTC could open, and every name
that it misses.
"""
