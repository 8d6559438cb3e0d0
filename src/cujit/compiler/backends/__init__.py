"""What NVIDIA's tools make of a job: compilers, linkers and the packer, each behind one function."""
