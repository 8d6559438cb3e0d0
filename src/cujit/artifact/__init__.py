"""Artifacts: images and what is known of them, how users name files, and what else an image is written as."""

from cujit.artifact.artifact import Artifact, ImageKind, image_bytes, kind_of

__all__ = ["Artifact", "ImageKind", "image_bytes", "kind_of"]
