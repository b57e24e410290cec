"""Follows the commands of a page of docs/.

Blocks of commands follow a line <!-- run as USER -->. A block after <!-- output --> shows lines that the commands before it
print; `...` stands for anything. The first command that fails ends the test.
"""

import re
import subprocess
import sys


def blocks(page):
    """Yields (marker, lines) of the fenced blocks after <!-- run as USER --> and <!-- output -->."""
    lines = open(page, encoding="utf-8").read().splitlines()
    for i, line in enumerate(lines):
        match = re.fullmatch(r"<!-- (run as [a-z]+|output) -->", line)
        if match:
            if not lines[i + 1].startswith("```"):
                sys.exit(f"{page}:{i + 1}: no fenced block follows")
            body = lines[i + 2 :]
            yield match[1], body[: body.index("```")]


def run(user, commands, arguments, folder, environment):
    """Runs the commands in one shell, which ends at the first failure. Returns the lines that they print."""
    result = subprocess.run([*arguments, "bash", "-c", "set -euo pipefail\n" + "\n".join(commands)], cwd=folder,
                            env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True)
    print("\n".join(f"{user}: {command}" for command in commands), result.stdout, sep="\n", flush=True)
    if result.returncode != 0:
        sys.exit(f"the commands of {user} ended with {result.returncode}")
    return result.stdout.splitlines()


def follow(page, run_as):
    """run_as(user, commands) runs a block and returns the lines that it prints."""
    printed, num_blocks = iter(()), 0
    for marker, lines in blocks(page):
        if marker != "output":
            printed = iter(run_as(marker.removeprefix("run as "), lines))
            num_blocks += 1
            continue
        for line in lines:
            pattern = ".*".join(re.escape(part) for part in line.split("..."))
            if not any(re.fullmatch(pattern, one.rstrip()) for one in printed):
                sys.exit(f"{page} says that this is printed, after what came before:\n{line}")
    if num_blocks == 0:
        sys.exit(f"{page} has no commands")
