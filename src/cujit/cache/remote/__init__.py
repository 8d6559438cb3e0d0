"""The tier after the roots: a shared cache from which cujit reads signed records without writing to it."""
