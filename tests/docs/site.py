#!/usr/bin/env python3
"""Checks the site that scripts/docs has built: it loads nothing from the network, and its search finds what people type.

    site.py FOLDER

MkDocs itself has checked links, anchors, and that the navigation has every page.
"""

import json
import re
import sys
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


def main():
    site = Path(sys.argv[1])
    if "You type" not in (site / "index.html").read_text(encoding="utf-8"):
        sys.exit(f"{site}/index.html is not README.md, which names the page 'You type ...'")
    faults = [*check_assets(site), *check_search(site)]
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
