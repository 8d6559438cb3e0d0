"""NVIDIA's libraries through cuda.bindings: checked calls, no policy."""
