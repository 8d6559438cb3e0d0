"""What ``make docs`` needs beside mkdocs.yml: files outside of ``docs`` become pages, and links follow them.

Every page names the version and the repository at its foot. ``pyproject.toml`` has the address of the repository.

A link in a page is one of the repository, so that it works there as well. Here it is resolved as such, and written as
that to the page that the file became. What has no page keeps its text alone.
"""

from __future__ import annotations

import functools
import os
import re
import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(1, str(Path(__file__).parents[1] / "src"))

from site_pages import API, ApiPage, anchors, api_pages, messages_page

if TYPE_CHECKING:
    from mkdocs.structure.files import Files

__all__ = [
    "boxed", "followed", "foot", "labeled", "named", "on_config", "on_files", "on_page_content", "on_page_markdown",
    "piped",
]  # fmt: skip

ROOT = Path(__file__).parents[1]

_PAGES = {
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
}
"""Pages of the site by the files of the repository that they are."""

_CODE_IN_TABLE = re.compile(r"^\|.*`.*$", re.MULTILINE)
_CODE = re.compile(r"`[^`\n]+`")

# What is no place for a link comes first: code, links, titles, and where the page of errors has the name itself.
_NAMED = re.compile(
    r"^```.*?^```|^ *#.*?$|\[[^\]]*\]\([^)]*\)|`\w+` <a |`(?:cujit\.)?(?:errors\.)?(?P<name>\w+)`",
    re.DOTALL | re.MULTILINE,
)

_ALERT = re.compile(r"^> \[!(?P<kind>\w+)\]\n(?P<text>(?:^>.*\n?)+)", re.MULTILINE)
"""A box of GitHub, as ``> [!WARNING]`` begins it."""

_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s:]+)(#[^)\s]*)?\)")

_PICTURE = re.compile(
    r'<picture><source media="[^"]*" srcset="(?:docs/)?images/(?P<name>\w+)-dark\.(?P<kind>svg|png)"><img\s+'
    r'src="(?:docs/)?images/(?P=name)-light\.(?P=kind)" width="\d+"\s+alt="(?P<alt>[^"]*)"></picture>'
)


def on_config(config: Any) -> Any:
    """Put version and repository at the foot of every page, and the pages of the API into the navigation."""
    config.copyright = foot()
    for section in config.nav:
        for pages in section.values():
            if isinstance(pages, list) and "api.md" in pages:
                pages[pages.index("api.md")] = {"API reference": [{page.title: page.uri} for page in _api()]}
    return config


@functools.cache
def _api() -> list[ApiPage]:
    return api_pages(API.read_text())


@functools.cache
def _api_anchors() -> dict[str, str]:
    """The page of the API by the anchors that it has."""
    return {anchor: page.uri for page in _api() for anchor in anchors(page.text)}


def foot() -> str:
    """Return the foot of a page, as HTML."""
    version = runpy.run_path(str(ROOT / "src/cujit/version.py"))["__version__"]
    urls = re.findall(r'^Repository = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    return f'cujit {version} · <a href="{urls[0]}">Repository</a> · Apache-2.0'


def on_files(files: Files, *, config: Any) -> Files:
    """Add what is outside of ``docs``: pages of the root, and the examples as they are."""
    from mkdocs.structure.files import File  # an optional part: the extra `docs`

    for uri, path in _PAGES.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / path)))
    for page in _api():
        if page.uri != "api.md":
            files.append(File.generated(config, page.uri, content=page.text))
    for path in _examples():
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


_WEIGHTS = {
    "error-messages.md": 0.3,
    "glossary.md": 0.3,
    "how-to/ci.md": 4,
    "how-to/find-a-race.md": 3,
    "how-to/ordinary-files.md": 5,
    "how-to/time-a-kernel.md": 6,
    "launch.md": 3,
    "profile.md": 3,
    "reproducer.md": 4,
    "shipping.md": 2,
    "tutorial/1-first-kernel.md": 4,
}
"""Pages that the search ranks higher, or lower, than by their words alone: `tools/site_search.py` measures it."""


_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)


def on_page_content(html: str, **_: Any) -> str:
    """Name the column in each cell of a table, so that a phone can show a row as a list."""
    return _TABLE.sub(labeled, html)


def labeled(table: re.Match[str]) -> str:
    """Return a table whose cells have the texts of their columns as ``data-label``."""
    names = [re.sub(r"<[^>]*>", "", cell).strip() for cell in re.findall(r"<th[^>]*>(.*?)</th>", table[0], re.DOTALL)]

    def row(match: re.Match[str]) -> str:
        left = iter(names)
        return re.sub("<td", lambda _: f'<td data-label="{next(left, "")}"', match[0])

    return re.sub(r"<tr>.*?</tr>", row, table[0], flags=re.DOTALL)


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Turn links of the repository into links of the site, and tables of GitHub into those of Python-Markdown."""
    uri = page.file.src_uri
    if uri in _WEIGHTS:
        page.meta["search"] = {"boost": _WEIGHTS[uri]}
    if uri == "api.md":
        markdown = _api()[0].text
    if uri == "error-messages.md":
        markdown = messages_page()
    return boxed(piped(named(followed(markdown, uri), uri)))


def named(markdown: str, uri: str) -> str:
    """Give the text of the page at ``uri`` with each error leading to what the page of errors says of it."""
    page = (ROOT / "docs/errors.md").read_text()
    known = dict(re.findall(r'`(\w+)` <a id="(\w+)">', page))
    to = os.path.relpath("errors.md", os.path.dirname(uri) or ".") if uri != "errors.md" else ""

    def link(match: re.Match[str]) -> str:
        place = known.get(match["name"] or "")
        return f"[{match[0]}]({to}#{place})" if place else match[0]

    return _NAMED.sub(link, markdown)


def piped(markdown: str) -> str:
    """Give the text with the bars that are code in a table as they are: GitHub wants a backslash, and takes it away."""

    def row(match: re.Match[str]) -> str:
        return _CODE.sub(lambda code: code[0].replace("\\|", "|"), match[0])

    return _CODE_IN_TABLE.sub(row, markdown)


def boxed(markdown: str) -> str:
    """Return the text with boxes of GitHub as those of Python-Markdown."""

    def box(match: re.Match[str]) -> str:
        lines = (line.removeprefix(">").removeprefix(" ") for line in match["text"].splitlines())
        return f"!!! {match['kind'].lower()}\n\n" + "".join(f"    {line}".rstrip() + "\n" for line in lines)

    return _ALERT.sub(box, markdown)


def followed(markdown: str, uri: str) -> str:
    """Give the text of the page at ``uri`` with its links as the site has them."""
    home = _PAGES.get(uri, uri if uri.startswith("examples/") else f"docs/{uri}")
    pages = {"README.md": "index.md", **{path: page for page, path in _PAGES.items()}}
    files = _examples()

    def link(match: re.Match[str]) -> str:
        mark, text, target, anchor = match.groups()
        path = os.path.normpath(os.path.join(os.path.dirname(home), target))
        if f"{path}/README.md" in files:
            path += "/README.md"
        there = pages.get(path) or (path if path in files else None)
        if path.startswith("docs/"):
            there = path.removeprefix("docs/")
        if there == "api.md" and anchor:
            there = _api_anchors().get(anchor[1:], there)
        if there is None:
            return text
        if text in (path, os.path.basename(path)):  # in the repository, a page is its file
            text = _title(path)
        return f"{mark}[{text}]({os.path.relpath(there, os.path.dirname(uri) or '.')}{anchor or ''})"

    shaded = functools.partial(_shaded, "images" if uri == "index.md" else "../images")
    return _PICTURE.sub(shaded, _LINK.sub(link, markdown))


def _title(path: str) -> str:
    """Return the first heading of a file."""
    return (ROOT / path).read_text().partition("# ")[2].partition("\n")[0]


def _shaded(folder: str, picture: re.Match[str]) -> str:
    """Show the one of two pictures that goes with what the reader chose here, whatever the system has.

    A chart that has a form for phones is shown in that form on a narrow page.
    """
    name, kind, alt = picture["name"], picture["kind"], picture["alt"]
    shown = {s: f'<img src="{folder}/{name}-{s}.{kind}#only-{s}" alt="{alt}">' for s in ("light", "dark")}
    if (ROOT / f"docs/images/{name}_narrow-light.svg").is_file():
        source = f'<source media="(max-width: 38em)" srcset="{folder}/{name}_narrow-{{}}.svg">'
        shown = {s: f"<picture>{source.format(s)}{image}</picture>" for s, image in shown.items()}
    return f'<div class="picture">{"".join(shown.values())}</div>'


def _examples() -> set[str]:
    found = (path for path in (ROOT / "examples").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in found}
