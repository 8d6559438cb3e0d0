"""Where Artifacts run: the seam, GPUs through the CUDA driver, and the CPU."""
