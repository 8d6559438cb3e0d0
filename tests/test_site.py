"""The site has every page, and links of the repository become its own; ``make docs`` builds it and checks more."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import cujit
import cujit.errors as errors
from cujit.compiler.options.table import OPTIONS
from cujit.errors.codes import CODES
from site_hook import boxed, followed, foot, labeled, named, piped
from site_pages import API, anchors, api_pages, messages_page

ROOT = Path(__file__).parents[1]
SETTINGS = (ROOT / "mkdocs.yml").read_text()


def test_navigation_has_every_page() -> None:
    listed = re.findall(r"[ :-] (\S+\.md)$", SETTINGS, re.MULTILINE)
    ours = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert ours <= {*listed}
    assert sorted({*listed}) == sorted(listed)


def test_repository_link_leads_to_the_page_of_its_file() -> None:
    assert followed("[a](../README.md#the-house) [b](cli.md)", "a.md") == "[a](index.md#the-house) [b](cli.md)"
    assert followed("[names](docs/api.md)", "changelog.md") == "[names](api.md)"
    assert followed("[e](../examples/kernel-library)", "shipping.md") == "[e](examples/kernel-library/README.md)"
    assert followed("[s](../../docs/shipping.md)", "examples/kernel-library/README.md") == "[s](../../shipping.md)"


def test_link_outside_the_site_becomes_text_unless_external() -> None:
    assert followed("[pipeline.py](../src/cujit/devices/cpu/pipeline.py)", "cpu.md") == "pipeline.py"
    assert followed("[v](https://semver.org)", "changelog.md") == "[v](https://semver.org)"


def test_picture_follows_the_color_scheme() -> None:
    shown = followed((ROOT / "docs/performance.md").read_text(), "performance.md")
    assert '<img src="../images/pairs-dark.svg#only-dark" alt="' in shown
    shown = followed((ROOT / "docs/notebook.md").read_text(), "notebook.md")
    assert '<img src="../images/notebook-light.png#only-light" alt="' in shown


def test_chart_has_a_phone_form_and_a_screenshot_has_none() -> None:
    shown = followed((ROOT / "docs/performance.md").read_text(), "performance.md")
    narrow = '<source media="(max-width: 38em)" srcset="../images/pairs_narrow-dark.svg">'
    assert f'<picture>{narrow}<img src="../images/pairs-dark.svg#only-dark"' in shown
    assert "<source" not in followed((ROOT / "docs/notebook.md").read_text(), "notebook.md")


def test_bar_in_a_table_is_one_on_the_site_too() -> None:
    assert piped("| `a\\|b` | c \\| d |\nnot `a\\|b`") == "| `a|b` | c \\| d |\nnot `a\\|b`"


def test_box_of_github_is_one_on_the_site_too() -> None:
    shown = boxed("> [!WARNING]\n> **First.**\n>\n> * one\n>   more\n\nAfter\n\n> said\n")
    assert shown == "!!! warning\n\n    **First.**\n\n    * one\n      more\n\nAfter\n\n> said\n"
    for page in ("checks.md", "testing.md"):
        text = (ROOT / "docs" / page).read_text()
        if "> [!" in text:  # it goes when its last line goes
            assert "!!! warning\n\n    **" in boxed(text), page


def test_error_named_on_a_page_links_to_its_description() -> None:
    assert named("a `LinkError`, x", "cli.md") == "a [`LinkError`](errors.md#linkerror), x"
    assert named("`cujit.errors.LinkError`", "how-to/ci.md") == "[`cujit.errors.LinkError`](../errors.md#linkerror)"
    assert named("| `ToolError` |", "errors.md") == "| [`ToolError`](#toolerror) |"
    for kept in ("```py\n`LinkError`\n```", "## `LinkError`", "[`LinkError`](x.md)", "`Artifact`", "LinkError"):
        assert named(kept, "api.md") == kept
    page = (ROOT / "docs/errors.md").read_text()
    assert all(f'| `{name}` <a id="{name.lower()}"></a> |' in page for name in errors.__all__ if name.endswith("Error"))


def test_every_page_with_python_or_a_session_is_tested() -> None:
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__))
    for path in (ROOT / "docs").rglob("*.md"):
        page = path.relative_to(ROOT / "docs")
        if page.parent.name == "tutorial" or not re.search("^```(?:python|console)$", path.read_text(), re.MULTILINE):
            continue  # test_tutorial.py takes every page of its folder
        assert f'"{page.stem}"' in tests or f'"{page.as_posix()}"' in tests or f"/{page.as_posix()}" in tests, page


def test_every_page_names_version_and_repository() -> None:
    assert foot().startswith(f"cujit {cujit.__version__} · ")
    assert re.search(r'<a href="https://[\w./-]+">Repository</a>', foot())
    assert "hooks: [tools/site_hook.py]" in SETTINGS


def test_navigation_tabs_follow_the_readers_tasks() -> None:
    tabs = re.findall(r"^  - ([^:\n]+):", SETTINGS.partition("\nnav:")[2], re.MULTILINE)
    assert tabs == ["Get started", "How-to", "Concepts", "Reference", "Troubleshooting", "Contributing"]


def test_home_page_shows_the_readme_example() -> None:
    readme, home = (ROOT / "README.md").read_text(), (ROOT / "docs/index.md").read_text()
    (shown,) = re.findall(r"```python\n(.*?)```", home, re.DOTALL)
    assert f"```python\n{shown}```" in readme  # which runs it
    assert readme.partition("**")[2].partition("**")[0] in home
    assert len(home.splitlines()) < len(readme.splitlines()) / 2


def test_api_is_split_into_pages_and_no_link_is_lost() -> None:
    pages = {page.uri: page.text for page in api_pages(API.read_text())}
    assert "# cujit.arch\n" in pages["api/module-arch.md"]
    assert pages["api/functions-compile-link-and-load.md"].startswith("# Compile, link and load\n\n## cujit.build\n")
    assert pages["api/class-kernel.md"].startswith("# class cujit.Kernel\n")
    assert sum(text.count("```python") for text in pages.values()) == API.read_text().count("```python")
    functions = {f"## cujit.{name}" for name in dir(cujit) if inspect.isfunction(getattr(cujit, name))}
    assert functions <= {line for uri, text in pages.items() if "/functions-" in uri for line in text.splitlines()}
    signature = pages["api/class-options.md"].partition("```py\n")[2].partition("```")[0]
    assert ["extra", *OPTIONS] == re.findall(r"^    (\w+): ", signature, re.MULTILINE)
    for uri, text in pages.items():
        for target, anchor in re.findall(r"(?<=\]\()([\w./-]*)#([\w-]+)\)", re.sub("`[^`]*`", "", text)):
            page = uri if not target else (Path(uri).parent / target).as_posix().replace("api/../", "")
            if page in pages:
                assert anchor in anchors(pages[page]), (uri, target, anchor)
    assert (
        '| <a id="cujitbuild"></a>[`cujit.build`](api/functions-compile-link-and-load.md#cujitbuild)' in pages["api.md"]
    )
    assert followed("[b](api.md#cujitbuild)", "cache.md") == "[b](api/functions-compile-link-and-load.md#cujitbuild)"


def test_message_page_lists_messages_under_their_codes() -> None:
    sections = dict(re.findall(r"^## ([\w-]+)\n(.*?)(?=^## |\Z)", messages_page(), re.DOTALL | re.MULTILINE))
    assert "* `… requires a grid and a block, or a number of elements`\n" in sections["grid-missing"]
    assert "* `there is nothing to link`\n" in sections["link-input"]
    assert {*sections} <= {*CODES}


def test_table_cell_names_its_column() -> None:
    table = "<table><thead><tr><th>a</th><th><code>b</code></th></tr></thead><tr><td>1</td><td>2</td></tr></table>"
    shown = labeled(re.fullmatch(".*", table))  # type: ignore[arg-type]
    assert '<tr><td data-label="a">1</td><td data-label="b">2</td></tr>' in shown


def test_link_with_a_file_name_shows_the_title_of_its_page() -> None:
    title = (ROOT / "docs/launch.md").read_text().partition("\n")[0].removeprefix("# ")
    assert followed("[launch.md](launch.md#cost)", "performance.md") == f"[{title}](launch.md#cost)"
    assert followed("[docs/launch.md](docs/launch.md)", "contributing.md") == f"[{title}](launch.md)"
    assert followed("[what it costs](launch.md)", "performance.md") == "[what it costs](launch.md)"
