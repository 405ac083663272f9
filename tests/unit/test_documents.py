"""The documents name everything that users can set or call, and what they link to exists."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import click
import pytest

from producer.cli.main import main
from producer.common.settings import PREFIX, Settings
from producer.model.job import Report, Status
from producer.planning.compact.options import OPTION_FIELDS
from tests.support.repository import REPOSITORY
from tests.unit.test_rooms import ROOMS

DOCS = REPOSITORY / "docs"
#: The report of the benchmarks is generated.
GENERATED = REPOSITORY / "bench" / "report" / "README.md"
PAGES = sorted(
    REPOSITORY / line
    for line in subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    if (REPOSITORY / line).exists()
)
COMMANDS = {name: main.get_command(click.Context(main), name) for name in main.list_commands(click.Context(main))}

_FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^]]*]\(([^)\s]+)\)|!\[[^]]*]\(([^)\s]+)\)")
#: Names of table properties, whole or the beginning of one.
_PROPERTY = re.compile(r"(?:write|commit|schema)\.[a-z-]+(?:[.-][a-z-]+)*[.-]?|parquet\.enable\.dictionary")


def _ids(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


def _prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text())


def _anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    seen: dict[str, int] = {}
    found = set()
    for heading in re.findall(r"^#+ +(.+?) *$", _prose(page), re.MULTILINE):
        text = re.sub(r"\[([^]]*)]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        number = seen.get(slug, 0)
        seen[slug] = number + 1
        found.add(f"{slug}-{number}" if number else slug)
    return found


def _strings(path: Path) -> Iterator[str]:
    """The texts of a module; what an f-string fills in becomes ``…``."""
    tree = ast.parse(path.read_text())
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.value


def _all_strings() -> Iterator[str]:
    for package in ("producer", "tasks", "workers"):
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            yield from _strings(path)


def _console_lines() -> Iterator[tuple[str, str]]:
    """Commands that the documents print, each with its page."""
    for page in PAGES:
        for block in re.findall(r"^```console\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            for line in block.splitlines():
                if line.startswith("$ "):
                    yield _ids(page), line.removeprefix("$ ").partition("  #")[0].strip()


@pytest.mark.parametrize("page", PAGES, ids=_ids)
def test_links_and_anchors_resolve(page: Path) -> None:
    broken = []
    for groups in _LINK.findall(_prose(page)):
        target = unquote(groups[0] or groups[1])
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        if not linked.exists() or (anchor and linked.suffix == ".md" and anchor not in _anchors(linked)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", [page for page in PAGES if page != GENERATED], ids=_ids)
def test_files_that_pages_name_exist(page: Path) -> None:
    named = re.findall(
        r"`((?:producer|tasks|workers|tests|deploy|scripts|bench|docs)/[\w./-]*)(?:::(\w+))?`", _prose(page)
    )
    assert [path for path, _ in named if not (REPOSITORY / path).exists()] == []
    assert [test for path, test in named if test and f"def {test}(" not in (REPOSITORY / path).read_text()] == []


def test_every_page_is_in_the_index() -> None:
    index = (DOCS / "README.md").read_text()
    assert [page.name for page in DOCS.glob("*.md") if page.name != "README.md" and f"({page.name}" not in index] == []


@pytest.mark.parametrize("package", ROOMS)
def test_the_rooms_are_listed_in_their_order(package: str) -> None:
    """The architecture page has each room of a package, with the file that its docstring says to open first."""
    text = (DOCS / "architecture.md").read_text()
    rows = re.findall(rf"^\| `{package}/(\w+)/` \| .* \| `([\w/.]+)` \|$", text, re.MULTILINE)
    assert [room for room, _ in rows] == [room for room in ROOMS[package] if room]
    assert [file for room, file in rows if not (REPOSITORY / package / room / file).exists()] == []


def test_the_readme_is_short() -> None:
    assert len((REPOSITORY / "README.md").read_text().splitlines()) <= 200


def test_every_setting_is_documented_with_default_and_description() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*) \|$", (DOCS / "settings.md").read_text(), re.MULTILINE)
    assert rows == [
        (PREFIX + name.upper(), f"`{field.default}`" if field.default != "" else "", field.description)
        for name, field in Settings.model_fields.items()
    ]


def test_pages_name_no_setting_that_does_not_exist() -> None:
    known = {PREFIX + name.upper() for name in Settings.model_fields} | {f"{PREFIX}FIXTURES", PREFIX}
    named = {name for page in PAGES for name in re.findall(rf"\b{PREFIX}\w*", page.read_text())}
    assert named - known == set()


def test_every_option_of_a_compaction_is_documented() -> None:
    rows = [line.split("|")[1] for line in (DOCS / "compaction.md").read_text().splitlines() if line.startswith("| `")]
    documented = {name for row in rows for name in re.findall(r"`([\w-]+)`", row)}
    assert set(OPTION_FIELDS) <= documented


def test_every_table_property_is_documented() -> None:
    text = (DOCS / "catalogs-and-storage.md").read_text()
    used = {string for string in _all_strings() if _PROPERTY.fullmatch(string)}
    assert "write.data.path" in used
    assert {name for name in used if f"`{name}" not in text} == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_flag_is_documented(name: str) -> None:
    command = COMMANDS[name]
    assert command is not None
    text = (DOCS / "commands.md").read_text() + (DOCS / "compaction.md").read_text()
    assert f"`icefleet {name}" in text
    flags = {
        flag
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for flag in (*parameter.opts, *parameter.secondary_opts)
        if flag.startswith("--") and flag.removeprefix("--").removeprefix("no-") not in OPTION_FIELDS
    }
    assert {flag for flag in flags if not re.search(rf"`{flag}\b", text)} == set()


def test_every_field_of_a_report_is_documented() -> None:
    text = (DOCS / "commands.md").read_text()
    assert {name for name in (*Report.model_fields, *Status) if f"`{name}`" not in text} == set()


def test_commands_that_pages_print_exist() -> None:
    wrong = []
    for page, line in _console_lines():
        for part in re.split(r" && | & ?| \| ", line):
            words = shlex.split(part)
            if "icefleet" not in words:
                continue
            words = words[words.index("icefleet") + 1 :]
            command = COMMANDS.get(next((word for word in words if not word.startswith("-")), ""))
            if command is None:
                wrong.append((page, line))
            elif not any(
                isinstance(parameter, click.Argument) and parameter.nargs == -1 for parameter in command.params
            ):
                known = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
                wrong += [(page, line) for word in words if word.startswith("--") and word.split("=")[0] not in known]
    assert wrong == []


def test_messages_that_are_explained_are_those_of_the_code() -> None:
    text = (DOCS / "troubleshooting.md").read_text()
    explained = re.findall(r"^\| `([^`]{20,})`", text, re.MULTILINE)
    assert len(explained) > 30
    known = set(_all_strings())
    assert [message for message in explained if not any(message in string for string in known)] == []


def test_targets_of_make_that_pages_print_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    named = {target for page in PAGES for target in re.findall(r"(?:`|\$ )make ([a-z-]+)", page.read_text())}
    assert named - targets == set()
