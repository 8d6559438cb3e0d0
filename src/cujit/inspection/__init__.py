"""What is in an image: its kernels and what they use, read from the bytes alone, with no driver and no GPU."""
