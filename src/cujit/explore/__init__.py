"""A page with an editor, on this machine alone: ``import cujit.explore``."""

from cujit.explore.analyzer import Analysis, analyze
from cujit.explore.scene import Scene
from cujit.explore.serving import Explorer, serve, start

__all__ = ["Analysis", "Explorer", "Scene", "analyze", "serve", "start"]
