"""Making entries of the cache again, to compare them with what is kept."""

from __future__ import annotations

from cujit.artifact import Artifact
from cujit.cache.admin import Shown
from cujit.compiler.builder import Workshop
from cujit.compiler.keys.maker import Keyed
from cujit.compiler.keys.recipe import read_recipe
from cujit.compiler.route import check_request, compile_request

__all__ = ["recompile", "remake"]


def recompile(recipe: bytes, workshop: Workshop) -> Artifact:
    """Compile what a recipe says, now and without the cache.

    Raises:
        FormatError: the bytes are no recipe.
        CujitError: as of ``compile_request``.
    """
    return compile_request(read_recipe(recipe), workshop.toolchain)


def remake(shown: Shown, workshop: Workshop) -> Artifact | None:
    """Make an entry of the cache again; None where that cannot be: no recipe, or headers or tools of another content.

    It is what ``cujit.cache.admin.verify`` asks for.

    Raises:
        CujitError: the same inputs no longer compile.
    """
    if not shown.record.recipe or workshop.keys is None:
        return None
    request = read_recipe(shown.record.recipe)
    check_request(request)
    keyed = workshop.keys.of_request(request)
    if not isinstance(keyed, Keyed) or keyed.key != shown.key:
        return None
    return compile_request(request, workshop.toolchain)
