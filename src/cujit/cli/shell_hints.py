"""Hints in the words of the shell: the library's name arguments of Python, and the verbs have options."""

from __future__ import annotations

import re
from collections.abc import Callable

from cujit.compiler.options.table import OPTIONS

_VERBS = "compile|build|link|bundle|inspect|retarget"
_SETTINGS = "|".join(OPTIONS)


def _targets(match: re.Match[str]) -> str:
    return " ".join(f"--target {name}" for name in re.findall(r"'([^']+)'", match[0]))


_RULES: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    # Whole calls
    (r"cujit\.link\(\[\w+\], arch='([^']+)', verbose=True\)", r"cujit link FILE -a \1 -O verbose -o x.cubin"),
    (r"cujit\.link\(\[\w+\], arch='([^']+)'\)", r"cujit link FILE -a \1 -o x.cubin"),
    (r"cujit\.link\(\[\.\.\.\], arch=\.\.\.\)", "cujit link FILE -o x.cubin"),
    (r"cujit\.compile\((?:cujit\.)?Source\.nvvm\(\.\.\.\), arch='([^']+)'\)", r"cujit compile FILE.ll -a \1"),
    (r"cujit\.compile\((?:cujit\.)?Source\.nvvm\(\.\.\.\)\)", "cujit compile FILE.ll"),
    (r"cujit\.compile\(source, arch='([^']+)'\)", r"cujit compile FILE -a \1"),
    (r"cujit\.inspect\(image\)", "cujit inspect FILE"),
    (r"cujit\.occupancy\.of\(registers=64, on='H200'\)", "cujit occupancy --registers 64 --on H200"),
    (r"cujit\.occupancy\.of\('k\.cubin'\)", "cujit occupancy k.cubin"),
    (r"cujit\.cpu\(\) and cujit\.gpu\(0\)|cujit\.cpu\(\) or cujit\.gpu\(0\)", "--device cpu or --device cuda:0"),
    (r"(?:device=)?cujit\.cpu\(\)", "--device cpu"),
    (r", not cujit\.load", ""),
    (rf"cujit\.({_VERBS})\(…, extra=\[…\]\)", r"cujit \1 -O extra=…"),
    (rf"cujit\.({_VERBS})\b(?!\()", r"cujit \1"),
    (
        r"kernel\.cooperative_shape\(\) gives block and blocks that fill the device",
        "--cooperative alone fills the device",
    ),
    (r"kernel\.prepare\(grid, block, cluster=2\)", "--cluster 2"),
    (r"kernel\[grid, block\]\(…\)|kernel\[blocks, threads\]\(…\)", "--grid and --block"),
    (r"kernel\.over\(n\)(?:\(…\))?", "--over N"),
    # Arguments
    (r"(?:cujit\.)?Source\.nvvm\(…, libdevice=True\)", "--libdevice"),
    (r"Source\.nvvm\(module, module, …\) or from ", ""),
    (r"\bleave to out\b", "leave --to out"),
    (r" or its text \(headers=\{name: text\}\)", ""),
    (r"(?:options=)?dict\(extra=\['--flag'\]\)|extra=\('--flag',\)", "-O extra=--flag"),
    (r"extra=\(…\)", "-O extra=…"),
    (r"options=\{'(\w+)': True\}", r"-O \1"),
    (r"\bpre_include=\[…\]", "-O pre_include=HEADER"),
    (r"\binclude=\[…\]", "-I DIR"),
    (r"\bdefine=\{[^}]*\}", "-D N=4 -D FLAG -D 'SQ(x)=((x)*(x))'"),
    (r"\btargets=\['[^\]]*\](?: or \['[^\]]*\])?", _targets),
    (r"\bnames=\[(['\"])(.*?)\1(?:, '[^']*')*\]", r"{name} '\2'"),
    (r"\b(to|compress)='(\w+)'", r"--\1 \2"),
    (r"\barch='([^']+)'", r"{arch} \1"),
    (r"\bon='(\w+)'", r"--on \1"),
    (r"\bkernel='([^']+)'", r"--kernel '\1'"),
    (r"\b(registers|processors)=(\w*)", lambda match: f"--{match[1]} {match[2]}".rstrip()),
    (r"\btimeout_s=(\d*), --timeout", "--timeout"),
    (r"\btimeout_s=(\d+)", r"--timeout \1"),
    (r"\btimeout_s\b", "--timeout"),
    (r"\bisolate=True, memory_mib=(\d+)", r"--isolate --memory \1"),
    (r"\bisolate=True", "--isolate"),
    (r"\bisolate=False", "leave --isolate out"),
    (r"\bmemory_mib\b", "--memory"),
    (rf"\b({_SETTINGS})=True\b", r"-O \1"),
    (rf"\b({_SETTINGS})=False\b", r"-O \1=false"),
    (rf"\b({_SETTINGS})=\[?'([^'\]]*)'\]?", r"-O \1=\2"),
)


def for_the_shell(hint: str, verb: str = "") -> str:
    """Format a hint for the command line of ``verb``. ``include=[…]`` becomes ``-I DIR``, ``cujit.link`` becomes
    ``cujit link``.
    """
    for pattern, words in _RULES:
        hint = re.sub(pattern, words, hint)
    name, arch = "-k" if verb == "run" else "-n", "--target" if verb == "build" else "--arch"
    return hint.replace("{name}", name).replace("{arch}", arch)
