"""The emulator: what stands in for NVIDIA's driver, so that other people's CUDA programs run with no GPU."""
