"""The constructs that prevent another ``.version`` or ``.target`` of PTX."""

from __future__ import annotations

from collections.abc import Iterator

from cujit.arch import Arch
from cujit.arch.support import Version, dotted
from cujit.formats.ptx.isa.since import number_of
from cujit.formats.ptx.syntax import Directive, PtxModule
from cujit.formats.ptx.uses import Need, construct_needs, removed_constructs
from cujit.formats.ptx.versions import declared_target, target_version
from cujit.values import NamedTuple


class Obstacle(NamedTuple):
    """A construct that prevents another version or target, with its line and the reason."""

    line: int
    construct: str
    why: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.construct} {self.why}"


def obstacles(module: PtxModule, version: Version, arch: Arch | None = None, *, target_line: int = 0) -> list[Obstacle]:
    """Return the constructs of ``module`` that PTX ISA ``version`` or ``arch`` does not support, by line.

    ``target_line`` is the line of its ``.target``, which a module does not record.
    """
    declared = declared_target(module)
    target = arch or declared
    needed = target_version(target) if target else None
    found = [o for need in construct_needs(module) if (o := _obstacle(need, module, version, arch, declared))]
    if target is not None and needed is not None and needed > version:
        found.append(Obstacle(target_line, f".target {target.real}", f"came with PTX {dotted(needed)}"))
    found += _removed(module, version, target, declared)
    if arch is not None:
        changed = (d for d in module.items if isinstance(d, Directive) and d.name == "target")
        found += (Obstacle(d.line, ".target", "is changed again in the middle of the text") for d in changed)
    return sorted(found)


def _removed(module: PtxModule, version: Version, target: Arch | None, declared: Arch | None) -> Iterator[Obstacle]:
    """Yield the constructs that are removed in that version or for that target.

    Constructs that are also removed in the module's own version and target are skipped.
    """
    number = target.number if target else 0
    is_moved = declared is not None and number != declared.number
    for line, construct, since in removed_constructs(module, version, number):
        if is_moved or module.version < since:
            yield Obstacle(line, construct, f"is gone since PTX {dotted(since)}")


def lowest_version(module: PtxModule) -> Version:
    """Return the lowest version that ``module`` could declare: the version of its newest construct, including its
    target.
    """
    target = declared_target(module)
    own = module.target[0].removeprefix("sm_")
    needed = [need.since.of(own) or need.ptx for need in construct_needs(module)]
    needed += [v for v in (target_version(target) if target else None,) if v is not None]
    return max(needed, default=module.version)


def _obstacle(
    need: Need, module: PtxModule, version: Version, arch: Arch | None, declared: Arch | None
) -> Obstacle | None:
    """Return the obstacle if a construct does not work in that version or on that architecture, otherwise None."""
    target = arch or declared
    name = f"{target.number}{target.suffix}" if target is not None else ""
    first = need.since.of(name)
    wanted = need.ptx if first is None or need.since.is_as_old_as_its_target(name) else first
    if wanted > version:
        if not need.is_known:
            return Obstacle(need.line, need.construct, f"is in no table of PTX up to {dotted(module.version)}")
        return Obstacle(need.line, need.construct, f"came with PTX {dotted(wanted)}")
    if arch is None or arch == declared or first is not None:
        return None
    if not need.is_known:
        return Obstacle(need.line, need.construct, f"is in no table of sm_{arch.number}")
    near = need.since.nearest(f"{arch.number}{arch.suffix}", version)
    if number_of(near) > arch.number:
        return Obstacle(need.line, need.construct, f"came with sm_{near}")
    others = "alone" if len(need.since.versions) == 1 else "and others like it"
    return Obstacle(need.line, need.construct, f"is for sm_{near} {others}")
