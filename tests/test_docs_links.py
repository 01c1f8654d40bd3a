"""The pages hold together: links and anchors lead somewhere, and no page is an orphan."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support_docs import DOCS, ROOT, blocks, pages

_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_TARGET = re.compile(r"^([a-z-]+):", re.MULTILINE)


def prose(page: Path) -> str:
    """The page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


def links(page: Path) -> Iterator[tuple[str, str]]:
    for match in _LINK.finditer(prose(page)):
        path, _, anchor = match[1].partition("#")
        if not re.match(r"https?:", path):
            yield path, anchor


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as they are made from them on the web."""
    found = set()
    for line in prose(page).splitlines():
        if match := re.match(r"#+ (.*)", line):
            kept = re.sub(r"[^\w\- ]", "", match[1].lower())
            found.add(kept.replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    wrong = []
    for path, anchor in links(page):
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            wrong.append(f"{path}: no such file")
        elif anchor and anchor not in anchors(target):
            wrong.append(f"{path}#{anchor}: no such heading")
    assert not wrong, "\n".join(wrong)


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, todo = set(), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page in reached or page.suffix not in (".md", ".json"):
            continue
        reached.add(page)
        if page.suffix == ".md":
            todo += [(page.parent / path).resolve() for path, _ in links(page) if path]
    every = {*pages(), *(DOCS / "reference").glob("*.json")}
    assert not {str(page.relative_to(ROOT)) for page in every - reached}


def test_make_targets_that_are_named_exist() -> None:
    known = set(_TARGET.findall((ROOT / "Makefile").read_text()))
    wrong = []
    for page in pages():
        code = [block.text for block in blocks(page) if block.language == "bash"]
        code += re.findall(r"`(make [^`]*)`", prose(page))
        for text in code:
            named = re.findall(r"^make ([a-z-]+)", text, re.MULTILINE)
            wrong += [f"{page.name}: make {name}" for name in named if name not in known]
    assert not wrong, "\n".join(wrong)


def test_the_picture_of_the_readme_is_small() -> None:
    picture = DOCS / "images" / "report.png"
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(picture.read_bytes()[16:20], "big") == 1280
    assert picture.stat().st_size < 300_000
