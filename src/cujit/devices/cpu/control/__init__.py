"""The order of blocks, and the functions around a warp."""
