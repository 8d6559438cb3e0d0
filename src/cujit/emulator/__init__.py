"""The emulator, which replaces NVIDIA's driver so that other CUDA programs run without a GPU."""
