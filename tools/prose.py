"""Check the English of everything that users read: ``python tools/prose.py`` prints a line for each finding.

It reads pages, the changelog, and the messages and hints of errors. Docstrings, help and error codes are in the pages
``api``, ``cli``, ``environment`` and ``errors``, which tests compare with the code. Harper (`harper-py`) checks the
grammar, offline. ``RULES`` are ours. A rule checks only what a rule can; CONTRIBUTING.md describes the style.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from harper import Linter
from markdown_it import MarkdownIt
from markdown_it.token import Token

__all__ = ["Block", "blocks", "findings", "made", "messages", "report", "sources"]

ROOT = Path(__file__).parents[1]
_OFF = (
    "AdjectiveDoubleDegree", "CapitalizePersonalPronouns", "CommaFixes", "CompoundNouns", "CondenseAllThe", "Dashes",
    "DisjointPrefixes", "ExpandArgument", "ExpandConfiguration", "ExpandControl", "ExpandDirectory",
    "ExpandMemoryShorthands", "ExpandMinimum", "ExpandParameter", "ExpandPerformance", "ExpandTimeShorthands",
    "FindOut", "ItsContraction", "LongSentences", "MassNouns", "MergeWords", "MissingDeterminer", "MissingPreposition",
    "MissingTo", "OrthographicConsistency", "Overall", "OxfordComma", "PhrasalVerbAsCompoundNoun",
    "SentenceCapitalization", "SimplePastToPastParticiple", "Spaces", "SpellCheck", "SplitWords", "ThatThan",
    "TheLastDays", "TheirToTheyre", "ToTwoToo", "UnclosedQuotes", "UseEllipsisCharacter", "UseTitleCase",
)  # fmt: skip
"""Rules of Harper 2 that were wrong more often than right on these texts, read one by one, and one that is in RULES."""

_RIGHT = (
    "a SHA-256", "A SHA-256", "an mbarrier", "an sm_", "an lcov", "an f32", "an mpi4py", "bit for bit", "a MB",
    "A operand", "A and B", "DAYS days", "sm_90a or", "sm_110a and", "stack overflow", "parameter's is",
    "tcgen05.alloc",
)  # fmt: skip
"""Texts that Harper takes for mistakes, and are none."""

MOST_WORDS = 25
RULES = {
    "a word to avoid": re.compile(
        r"\b(?:houses?|floors?|told|roads?|run by (?:the|our) tests|(?:do not|don't) edit|by hand|verbs|the verb|anew|"
        r"likewise|shall|in vain|whoever|whose else|whom|meanwhile|nobody|somebody|unsaid|if nothing is said|"
        r"(?-i:(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{7,40}))\b",
        re.IGNORECASE,
    ),
    "a clause as the subject": re.compile(r"\A\W*(?:What|Who|Whoever|Whose|Where)\b(?! to\b)(?:\W+\w+){5}.*[.:]\W*\Z"),
    "write `Default: X.`": re.compile(
        r"(?<!by )\bdefaults? to\b|\b(?:the|its) default (?:is|are)\b|\bif unset\b|\(default[: ]", re.IGNORECASE
    ),
    "write `can't`": re.compile(r"\bcan ?not\b", re.IGNORECASE),
    "name the actor and the verb": re.compile(
        r"\b(?:(?:is|are|was|were|be|been) (?:said|had|come by|gone|asked)|"
        r"(?<!here )(?:is|are) no (?!longer|more|larger|less))\b"
    ),
}
"""What is wrong, and what shows it in a sentence. Words to avoid are of this project, of how a page is made, or old."""

_ALLOWED = {"SECURITY.md": "nobody", "architecture.md": "floors", "performance.md": "[0-9a-f]{7,8}",
            "__init__.py": "cannot"}  # fmt: skip
"""Words with a meaning in one file: nobody is trusted, a contract's name, measured commits, a dataclass's message."""


class Block(NamedTuple):
    """A heading, paragraph, list item, table cell or message, and its line. Code is in backticks."""

    line: int
    text: str


def sources() -> Iterator[tuple[Path, list[Block]]]:
    """Yield each file with its blocks."""
    names = ("README.md", "CONTRIBUTING.md", "SECURITY.md", ".github/PULL_REQUEST_TEMPLATE.md")
    pages = [page for page in (ROOT / "docs").rglob("*.md") if page.name not in ("instructions.md", "licenses.md")]
    for page in (*(ROOT / name for name in names), *sorted(pages)):
        yield page, blocks(page.read_text())
    yield ROOT / "CHANGELOG.md", blocks((ROOT / "CHANGELOG.md").read_text().partition("\n## 0.2.0 ")[0])
    for form in sorted((ROOT / ".github").glob("*TEMPLATE*/*.yml")):
        yield form, blocks(re.sub(r"(?m)^[ -]*(?:\w+: *)?[|>]?", "", form.read_text()))
    for code in sorted((ROOT / "src/cujit").rglob("*.py")):
        yield code, messages(code.read_text())


def blocks(markdown: str) -> list[Block]:
    """Return the prose of Markdown, without blocks of code, pictures and the targets of links."""
    plain = re.sub(
        r'(?m)^(?:!!!|===|\?\?\?\+?)[^"\n]*(.*)\n((?:(?: {4}.*)?\n)+)',
        lambda box: f"# {box[1]}\n{textwrap.dedent(box[2])}",
        markdown,
    )
    return [
        Block(token.map[0] + 1, " ".join("".join(map(_plain, token.children or ())).split()))
        for token in MarkdownIt().enable("table").parse(plain)
        if token.type == "inline" and token.map
    ]


def _plain(token: Token) -> str:
    if token.type == "code_inline":
        return f"`{token.content}`"
    return token.content if token.type == "text" else " " if token.type.endswith("break") else ""


def messages(code: str) -> list[Block]:
    """Return the messages and hints of errors in Python code. Each value that is filled in is ``x``."""
    tree = ast.parse(code)
    named = {ast.unparse(node.targets[0]): node.value for node in tree.body if isinstance(node, ast.Assign)}
    found: dict[tuple[int, int], str] = {}

    def collect(node: ast.AST) -> None:
        if isinstance(node, ast.Name):
            node = named.get(node.id, node)
        text = _template(node)
        if isinstance(node, ast.expr) and len(text.split()) > 2:
            found[node.lineno, node.col_offset] = " ".join(text.split())
        elif not text:
            for child in ast.iter_child_nodes(node):
                collect(child)

    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and node.exc:
            collect(node.exc)
        elif isinstance(node, ast.Call) and re.search(r"(?:\bHint|Error|Warning)$", ast.unparse(node.func)):
            collect(node)
        elif isinstance(node, ast.keyword) and node.arg in ("help", "hint", "message"):
            collect(node.value)
    return [Block(line, text) for (line, _), text in sorted(found.items())]


def _template(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(_template(part) or "`x`" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def findings(prose: Sequence[Block], linter: Linter | None = None, page: str = "") -> Iterator[tuple[int, str, str]]:
    """Yield the line, the text and the message of each finding in blocks; without a linter, only those of RULES."""
    for line, block in prose:
        plain = re.sub(r"`[^`]*`", "`x`", block)
        for sentence in re.split(r'(?<=[.!?:])[)"*]*\s+', plain):
            count = len(re.findall(r"\S*\w\S*", sentence))
            if count > MOST_WORDS:
                yield line, sentence, f"{count} words in a sentence"
            for message, rule in RULES.items():
                match = rule.search(sentence)
                if match and not re.fullmatch(_ALLOWED.get(page, ""), match[0].lower()):
                    yield line, sentence, f"{message}: {match[0]!r}"
        # Harper takes a second for 50,000 characters: a cell of a few words has no grammar.
        for lint in linter.lint(plain) if linter and plain.count(" ") > 7 else ():
            begin, end = lint.span.start, lint.span.end
            if not any(right in plain[max(begin - 20, 0) : end + 20] for right in _RIGHT):
                yield line, plain[max(begin - 20, 0) : end + 20], lint.message


def made() -> Linter:
    """Make a linter with the rules that can judge these texts."""
    linter = Linter()
    linter.set_lint_config({**linter.get_default_lint_config(), **dict.fromkeys(_OFF, False)})
    return linter


def report(linter: Linter | None = None) -> str:
    """Return a line for each finding."""
    lines, seen = list[str](), set[str]()
    for path, prose in sources():
        name = path.relative_to(ROOT).as_posix()
        new = [block for block in prose if block.text not in seen]
        seen.update(block.text for block in new)
        lines += [f"{name}:{at}: {text!r}: {why}" for at, text, why in findings(new, linter, path.name)]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(report(made()) or None)
