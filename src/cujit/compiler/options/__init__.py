"""Compiler options: the option table, validated values, the spelling of each tool, and limits."""
