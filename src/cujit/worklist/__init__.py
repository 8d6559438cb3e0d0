"""Worklists: recorded compile requests of programs, merged and built in advance. ``import cujit.worklist``."""

from cujit.worklist.building import Cover, Unbuilt, build, cover, keys
from cujit.worklist.lists import Merged, RecipeUse, Worklist, merge, read
from cujit.worklist.recording import Recording
from cujit.worklist.recording import record_worklist as record

__all__ = [
    "Cover",
    "Merged",
    "RecipeUse",
    "Recording",
    "Unbuilt",
    "Worklist",
    "build",
    "cover",
    "keys",
    "merge",
    "read",
    "record",
]
