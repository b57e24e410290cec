#!/usr/bin/env python3
"""Checks the site that scripts/docs has built: it loads nothing from the network, and its search finds what people type.

    site.py FOLDER

MkDocs itself has checked links, anchors, and that the navigation has every page. Where chromium is installed, it opens the site as files
and searches.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.parse
from html.parser import HTMLParser
from pathlib import Path

import words

# What a browser loads by itself; links that a reader may follow are not among these.
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "object": "data", "embed": "src"}
LOADED_LINKS = {"stylesheet", "icon", "shortcut", "preload", "prefetch", "modulepreload", "preconnect", "dns-prefetch", "manifest"}


class Assets(HTMLParser):
    """Collects the addresses of what a page loads, in their order."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "link" and LOADED_LINKS & set(attributes.get("rel", "").split()):
            self.found.append(attributes.get("href", ""))
        elif attributes.get(LOADED.get(tag)):
            self.found.append(attributes[LOADED[tag]])


def is_remote(address):
    return re.match(r"(https?:)?//", address) is not None


def check_assets(site):
    for path in sorted(site.rglob("*.html")):
        assets = Assets()
        assets.feed(path.read_text(encoding="utf-8"))
        for address in filter(is_remote, assets.found):
            yield f"{path.name} loads {address} from the network"
        order = [name for name in assets.found if re.search(r"iframe-worker\.js|javascripts/bundle\.", name)]
        if [bool(re.search("iframe-worker", name)) for name in order] != [True, False]:
            yield f"{path.name}: site/iframe-worker.js must be loaded before the theme's script, or the search needs a server"
    for path in sorted(site.rglob("*.css")):
        for address in re.findall(r"(?:@import\s+|url\()\s*[\"']?([^\"')\s]+)", path.read_text(encoding="utf-8")):
            if is_remote(address):
                yield f"{path.name} loads {address} from the network"


def check_search(site):
    text = (site / "search/search_index.js").read_text(encoding="utf-8")  # what a page without a server reads
    index = json.loads(text.removeprefix("var __index = "))
    texts = {}
    for entry in index["docs"]:
        page = entry["location"].split("#")[0]
        texts[page] = f"{texts.get(page, '')} {entry['title']} {entry['text']}"
    plain = {page: words.plain(re.sub(r"<[^>]*>", "", text)) for page, text in texts.items()}
    for row in words.TABLE:
        for page, searched in row.places:
            found = plain.get(page.replace(".md", ".html"), "")
            for one in searched:
                if words.plain(one) not in found:
                    yield f"the search does not know that {page} has '{one}'"


def check_code(site):
    for path in sorted(site.glob("*.html")):
        for row in re.findall(r"<td>.*?</td>", path.read_text(encoding="utf-8"), re.DOTALL):
            if re.search(r"<code>[^<]*\\\|", row):
                yield f"{path.name} shows a backslash before | in {row[:80]}"


def check_lists(root):
    """GitHub shows a list right after a paragraph, and one nested by two spaces; Python's Markdown does not."""
    for path in [*root.glob("*.md"), *root.glob("docs/*.md"), *root.glob("*/README.md")]:
        before, is_fenced = "", False
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if line.startswith("```"):
                is_fenced = not is_fenced
            is_item = re.match(r" {0,3}- ", line) and not is_fenced
            if is_item and before and not re.match(r" *- |  |#", before):
                yield f"{path.relative_to(root)}:{number}: the site shows no list here: an empty line must be before it"
            if is_item and re.match(r" {1,3}\S", line):
                yield f"{path.relative_to(root)}:{number}: the site shows no list in a list here: four spaces must be before it"
            before = line


# What is typed into the field of the search, and the page that must come first.
TYPED = [
    ("--cpus-per-gpu", "you-type.html"),
    ("tensor cores", "you-type.html"),  # has both words; TensorBoard has one in its title
    ("which DataParallel or zzzz", "data-parallel.html"),  # no page has all words
    ("torchrun --nproc_per_node 4 train.py", "you-type.html"),
    ("nvidia-smi in a loop", "you-type.html"),  # "in" is no beginning of "inference" here
    (".pt safetensors checkpoint C++", "exchange.html"),
    ("reproducible results", "optim.html"),
    ("docker run --gpus all", "you-type.html"),
    ("getting started", "example-first.html"),
    ("out of memory find the batch size", "tune.html"),
]


class Browser:
    """A chromium, which is told what to do by JSON over two pipes, each object with a zero byte at its end."""

    def __init__(self, profile):
        its_input, self.output = os.pipe()
        self.input, its_output = os.pipe()
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
                   "--no-first-run", "--remote-debugging-pipe", f"--user-data-dir={profile}"]
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec chromium "$@" 3<&{its_input} 4>&{its_output}', "chromium", *options, "about:blank"],
            pass_fds=(its_input, its_output), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(its_input)
        os.close(its_output)
        self.number, self.unread, self.session = 0, b"", {}
        page = next(one for one in self.ask("Target.getTargets")["targetInfos"] if one["type"] == "page")
        self.session = {"sessionId": self.ask("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]}

    def ask(self, method, **parameters):
        self.number += 1
        os.write(self.output, json.dumps({"id": self.number, "method": method, "params": parameters, **self.session}).encode() + b"\0")
        while True:
            while b"\0" not in self.unread:
                read = os.read(self.input, 1 << 16)
                if not read:
                    sys.exit("chromium has ended before it was told to")
                self.unread += read
            message, self.unread = self.unread.split(b"\0", 1)
            answer = json.loads(message)
            if answer.get("id") == self.number:
                return answer["result"]

    def end(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


FIRST_FOUND = """new Promise((resolve) => {
  const look = () => {
    const link = document.querySelector(".md-search-result__link"), meta = document.querySelector(".md-search-result__meta");
    if (link) resolve(link.href);
    else if (meta && meta.innerText.startsWith("No matching")) resolve("no page");
    else setTimeout(look, 20);
  };
  look();
  setTimeout(() => resolve("nothing in a minute"), 60000);
})"""


def check_browser(site):
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(profile)
        try:
            for typed, page in TYPED:
                address = f"{site.resolve().as_uri()}/index.html?q={urllib.parse.quote(typed)}"
                browser.ask("Page.navigate", url=address)
                found = browser.ask("Runtime.evaluate", expression=FIRST_FOUND, awaitPromise=True)["result"].get("value", "an error")
                if f"/{page}" not in found:
                    yield f"a browser that opens the site as files and searches '{typed}' finds not {page} but {found}"
        finally:
            browser.end()


def main():
    site = Path(sys.argv[1])
    if "You type" not in (site / "index.html").read_text(encoding="utf-8"):
        sys.exit(f"{site}/index.html is not README.md, which names the page 'You type ...'")
    faults = [*check_assets(site), *check_search(site), *check_code(site), *check_lists(Path(__file__).resolve().parents[2])]
    if shutil.which("chromium"):
        faults += check_browser(site)
    else:
        print("the search was not tried in a browser: there is no chromium")
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
