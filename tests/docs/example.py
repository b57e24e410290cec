#!/usr/bin/env python3
"""Extracts the complete programs from the pages of docs/, and runs them.

    example.py extract PAGE NAME                    prints the program after the line <!-- example NAME ... -->
    example.py run PAGE NAME -- COMMAND...          runs it in an empty folder: it must exit with 0, and print the lines
                                                    of the block after <!-- output NAME --> in their order, if there is one

In a line of the output `...` stands for anything.
"""

import re
import subprocess
import sys
import tempfile


def block(page, marker):
    """Returns the text of the fenced block after the line with the marker; None if there is none."""
    lines = open(page, encoding="utf-8").read().splitlines()
    starts = [i for i, line in enumerate(lines) if re.fullmatch(rf"<!-- {marker}( .*)? -->", line)]
    if not starts:
        return None
    if len(starts) > 1 or not lines[starts[0] + 1].startswith("```"):
        sys.exit(f"{page}: '<!-- {marker} -->' must stand once, right before a fenced block")
    body = lines[starts[0] + 2 :]
    return body[: body.index("```")]


def main():
    action, page, name, *rest = sys.argv[1:]
    if action == "extract":
        program = block(page, f"example {name}")
        if program is None:
            sys.exit(f"{page} has no example '{name}'")
        print("\n".join(program))
        return
    with tempfile.TemporaryDirectory() as folder:
        result = subprocess.run(rest[1:], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(result.stdout, end="")
    if result.returncode != 0:
        sys.exit(f"it ended with {result.returncode}")
    printed = iter(result.stdout.splitlines())
    for line in block(page, f"output {name}") or []:
        pattern = ".*".join(re.escape(part) for part in line.split("..."))
        if not any(re.fullmatch(pattern, one) for one in printed):
            sys.exit(f"{page} says that it prints, after what came before:\n{line}")


main()
