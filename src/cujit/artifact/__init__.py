"""Artifacts: images with their metadata, how users refer to files, and other formats to write an image in."""

from cujit.artifact.artifact import Artifact, ImageKind, image_bytes, kind_of

__all__ = ["Artifact", "ImageKind", "image_bytes", "kind_of"]
