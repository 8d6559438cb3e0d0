"""What a user may say: the option table, values checked against it, how each tool spells them, and limits."""
