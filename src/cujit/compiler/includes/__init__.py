"""What a compile of CUDA C++ reads besides its source: every header that NVRTC could open, and every name it misses."""
