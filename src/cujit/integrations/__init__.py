"""cujit inside other tools: pytest and cuda.core."""
