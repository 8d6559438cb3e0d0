"""The instructions of matrices."""
