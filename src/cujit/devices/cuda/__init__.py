"""GPUs through the CUDA driver."""
