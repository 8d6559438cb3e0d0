"""Cache keys, which cover everything that a result depends on, and recipes that repeat a compile."""
