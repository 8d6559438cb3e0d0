"""The text of a source or header -> what it could include, ask for or define, whatever the conditions around it.

Both branches of every ``#if`` count, save where ``conditions`` knows better, so what is found is at least what NVRTC
acts on. The lexical rules are those of its front end. Source: ISO C++ [lex.phases], [lex.pptoken], [cpp.include];
where compilers differ, measured with NVRTC 13.5: a backslash before blanks joins no lines, a lone carriage return ends
none, a quote without its partner lasts to the end of the line, in skipped groups too, where raw strings count as well.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Mapping, Set

from cujit.compiler.includes.conditions import Conditions, is_undefined, may_be_certain
from cujit.compiler.includes.has_include import HAS_INCLUDE, HasIncludeCalls, balanced, find_calls
from cujit.compiler.includes.location import says_where
from cujit.values import NamedTuple, dataclass


class Verb(enum.Enum):
    """The effect of a directive on the file that it names."""

    INCLUDE = "include"
    NEXT = "include_next"
    PROBE = "__has_include"
    """It only asks whether the file is there."""
    CALL = "if"
    """It calls a macro that asks."""

    __hash__ = object.__hash__  # an Enum's own is a call of Python, and a scan hashes verbs by the thousand


class Inclusion(NamedTuple):
    """One ``#include`` or ``__has_include``; ``form`` is ``<``, ``"``, or "" where ``name`` are tokens to expand."""

    verb: Verb
    form: str
    name: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What one text says; it depends on its bytes alone.

    ``defines`` are the texts after ``#define``. ``refusal`` says what in the text is not modelled, or is "";
    ``old_refusal`` the same where the dialect is older than C++17. ``says_where``: the text may put the paths of
    files into the result.
    """

    directives: tuple[Inclusion, ...]
    defines: tuple[str, ...]
    refusal: str = ""
    old_refusal: str = ""
    says_where: bool = False


# No name that could be opened has more than PATH_MAX bytes; the bounds keep the work in proportion to the text.
_BLANK = r"(?:[ \t\f\v\r]|/\*(?:[^*]|\*(?!/)){0,1000}\*/){0,100}"
_WORD = "include|include_next|import"
_NAME = r'<[^>\n]{0,4096}>|"[^"\n]{0,4096}"'
# A quote within a number: the number began with a digit some characters before. A lookbehind has a fixed width, and
# the longest number, binary with a quote after each digit, has 130 characters.
_IN_NUMBER = "|".join(rf"(?<=\b\d[\w.']{{{k}}}')" for k in range(130))
_OPEN = "\n\0 a raw string without an end\n"
_SPLICE = re.compile(r"\\\r?\n")
_HASH = r"\n[ \t\f\v\r]*(?:#|%:)[ \t\f\v\r]*"
_DIRECTIVE = re.compile(
    rf"{_HASH}(include|include_next|import|embed|define|if|ifdef|ifndef|elif|elifdef|elifndef|else|endif)"
    r"(?![\w$])([^\n]*)"
)
_NOT_CONDITIONAL = re.compile(_HASH + r"(include|include_next|import|embed|define|if|elif)(?![\w$])([^\n]*)")
"""What counts where no condition is certain; conditions that may ask for a header are among them."""
_INCLUDES = {"include": Verb.INCLUDE, "import": Verb.INCLUDE, "include_next": Verb.NEXT}
_NAMED = re.compile(r'[ \t\f\v\r]*(?:<([^>\n]*)>|"([^"\n]*)")')
_PROBE = re.compile(
    rf"(?<![\w$]){HAS_INCLUDE}(?:_next)?(?![\w$])([ \t\f\v\r]*\([ \t\f\v\r]*)?({_NAME}|[^)\n]{{0,4096}})",
)
_DEFINE = re.compile(r"[ \t\f\v\r]*(?:#|%:)[ \t\f\v\r]*define\b")
_IN_A_CALL = re.compile(r"(?!(?:if|elif)\b)\b[A-Za-z_$][\w$]*\s*\(")
_TESTED = re.compile(r"\bdefined[ \t]*\(?[ \t]*$|#[ \t]*(?:ifn?def|elifn?def|undef)[ \t]+$")
# An argument of a macro in a condition, which may ask for the header.
_ARGUMENT = re.compile(r'[(,][ \t]*(?:<([^<>\n]+)>|"([^"\n]+)")(?=[ \t]*[),])')
_HIDDEN = re.compile(r'(?:#|%:)\s*(?:include|include_next|import)\s*(?:<([^>\n]*)>|"([^"\n]*)")')
_CONFUSING = re.compile(r"__has_include[^\n<]{0,100}<[^>\n]{0,4096}?/[/*]")
_TIME = ("__DATE__", "__TIME__", "__TIMESTAMP__")
_STRING = re.compile(r'"(?:[^"\\\n]|\\[^\n])*"?')
_IMPORT = re.compile(
    r"^[ \t]*(?:export[ \t]+)?(?:import\b[ \t]*[<\"\w:]|module\b[ \t]*[\w:;])[^=();]{0,200};", re.MULTILINE
)
_TRIGRAPH = re.compile(r"\?\?[=/'()!<>-]")
_BOM = b"\xef\xbb\xbf"
_WIDE = (b"\xff\xfe", b"\xfe\xff")


@functools.cache
def _lexical() -> re.Pattern[str]:
    """Compile the regular expression when a header is first read, because this takes longer than a cache hit."""
    # Every alternative begins with one fixed character, by which `re` skips to it. The first two keep what looks like a
    # comment in a header's name.
    return re.compile(
        rf"""\#{_BLANK}(?P<word>{_WORD}){_BLANK}(?P<name>{_NAME})
    |%:{_BLANK}(?P<other_word>{_WORD}){_BLANK}(?P<other_name>{_NAME})
    |/(?P<comment>/[^\n]*(?:\n[ \t]*//[^\n]*)*|\*[^*]*(?:\*(?!/)[^*]*)*(?:\*/|\Z))
    |"(?<=R")(?:(?<![\w]R")|(?<=\b[LuU]R")|(?<=\bu8R"))(?P<raw>(?P<mark>[^()\\\s"]{{0,16}})\((?:.*?\)(?P=mark)"|.*\Z))
    |"[^"\\\n]*(?:\\[^\n][^"\\\n]*)*["\\]?
    |'(?:{_IN_NUMBER})(?P<number>)
    |'[^'\\\n]*(?:\\[^\n][^'\\\n]*)*['\\]?""",
        re.VERBOSE | re.DOTALL,
    )


def read_facts(data: bytes) -> Facts:
    """Scan a source or a header with any bytes. Names in it are Latin-1, one character per byte."""
    if data.startswith(_WIDE):
        return Facts((), (), refusal="a header in UTF-16")
    text = data.removeprefix(_BOM).decode("latin-1")
    spliced = _SPLICE.sub("", text) if "\\" in text else text
    plain, has_raw, has_separators = _strip(spliced)
    words = _rare_words(plain)
    directives, defines, refusal = _read_lines(plain, words)
    # Lines are not joined in a raw string, so it may end elsewhere than it seems to, or nowhere; and a header's name
    # in __has_include may look like the begin of a comment.
    is_unsure = has_raw and (len(spliced) != len(text) or _OPEN in plain)
    if is_unsure or ("__has_include" in text and _CONFUSING.search(text)):
        directives += _hidden(spliced)
    trigraphs = "?" in text and "??" in text and _TRIGRAPH.search(text)
    old = "trigraphs, or quotes in numbers, or raw strings" if trigraphs or has_separators or has_raw else ""
    refusal = refusal or _refusal(plain, words)
    return Facts(tuple(dict.fromkeys(directives)), defines, refusal, old, says_where(plain))


def code_of(data: bytes) -> str:
    """Return a text with its lines joined, without comments and raw strings. Both stay if it is not certain that they
    end.
    """
    text = data.removeprefix(_BOM).decode("latin-1")
    spliced = _SPLICE.sub("", text)
    plain, has_raw, _ = _strip(spliced)
    return spliced if has_raw and (len(spliced) != len(text) or _OPEN in plain) else plain


def _strip(text: str) -> tuple[str, bool, bool]:
    """Replace comments by a blank and raw strings by an empty string. Report raw strings and quotes in numbers."""
    raw = separators = False
    pieces: list[str] = []
    at = 0
    for match in _lexical().finditer(text):
        what = match.lastgroup
        if what is None:  # a string, a character
            continue
        if what == "number":
            separators = True
            continue
        if what == "comment":
            written = " "
        elif what == "raw":
            raw = True
            written = '""' if match[0].endswith(f'){match["mark"]}"') else _OPEN
        elif "/*" in match[0]:
            written = f"#{match['word'] or match['other_word']} {match[what]}"
        else:
            continue
        pieces += (text[at : match.start()], written)
        at = match.end()
    return "".join(pieces) + text[at:], raw, separators


def _read_lines(plain: str, words: Set[str]) -> tuple[list[Inclusion], tuple[str, ...], str]:
    included: list[tuple[bool, Inclusion]] = []
    probed: list[Inclusion] = []
    defines: list[str] = []
    refusal = ""
    conditions = Conditions()
    is_conditional = may_be_certain(plain)
    for match in (_DIRECTIVE if is_conditional else _NOT_CONDITIONAL).finditer("\n" + plain):
        word, rest = match[1], match[2]
        if word == "define":
            defines.append(rest.strip())
        elif word == "embed":
            refusal = "#embed"
        elif word in _INCLUDES:
            included.append((conditions.is_live, _included(_INCLUDES[word], rest)))
        else:
            if is_conditional:
                conditions.see(word, rest)
            if word in ("if", "elif"):
                probed += _arguments(rest)
    if HAS_INCLUDE in " ".join(words):
        found, why = _probes(plain)
        probed += found
        refusal = refusal or why
    is_certain = conditions.is_whole and not is_undefined(plain)
    return [d for is_live, d in included if is_live or not is_certain] + probed, tuple(defines), refusal


def _arguments(condition: str) -> list[Inclusion]:
    if "<" not in condition and '"' not in condition:
        return []
    return [_named(Verb.PROBE, match) for match in _ARGUMENT.finditer(condition)]


def _included(verb: Verb, rest: str) -> Inclusion:
    match = _NAMED.match(rest)
    return _named(verb, match) if match else Inclusion(verb, "", rest.strip())


def _named(verb: Verb, match: re.Match[str]) -> Inclusion:
    return Inclusion(verb, '"' if match[1] is None else "<", match[2] if match[1] is None else match[1])


def _probes(plain: str) -> tuple[list[Inclusion], str]:
    """Find the names in ``__has_include`` anywhere, and report where they can't be determined.

    Names within a macro or an argument are expanded first. A definition counts where it is used (``probing``).
    """
    found: list[Inclusion] = []
    for match in _PROBE.finditer(plain):
        line = plain[plain.rfind("\n", 0, match.start()) + 1 : match.start()]
        if match[1] is None or balanced(plain, match.end() - len(match[0]) + len(HAS_INCLUDE)) is None:
            if match[1] is not None or not _TESTED.search(line):
                return found, f"{HAS_INCLUDE} under another name"
            continue
        operand = match[2].strip()
        named = _NAMED.match(operand)
        if named:
            found.append(_named(Verb.PROBE, named))
        if not _DEFINE.match(line) and (not named or _is_in_a_call(line)):
            found.append(Inclusion(Verb.PROBE, "", operand))
    return found, ""


def _is_in_a_call(line: str) -> bool:
    """Return whether the end of a line is within the arguments of a possible macro."""
    while (shorter := re.sub(r"\([^()]*\)", "", line)) != line:
        line = shorter
    return _IN_A_CALL.search(line) is not None


def read_calls(data: bytes, names: Mapping[str, bool]) -> HasIncludeCalls:
    """Find the calls of macros that test for headers in a text. ``names`` is the result of ``probing.askers``."""
    text = data.removeprefix(_BOM).decode("latin-1")
    spliced = _SPLICE.sub("", text)
    if not any(name in spliced for name in names):
        return HasIncludeCalls()
    plain, has_raw, _ = _strip(spliced)
    if has_raw and (len(spliced) != len(text) or _OPEN in plain):
        return HasIncludeCalls(refusal="macros that ask for headers, beside a raw string that may end elsewhere")
    return find_calls(plain, names)


def _hidden(text: str) -> list[Inclusion]:
    """Find every text that looks like an include, also in comments and strings."""
    return [_named(Verb.INCLUDE, match) for match in _HIDDEN.finditer(text)]


def _refusal(plain: str, words: Set[str]) -> str:
    if is_undefined(plain):
        return "an #undef of what NVRTC defines"
    if any("__has_embed" in word for word in words):
        return "__has_embed"
    if ("import" in plain or "module" in plain) and (match := _IMPORT.search(plain)):
        return f"a module ({match[0].strip()[:40]})"
    if "%" in plain and "%:%:" in plain:
        return "%:%: for ##"
    if pasted := _pasted_name(plain, words):
        return f"{pasted}, of which ## may make a name that is not modelled"
    if any(time in word for word in words for time in _TIME):
        code = _STRING.sub('""', plain)
        return next((f"{word}, which is different at every compile" for word in _TIME if word in code), "")
    return ""


# Names that ``##`` may paste together out of pieces, so that no text holds them whole: ``__has_ ## include``.
_PASTED = ("__has_include", "__has_embed", "__DATE__", "__TIME__", "__TIMESTAMP__")
# Of two pieces, one is a begin of four characters or more, or else the other lacks no more than three. `include` by
# itself is in every text; what goes before it is not.
_BEGINS = {name[:k] for name in _PASTED for k in range(4, len(name))}
_ENDS = {name[k:] for name in _PASTED for k in (1, 2, 3)}
# Three pieces: the underscores apart.
_CORES = {name.strip("_") for name in _PASTED}
_PIECES = _BEGINS | _ENDS - _CORES
_CORE = re.compile(rf"(?<![\w$])(?:{'|'.join(sorted(_CORES, key=len, reverse=True))})(?![\w$])")
_WORD_THERE = re.compile(r"[\w$]*")
# Both begin with what `re` skips to.
_UNDERSCORES = re.compile(r"_(?:(?<=(?<![\w$])_)|(?<=(?<![\w$])__))\s*##"), re.compile(r"##\s*__?(?![\w$])")
# Each piece holds one of these, as what is refused by its whole name does. An expression of all pieces takes twenty
# times as long to find none.
_HINTS = ("as_include", "as_embed", "IME__", "ATE__", "AMP__", "__ha", "__DA", "__TI")


def _rare_words(plain: str) -> set[str]:
    """Return the whole words that contain one of ``_HINTS``."""
    words = set()
    for hint in _HINTS:
        at = plain.find(hint)
        while at >= 0:
            while at > 0 and (plain[at - 1].isalnum() or plain[at - 1] in "_$"):
                at -= 1
            match = _WORD_THERE.match(plain, at)
            assert match is not None
            words.add(match[0])
            at = plain.find(hint, match.end())
    return words


def _pasted_name(plain: str, words: Set[str]) -> str:
    """Return a part of a name for files or the time that a text, without comments, may contain. ``""`` if there is
    none.

    One piece is enough: the macro that pastes may be in another header. The words ``DATE`` and ``TIME`` count only
    beside a ``##`` with underscores. A name in more pieces than that is not seen.
    """
    for word in words:
        if word in _PIECES:
            return word
    if "##" in plain and any(core in plain for core in _CORES) and any(p.search(plain) for p in _UNDERSCORES):
        match = _CORE.search(plain)
        return match[0] if match else ""
    return ""
