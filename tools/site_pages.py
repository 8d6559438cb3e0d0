"""Pages of the site that are cut or collected from others: the API by class, and the texts of all error messages.

``site_hook.py`` adds them when the site is built. In the repository, ``docs/api.md`` is one page, and
``docs/error-messages.md`` only the head of one.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from cujit import errors
from cujit.errors.codes import CODES
from cujit.values import NamedTuple

__all__ = ["API", "ApiPage", "anchors", "api_pages", "messages_page", "slug"]

ROOT = Path(__file__).parents[1]
API = ROOT / "docs/api.md"
MESSAGES = ROOT / "docs/error-messages.md"

_GROUPS = {
    "Compile, link and load": "build bundle compile jit link load module record_worklist request retarget",
    "Devices": "all_devices cpu default_device doctor emulate gpu",
    "Inspect images": "argument compare compat inspect requirements usage",
    "Time and tune": "time tune",
    "Cache and registry of the process": "default_cache default_registry",
}
"""The functions of ``cujit`` by the page that they are on."""


class ApiPage(NamedTuple):
    """A page of the API: its place in the site, its name in the navigation, and its text."""

    uri: str
    title: str
    text: str


def slug(heading: str) -> str:
    """Return the anchor of a heading, as Python-Markdown writes it."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def anchors(text: str) -> set[str]:
    """Return the anchors of the headings of a page."""
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


def api_pages(text: str) -> list[ApiPage]:
    """Cut the page of the API: the overview first, then a page for each class, group of functions and module."""
    overview, *sections = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    group_of = {name: group for group, names in _GROUPS.items() for name in names.split()}
    parts: dict[str, list[str]] = defaultdict(list)
    for section in sections:
        name = section.partition("\n")[0].removeprefix("## ")
        parts[group_of.get(name.removeprefix("cujit."), name)].append(section)
    order = [*(name for name in parts if name.startswith("class ")), *_GROUPS]
    # An address of the time when this was one page, such as api/#cujitbuild, leads to the row of the table.
    kept = re.sub(r"^\| (?=\[`[^`]+`\]\(#([\w-]+)\))", r'| <a id="\1"></a>', overview, flags=re.MULTILINE)
    pages = [ApiPage("api.md", "Overview", kept)]
    for name in (*order, *(name for name in parts if name not in order)):
        body = "".join(parts[name])
        raised = re.sub(r"^##(#*) ", r"#\1 ", body, flags=re.MULTILINE)
        text = f"# {name}\n\n{body}" if name in _GROUPS else raised
        kind = "class" if name.startswith("class ") else "functions" if name in _GROUPS else "module"
        end = slug(name.removeprefix("class ").replace("cujit.", "").replace(",", ""))
        pages.append(ApiPage(f"api/{kind}-{end}.md", name.removeprefix("class "), text))
    place = {anchor: page.uri for page in pages for anchor in anchors(page.text)}

    def followed(page: ApiPage) -> str:
        def link(match: re.Match[str]) -> str:
            if match[1] is None:
                return match[0]
            target, _, anchor = match[1].partition("#")
            up = "" if page.uri == "api.md" else "../"
            if target:
                return f"]({up}{match[1]})"
            to = place.get(anchor, page.uri)
            return f"](#{anchor})" if to == page.uri else f"]({up}{to}#{anchor})"

        return _CODE_OR_LINK.sub(link, page.text)

    return [page._replace(text=followed(page) + ("" if page.uri == "api.md" else _NAMES)) for page in pages]


_CODE_OR_LINK = re.compile(r"```.*?```|`[^`\n]*`|\]\(((?!\w+:)[^)\s]+)\)", re.DOTALL)
_NAMES = "\nThe examples use the names that the [API reference](../api.md) defines, such as `device` and `kernel`.\n"


def messages_page() -> str:
    """Write the page of all messages, by code; ``…`` stands for what differs from error to error."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted((ROOT / "src/cujit").rglob("*.py")):
        for code, text in _messages(ast.parse(path.read_text())):
            if code in CODES:
                found[code].add(text)
    lines = [f"## {code}\n\n" + "".join(f"* `{text}`\n" for text in sorted(found[code])) for code in sorted(found)]
    return MESSAGES.read_text() + "\n" + "\n".join(lines)


def _messages(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.args:
            kind = getattr(errors, call.func.id, None)
            if isinstance(kind, type) and issubclass(kind, errors.CujitError):
                given = [word.value for word in call.keywords if word.arg == "code"]
                code = str(ast.literal_eval(given[0])) if given else kind.code
                text = " ".join(_template(call.args[0]).replace("`", "'").split())
                if re.search(r"\w{3}", text):
                    yield code, text


def _template(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_template, node.values))
    if isinstance(node, ast.BinOp):
        return _template(node.left) + _template(node.right)
    return "…"
