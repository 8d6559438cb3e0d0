"""What ``%load_ext cujit`` brings into a notebook: the magic ``%%cuda``, and displays of results."""
