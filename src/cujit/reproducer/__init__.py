"""Launches that were saved in a file, run again in a process without rights: ``import cujit.reproducer``."""

from cujit.formats.saved_launch import SavedArgument, SavedLaunch
from cujit.reproducer.running import Rerun, open, run

__all__ = ["Rerun", "SavedArgument", "SavedLaunch", "open", "run"]
