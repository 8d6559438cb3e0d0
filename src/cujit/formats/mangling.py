"""Lowered names: the name of a kernel in its source, and its signature.

NVRTC returns the lowered name of any name expression. The probe is a template that is declared and never defined, with
the kernel's type as its argument. NVRTC then spells the parameter types, their sizes, and their alignments in a name.
The probe leaves nothing in the image.
"""

from __future__ import annotations

from cujit.errors import FormatError, spell
from cujit.signature import Parameter, ParameterClass, Signature
from cujit.values import later
from cujit.values.typed import TYPE_CHECKING

if TYPE_CHECKING:
    import re
else:
    re = later("re")  # start-up: few calls need it

if TYPE_CHECKING:
    from cujit.formats.cxx_types import CxxType, PackExpansion
    from cujit.formats.itanium import Demangler

SIGNATURE_PROBE = """\
template<class A,bool E=__is_enum(A)>struct cujit_parameter{using type=A;
enum:int{kind=__is_class(A)||__is_union(A)?1:0};};
template<class A>struct cujit_parameter<A,true>{using type=A;
enum:int{kind=(__underlying_type(A))-1<(__underlying_type(A))0?2:3};};
template<class A>struct cujit_parameter<A&,false>{using type=void*;enum:int{kind=0};};
template<int...>struct cujit_ints;
template<class F>struct cujit_function{
using sizes=cujit_ints<>;using aligns=cujit_ints<>;using kinds=cujit_ints<>;};
template<class R,class...A>struct cujit_function<R(A...)>{
using sizes=cujit_ints<(int)sizeof(typename cujit_parameter<A>::type)...>;
using aligns=cujit_ints<(int)alignof(typename cujit_parameter<A>::type)...>;
using kinds=cujit_ints<(int)cujit_parameter<A>::kind...>;};
template<class F>struct cujit_function<F*>:cujit_function<F>{};
template<class F,class S=typename cujit_function<F>::sizes,class L=typename cujit_function<F>::aligns,
class K=typename cujit_function<F>::kinds>__global__ void cujit_sig();
"""
"""C++11 to append to a source, or to include before it, for the expressions of ``probe_expression``.

Everything in it is only declared, so the image stays byte-identical. An expression for something that is no
function compiles too, and its lowered name has no signature.
"""

_PROBE = "cujit_sig"
# The last template argument of the probe says what the first cannot: a class and an enumeration mangle alike.
_CLASS, _SIGNED_ENUM, _UNSIGNED_ENUM = 1, 2, 3


def probe_expression(kernel_expression: str) -> str:
    """Return the name expression for which NVRTC returns the lowered name that ``signature_of`` reads.

    An overloaded kernel is selected by a cast: ``(void (*)(int*))scale``.
    """
    return f"{_PROBE}<decltype({kernel_expression})>"


def signature_of(lowered: str) -> Signature:
    """Return the signature of a kernel from the lowered name of its probe.

    Raises:
        FormatError: the name is not of the probe, or the probed entity is not a function.
    """
    from cujit.formats.cxx_types import (
        CxxType,
        PackExpansion,
        TypeShape,
    )  # start-up: a build tells names and types as a rule

    reader = _demangler(lowered)
    name, arguments = reader.template_entity()
    if name != _PROBE or not arguments:
        raise FormatError(f"the compiler didn't return a lowered name for {_PROBE}: {spell(lowered[:120])}")
    function, *packs = arguments
    if isinstance(function, CxxType) and function.shape is TypeShape.POINTER and function.inner is not None:
        function = function.inner
    if isinstance(function, PackExpansion) or function.shape is not TypeShape.FUNCTION:
        raise FormatError(
            f"the compiler returned the lowered name of another function, {function}: {spell(lowered[:120])}"
        )
    count = len(function.parameters)
    sizes, aligns, kinds = (_integers(packs, i, count, lowered) for i in range(3))
    parameters = map(_parameter, function.parameters, sizes, aligns, kinds)
    return Signature(tuple(parameters))


def _demangler(lowered: str, *, anonymous: str = "") -> Demangler:
    """Return a demangler for a lowered C++ name. Most processes with a warm cache never need it."""
    from cujit.formats.itanium import Demangler  # start-up: a build tells names and types as a rule

    reader = Demangler(lowered, anonymous=anonymous)
    reader.expect("_Z")
    return reader


def _integers(packs: list[CxxType | PackExpansion], index: int, count: int, lowered: str) -> list[int]:
    """Read ``cujit_ints<…>`` number ``index``. Return zeros if an older probe did not record it."""
    if index >= len(packs):
        return [0] * count
    values = [int(v) for v in re.findall(r"\d+", str(packs[index]).partition("<")[2])]
    if len(values) != count:
        raise FormatError(f"there are {count} parameters, but {len(values)} values, in {spell(lowered[:120])}")
    return values


def _parameter(t: CxxType, size: int, align: int, kind: int) -> Parameter:
    from cujit.formats.cxx_types import TypeShape  # start-up: a build tells names and types as a rule

    if t.shape is TypeShape.POINTER:
        return Parameter(ParameterClass.POINTER, 8, 8, str(t), str(t.inner).rstrip())
    if t.builtin is not None:
        width = size or t.builtin.size
        return Parameter(t.builtin.kind, width, align or width, str(t))
    enums = {_SIGNED_ENUM: ParameterClass.SIGNED, _UNSIGNED_ENUM: ParameterClass.UNSIGNED}
    return Parameter(enums.get(kind, ParameterClass.AGGREGATE), size, align, str(t))


def entity_name(lowered: str) -> str | None:
    """Return the source spelling of a lowered name: ``axpy<float>``, ``ns::k``, ``k<3, float>``.

    Namespaces without a name are omitted, and a name with C linkage is unchanged. Return None if the spelling can't be
    determined.
    """
    if not lowered.startswith("_Z"):
        return lowered if re.fullmatch(r"[A-Za-z_$][A-Za-z0-9_$]*", lowered) else None
    try:
        return _demangler(lowered).name()[0] or None
    except FormatError:
        return None


def demangle(name: str) -> str | None:
    """Return the full C++ spelling of a lowered name: ``void axpy<float>(float, const float*, float*, unsigned long)``.

    Return None if the name is malformed, or uses features that are rare in kernels (operators, dependent expressions).
    """
    if not name.startswith("_Z"):
        return entity_name(name)
    try:
        reader = _demangler(name, anonymous="(anonymous namespace)")
        text = reader.encoding()
    except FormatError:
        return None
    return text if not reader.rest or reader.rest[0] in ".$" else None


def spelled(name: str) -> str:
    """Return a lowered name with its demangled name before it: ``twice(int) (_Z5twicei)``."""
    plain = demangle(name)
    return f"{plain} ({name})" if plain and plain != name else name
