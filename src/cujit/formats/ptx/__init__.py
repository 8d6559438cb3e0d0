"""PTX text as values: ``parser`` reads it, ``printer`` writes it, ``isa`` knows the instructions."""
