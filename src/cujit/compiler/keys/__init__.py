"""What a result depends on, as the key of the cache, and how it is written down to be made again."""
