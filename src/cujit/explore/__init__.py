"""The explorer, a web page with an editor that only this machine can access: ``import cujit.explore``."""

from cujit.explore.analyzer import Analysis, analyze
from cujit.explore.scene import Scene
from cujit.explore.serving import Explorer, serve, start

__all__ = ["Analysis", "Explorer", "Scene", "analyze", "serve", "start"]
