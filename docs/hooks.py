"""What `mkdocs` does besides with docs/: pages from elsewhere, links to files, and drawings.

- The READMEs, CONTRIBUTING.md and CHANGELOG.md are pages of the site too (`PAGES`), and so is
  .env.example, as tables, and what msgnode/core/explanations.py says.
- The first page says what the node is for with the words of README.md.
- The colours, the icon and the picture are those of the node's own pages (`LOOK`).
- A link to any other file of the repository is shown as that file's path. A path that does not
  exist is a warning, which `--strict` makes an error.
- The script that draws Mermaid is loaded by pages that have a drawing, from the site itself.
- Beside what others wrote of the site stand their terms, since the site is passed on by itself.
"""

from __future__ import annotations

import importlib.metadata
import logging
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # mkdocs is a program of its own

from msgnode.core.explanations import ALARMS, CLOSE_CODES, ERRORS, Explanation  # noqa: E402

# Path in the repository: name among the pages.
PAGES = {
    "msgnode/core/explanations.py": "problems.md",
    "README.md": "readme.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security-policy.md",
    "msgnode/runtime/js/README.md": "runtime-js.md",
    "msgnode/runtime/python/README.md": "runtime-python.md",
    ".env.example": "settings.md",
}
# The look of the node's own pages, from msgnode/static/msgnode/.
LOOK = {
    "colours.css": "assets/colours.css",
    "landing/icon.svg": "assets/favicon.svg",
    "landing/overview.svg": "assets/overview.svg",
}
_PICTURE = "](msgnode/static/msgnode/landing/overview.svg)"
_WHAT_IT_IS_FOR = re.compile(r"<!-- of README\.md.*?-->")
_FIRST_SECTION = re.compile(r"# .*?\n(.*?\.svg\))", re.DOTALL)
_SOURCE = {page: source for source, page in PAGES.items()}
_LINK = re.compile(r"(?<!!)\[([^\]\n]+)\]\((?!\w+:|#)([^)\s#]+)(#[^)\s]*)?\)")
_FENCE = re.compile(r"(^```.*?^```\s*$)", re.MULTILINE | re.DOTALL)
_SECTION = re.compile(r"# --- (.+) ---$")
_SETTING = re.compile(r"#?([A-Z_]+)=(.*)$")
_DRAWING = re.compile(r'<pre class="mermaid">.*?</pre>', re.DOTALL)
_LARGE = 20  # lines of a drawing that needs more width than a page has
_SCRIPT = "assets/mermaid.tiny.js"
_TERMS_OF_THE_THEME = "assets/mkdocs-material.LICENSE.txt"

log = logging.getLogger("mkdocs.hooks.repository")


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that stand elsewhere in the repository."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        if source == ".env.example":
            text = settings_page(text)
        elif page == "problems.md":
            text = problems_page()
        files.append(File.generated(config, page, content=text))
    for source, place in LOOK.items():
        path = ROOT / "msgnode/static/msgnode" / source
        files.append(File.generated(config, place, abs_src_path=str(path)))
    files.append(File.generated(config, _TERMS_OF_THE_THEME, content=terms_of_the_theme()))
    return files


def terms_of_the_theme() -> str:
    """The licences of mkdocs-material and of the icons that it sets into pages."""
    files = importlib.metadata.distribution("mkdocs-material").files or ()
    texts = [
        each.read_text()
        for each in sorted(files, key=str)
        if each.name == "LICENSE" and (".dist-info" in str(each) or ".icons/material/" in str(each))
    ]
    return "\n\n".join(texts)


def on_page_markdown(markdown: str, page: Page, config: Any, files: Files) -> str:
    """Leads links to where the linked file is on the site, or names the file."""
    uri = page.file.src_uri
    folder = posixpath.dirname(_SOURCE.get(uri, f"docs/{uri}"))

    def lead(match: re.Match[str]) -> str:
        text, path, anchor = match[1], match[2], match[3] or ""
        target = posixpath.normpath(posixpath.join(folder, path))
        if not (ROOT / target).exists():
            if target in (f"docs/{name}" for name in _SOURCE):
                return match[0]
            log.warning("%s: there is no %s", uri, target)
        if target in PAGES:
            return f"[{text}]({_relative(PAGES[target], uri)}{anchor})"
        if target.startswith("docs/"):
            return f"[{text}]({_relative(target.removeprefix('docs/'), uri)}{anchor})"
        return text if text.strip("`") == target else f"{text} (`{target}`)"

    markdown = _WHAT_IT_IS_FOR.sub(lambda _: what_it_is_for(), markdown)
    markdown = markdown.replace(_PICTURE, f"]({_relative(LOOK['landing/overview.svg'], uri)})")
    parts = _FENCE.split(markdown)
    return "".join(part if part.startswith("```") else _LINK.sub(lead, part) for part in parts)


def what_it_is_for() -> str:
    """README.md from its title to the picture."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return _FIRST_SECTION.findall(text)[0].strip()


def settings_page(example: str) -> str:
    """.env.example as a page: a table for each of its sections.

    Args:
        example: the file's text. `# --- Title ---` begins a section; comments stand above the
            setting, or settings, they are about.
    """
    lines = ["# Settings", ""]
    comment: list[str] = []
    names: list[tuple[str, str]] = []
    has_table = False

    def end_of_row() -> None:
        if names:
            cells = ["<br>".join(f"`{text}`" if text else "" for text in column)
                     for column in zip(*names, strict=True)]  # fmt: skip
            lines.append(f"| {cells[0]} | {cells[1]} | {_escaped(' '.join(comment))} |")
        elif comment and not has_table:
            lines.extend([" ".join(comment), ""])
        comment.clear()
        names.clear()

    for line in example.splitlines():
        if title := _SECTION.match(line):
            end_of_row()
            lines += [
                "",
                f"## {title[1]}",
                "",
                "| setting | default, or an example | meaning |",
                "|---|---|---|",
            ]
            has_table = True
        elif setting := _SETTING.match(line):
            names.append((setting[1], setting[2]))
        elif line.startswith("# "):
            if names:
                end_of_row()
            comment.append(line[2:])
        else:
            end_of_row()
    end_of_row()
    return "\n".join([*lines, ""])


def problems_page() -> str:
    """Every error code, close code and alarm, as the node's own pages have them."""
    groups: list[tuple[str, dict[str, Explanation]]] = [
        ("Error codes", {str(code): error.explanation for code, error in ERRORS.items()}),
        ("Close codes", {str(code): text for code, text in CLOSE_CODES.items()}),
        ("Alarms", dict(ALARMS)),
    ]
    lines = [
        "# What it means, and what to do",
        "",
        "The node serves each of these as a page of its own, below `/problems/`: `type` of problem "
        "details, the console's alarms and Prometheus' alerts lead there.",
    ]
    for title, texts in groups:
        lines += ["", f"## {title}"]
        for mark, text in texts.items():
            lines += ["", f"### {mark}: {text.title}", "", _escaped(text.meaning), ""]
            lines += [f"**What to do**: {_escaped(text.remedy)}"]
    return "\n".join([*lines, ""])


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def on_page_content(html: str, page: Page, config: Any, files: Files) -> str:
    """Frames each drawing, so that one that is too wide scrolls."""

    def framed(match: re.Match[str]) -> str:
        kind = "drawing drawing--large" if match[0].count("\n") > _LARGE else "drawing"
        return f'<div class="{kind}">{match[0]}</div>'

    return _DRAWING.sub(framed, html)


def on_post_page(output: str, page: Page, config: Any) -> str:
    """Loads the drawing script where there is a drawing."""
    if not _DRAWING.search(output):
        return output
    script = f'<script src="{_relative(_SCRIPT, page.file.src_uri)}"></script>'
    return output.replace("</head>", f"{script}</head>", 1)


def _relative(target: str, uri: str) -> str:
    return posixpath.relpath(target, posixpath.dirname(uri) or ".")
