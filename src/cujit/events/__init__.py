"""Events of cujit as Python objects: compiles, cache hits, fallbacks, and failed launches. ``import cujit.events``."""

from cujit.events.hub import Subscription, subscribe
from cujit.events.values import CacheHit, Fallback, Happening, LaunchFailure, Made

__all__ = ["CacheHit", "Fallback", "Happening", "LaunchFailure", "Made", "Subscription", "subscribe"]
