"""What stands behind the roots: a shared cache that is asked for signed records, and never written here."""
