"""Python in processes of its own: which interpreter starts, and how both sides know each other."""
