"""NVIDIA's tools: compilers, linkers, and the packer, each behind one function."""
