#!/usr/bin/env python3
"""Makes a site with a search of README.md, docs/ and what they link to, by mkdocs-material.

The pages stay as they are. A copy of them is laid where mkdocs reads it. There, links to files
outside docs/ lead to pages that show these files, and each folder that a link names has an index.
A link or an anchor that leads nowhere is an error.

usage: docs_site.py OUTPUT
"""
import fnmatch
import json
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Which pages of docs/ a section of the navigation has, in this order. A word with a star may match
# nothing. Pages that no section names are shown in `Use`.
SECTIONS = {
    "Start": ["README.md", "docs/python.md", "docs/c.md", "docs/torch.md", "integrations/README.md",
              "examples/README.md", "docs/from_ck_dispatcher.md"],
    "Use": ["docs/vocabulary.md", "docs/attention.md", "docs/tuning.md", "docs/amd.md"],
    "Operations": ["docs/serving*.md", "docs/environment.md", "docs/security.md"],
    "Performance": ["docs/benchmarks.md", "docs/ladder/*", "docs/performance/*", "docs/results/*"],
    "Decisions": ["docs/design.md", "docs/decisions/*"],
    "Contributing": ["CONTRIBUTING.md", "docs/add_a_target.md", "docs/add_an_operation.md",
                     "docs/status*.md", "data/README.md", "compat/ck_dispatcher/README.md"],
}
FOLDERS = {"docs/ladder": "A GEMM step by step", "docs/performance": "What was tried",
           "docs/results": "Results", "docs/decisions": "By subject"}
SHORT = {"README.md": "Tessera", "docs/from_ck_dispatcher.md": "From CK Tile"}
LANGUAGES = {".cc": "cpp", ".h": "cpp", ".hpp": "cpp", ".c": "c", ".py": "python", ".json": "json",
             ".sh": "bash", ".txt": "text", "": "bash"}
LINK = re.compile(r"(`[^`]*`)|(\]\()([^)#\s]+)?(#[^)\s]*)?\)")
LIST_ITEM = re.compile(r"\s*(?:[-*]|\d+\.) ")
MOST_SHOWN = 200_000  # bytes of a file that is shown as a page
STYLE = """
.md-grid { max-width: 78rem; }
@media screen and (min-width: 76.25em) {
  .md-sidebar--primary { width: 10.5rem; }
  .md-sidebar--secondary { width: 10rem; }
}
.md-typeset table:not([class]) { font-size: .66rem; }
.md-typeset table:not([class]) th { min-width: 3rem; }
.md-typeset table:not([class]) td { padding: .4em .8em; }
.md-typeset table:not([class]) code { overflow-wrap: anywhere; }
.md-typeset table:not([class]) th code,
.md-typeset table:not([class]) td:first-child code { overflow-wrap: normal; word-break: normal; }
.md-typeset h1, .md-typeset p, .md-typeset li { overflow-wrap: anywhere; }
"""


def place(path):
    """Where a file of the checkout lies among the copied pages."""
    name = path.relative_to(ROOT).as_posix()
    if name == "README.md":
        return "index.md"
    if path.is_dir():
        return place(path / "README.md" if (path / "README.md").exists() else path / "index.md")
    if not name.startswith("docs/"):
        name = "repository/" + name
    known = name.endswith(".md") or name.startswith("docs/")
    return (name if known else name + ".md").removeprefix("docs/")


def title(path):
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    return SHORT.get(path.relative_to(ROOT).as_posix()) or first.lstrip("# ").replace("`", "")


class Pages:
    """The copied pages: each is written once, and the files that it links to are."""

    def __init__(self, folder):
        self.folder, self.waiting, self.seen, self.broken = folder, [], set(), []

    def want(self, path):
        if path not in self.seen:
            self.seen.add(path)
            self.waiting.append(path)
        return place(path)

    def link(self, source, name, anchor):
        """What stands in the copy for a link of a page."""
        if name is None or re.match(r"[a-z]+:", name):
            return (name or "") + anchor
        path = (source.parent / name).resolve()
        if not path.exists() or ROOT not in [path, *path.parents]:
            self.broken.append(f"{source.relative_to(ROOT)}: no file for the link {name}")
            return "#"
        up = place(source).count("/")
        return "../" * up + self.want(path) + anchor

    def copied(self, path):
        """The text of a page: its links lead into the copy, and lists begin behind an empty line,
        which Python's markdown needs."""
        lines, fenced, before = [], False, ""
        for line in path.read_text(encoding="utf-8").splitlines():
            fenced ^= line.lstrip().startswith("```")
            if not fenced and not line.startswith("    "):
                line = LINK.sub(lambda m: m[1] or
                                f"{m[2]}{self.link(path, m[3], m[4] or '')})", line)
                if LIST_ITEM.match(line) and before.strip() and not LIST_ITEM.match(before) \
                        and not before.startswith(" "):
                    lines.append("")
            lines.append(line)
            before = line
        return "\n".join(lines) + "\n"

    def index(self, path):
        """A page for a folder: the titles of its pages, or the names of its files."""
        lines = [f"# {FOLDERS.get(path.relative_to(ROOT).as_posix()) or path.name}", ""]
        for inner in sorted(path.iterdir()):
            if inner.suffix == ".md":
                lines.append(f"- [{title(inner)}]({self.link(path / 'index.md', inner.name, '')})")
            elif inner.is_file():
                lines.append(f"- [`{inner.name}`]({self.link(path / 'index.md', inner.name, '')})")
            else:
                lines.append(f"- `{inner.name}/`")
        return "\n".join(lines) + "\n"

    def shown(self, path):
        """A page that shows a file."""
        name = path.relative_to(ROOT).as_posix()
        if path.stat().st_size > MOST_SHOWN or path.suffix in {".gz", ".parquet"}:
            return f"# {name}\n\nThis file of {path.stat().st_size} bytes lies in the checkout.\n"
        text = path.read_text(encoding="utf-8")
        return f"# {name}\n\n~~~~{LANGUAGES.get(path.suffix, 'text')}\n{text}~~~~\n"

    def write(self):
        while self.waiting:
            path = self.waiting.pop()
            target = self.folder / place(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                if not (path / "README.md").exists():
                    target.write_text(self.index(path), encoding="utf-8")
                else:
                    self.want(path / "README.md")
            elif path.suffix == ".md":
                target.write_text(self.copied(path), encoding="utf-8")
            elif target.suffix != ".md":
                shutil.copy(path, target)
            else:
                target.write_text(self.shown(path), encoding="utf-8")


def matching(pattern):
    """The pages that a word of SECTIONS names."""
    found = sorted(ROOT.glob(pattern)) if "*" in pattern else [ROOT / pattern]
    return [path for path in found if path.suffix == ".md"]


def navigation(pages):
    """mkdocs' `nav`: sections, and in them folders whose pages are folded away."""
    named = [pattern for patterns in SECTIONS.values() for pattern in patterns]
    rest = [path.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob("docs/*.md"))]
    rest = [name for name in rest if not any(fnmatch.fnmatch(name, word) for word in named)]
    nav = []
    for section, patterns in SECTIONS.items():
        entries = []
        for pattern in patterns + (rest if section == "Use" else []):
            found = [{title(path): pages.want(path)} for path in matching(pattern)]
            folder = FOLDERS.get(pattern.removesuffix("/*"))
            if folder and found:
                index = pages.want(ROOT / pattern.removesuffix("/*"))
                inner = [entry for entry in found if index not in entry.values()]
                found = [{folder: [index, *inner]}]
            entries += found
        nav.append({section: entries})
    return nav


def settings(folder, output, nav):
    """mkdocs' settings; JSON is YAML. The site asks for nothing from elsewhere. Its pages can
    be read as files. The search needs a server: browsers start no workers from files."""
    return {
        "site_name": "Tessera", "docs_dir": str(folder), "site_dir": str(output), "nav": nav,
        "use_directory_urls": False, "extra_css": ["site.css"],
        "theme": {"name": "material", "font": False,
                  "features": ["navigation.tabs", "navigation.indexes", "navigation.top",
                               "search.highlight", "search.suggest", "content.code.copy",
                               "toc.follow"],
                  "palette": [{"media": "(prefers-color-scheme: light)", "scheme": "default",
                               "primary": "teal"},
                              {"media": "(prefers-color-scheme: dark)", "scheme": "slate",
                               "primary": "teal"}]},
        "plugins": ["search"],
        "markdown_extensions": ["tables", "sane_lists", {"toc": {"permalink": True}},
                                "pymdownx.highlight", "pymdownx.superfences"],
        "validation": {"nav": {"omitted_files": "ignore"},
                       "links": {"not_found": "warn", "absolute_links": "warn", "anchors": "warn",
                                 "unrecognized_links": "warn"}},
    }


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    output = pathlib.Path(sys.argv[1]).resolve()
    folder = output.with_name(output.name + "-pages")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    pages = Pages(folder)
    nav = navigation(pages)
    pages.write()
    (folder / "site.css").write_text(STYLE)
    if pages.broken:
        sys.exit("docs: " + "\ndocs: ".join(pages.broken))
    place_of_settings = output.with_name(output.name + ".yml")
    place_of_settings.write_text(json.dumps(settings(folder, output, nav), indent=1))
    # Not --quiet: mkdocs counts only the warnings that it prints.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean", "--config-file",
               str(place_of_settings)]
    found = subprocess.run(command, capture_output=True, text=True)
    if found.returncode:
        sys.exit(found.stdout + found.stderr)


if __name__ == "__main__":
    main()
