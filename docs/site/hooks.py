"""Makes a site of pages that lie all over the repository, for MkDocs.

The pages of docs/ stay where they are. README.md becomes the first page, and other texts and the examples get pages too. Links
between files of the repository become links between these pages; a link to a file without a page is left as it is, and the
strict build refuses it.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]

# Files outside of docs/, and the names of their pages. A file that is not Markdown is copied. ("bench.md" is `yoke bench`.)
ELSEWHERE = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "LICENSE": "license.txt",
    "bench/README.md": "measurements.md",
    "fakes/sysfs/README.md": "fakes-sysfs.md",
    "fakes/topologies/README.md": "fakes-topologies.md",
    "recipes/cifar/README.md": "recipe-cifar.md",
    "recipes/cifar/curve.svg": "recipe-cifar-curve.svg",
    "recipes/embed/README.md": "recipe-embed.md",
    "recipes/embed/curve.svg": "recipe-embed-curve.svg",
    "recipes/fashion_mnist/README.md": "recipe-fashion-mnist.md",
    "recipes/fashion_mnist/curve.svg": "recipe-fashion-mnist-curve.svg",
    "recipes/finetune/README.md": "recipe-finetune.md",
    "recipes/finetune/curve.svg": "recipe-finetune-curve.svg",
    "recipes/gpt/README.md": "recipe-gpt.md",
    "recipes/gpt/curve.svg": "recipe-gpt-curve.svg",
    "recipes/images/README.md": "recipe-images.md",
    "recipes/images/curve.svg": "recipe-images-curve.svg",
}
ELSEWHERE.update({str(path.relative_to(ROOT)): str(path.relative_to(ROOT)) for path in ROOT.glob("notebooks/*/*.ipynb")})
# Folders of examples: a page shows each file.
EXAMPLES = {"examples/first": "example-first.md", "examples/devices": "example-devices.md"}
# Pages that have all words, and would come before those that answer.
NOT_SEARCHED = ["architecture.md", "changelog.md", "contributing.md"]
# Pages that the search shows after those for users.
FOR_DEVELOPERS = ["example-devices.md", "fakes.md", "fakes-sysfs.md",
                  "fakes-topologies.md", "figures.md", "gpu-check.md", "how-it-works.md", "measurements.md"]
LANGUAGES = {".txt": "cmake", ".cpp": "cpp"}

_source_of = {}  # the name of a page: the file or folder of the repository from which it is made
_name_of = {}  # the reverse


def example_page(folder):
    """Returns the text of the page of an example: its README, then its other files."""
    readme = ROOT / folder / "README.md"
    parts = [readme.read_text(encoding="utf-8") if readme.exists() else f"# {folder}\n"]
    for path in sorted((ROOT / folder).iterdir()):
        if path.suffix in LANGUAGES:
            parts.append(f"## {path.name}\n\n```{LANGUAGES[path.suffix]}\n{path.read_text(encoding='utf-8')}```\n")
    return "\n".join(parts)


def on_files(files, config):
    for page in files.documentation_pages():
        _source_of[page.src_uri] = f"docs/{page.src_uri}"
    for source, name in ELSEWHERE.items():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / source)))
        _source_of[name] = source
    for folder, name in EXAMPLES.items():
        files.append(File.generated(config, name, content=example_page(folder)))
        _source_of[name] = folder
    results = [path.relative_to(ROOT).as_posix() for path in (ROOT / "bench/results").glob("*.json")]
    for source in results:  # recorded figures that pages name
        files.append(File.generated(config, source, abs_src_path=str(ROOT / source)))
        _source_of[source] = source
    _name_of.update({source: name for name, source in _source_of.items()})
    return files


def for_pages(text, name):
    """Returns the Markdown `text` of the page `name` with links that lead to pages."""
    source = _source_of[name]
    folder = source if source in EXAMPLES else posixpath.dirname(source)

    def replaced(match):
        path, anchor = match[1], match[2] or ""
        target = _name_of.get(posixpath.normpath(posixpath.join(folder, path)))
        return f"]({posixpath.relpath(target, posixpath.dirname(name))}{anchor})" if target else match[0]

    return re.sub(r"\]\(([^)\s#:]+)(#[^)\s]*)?\)", replaced, text)


def on_page_markdown(markdown, page, config, files):
    if page.file.src_uri == "you-type.md":
        page.meta["search"] = {"boost": 4}  # it has the words that people search, and leads to the other pages
    elif page.file.src_uri in NOT_SEARCHED:
        page.meta["search"] = {"exclude": True}
    elif page.file.src_uri == "slurm-check.md":
        page.meta["search"] = {"boost": 0.3}  # its table of rules has nearly all words
    elif page.file.src_uri in FOR_DEVELOPERS:
        page.meta["search"] = {"boost": 0.1}
    # Comments mark programs and commands for tests (tests/docs), and say nothing to a reader.
    text = re.sub(r"^<!-- .* -->\n", "", markdown, flags=re.MULTILINE)
    # In code of a table GitHub wants `\|`, of which Python's Markdown would show the backslash.
    text = re.sub(r"^\|.*", lambda row: re.sub(r"`[^`]+`", lambda code: code[0].replace("\\|", "|"), row[0]), text,
                  flags=re.MULTILINE)
    text = for_pages(text, page.file.src_uri)
    return re.sub(r"\[(?:docs/)?([a-z-]+)\.md\]\(", r"[\1](", text)  # the site has no names of files
