#!/usr/bin/env python3
"""Extracts the complete programs from the pages of docs/, and runs them.

    example.py extract PAGE NAME                    prints the program after the line <!-- example NAME ... -->
    example.py merge PAGE...                        prints all programs of the pages as one, which runs the one whose
                                                    name is its first argument
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


def merged(pages):
    """Returns one source with all programs of the pages: their includes, then each in a namespace of its own."""
    includes, parts, cases = set(), [], []
    for page in pages:
        names = re.findall(r"^<!-- example ([a-z0-9-]+)", open(page, encoding="utf-8").read(), re.MULTILINE)
        for name in names:
            program = block(page, f"example {name}")
            if not program or program[-1] != "}" or sum(line.startswith("int main(") for line in program) != 1:
                sys.exit(f"{page}: example '{name}' must have one `int main(`, and must end with it")
            includes.update(line for line in program if line.startswith("#include"))
            body = [line for line in program[:-1] if not line.startswith("#include")]
            arguments = "argc - 1, argv + 1" if any(re.match(r"int main\(int", line) for line in body) else ""
            space = "example_" + name.replace("-", "_")
            # Outside of the global namespace, main does not return 0 by itself.
            parts += [f"namespace {space} {{", *body, "return 0;", "}", f"}}  // namespace {space}", ""]
            cases.append(f'  if (name == "{name}") return {space}::main({arguments});')
    dispatch = ["int main(int argc, char** argv) {", '  const std::string_view name = argc > 1 ? argv[1] : "";',
                *cases, "  return 2;", "}"]
    return sorted(includes) + ["#include <string_view>", ""] + parts + dispatch


def main():
    if sys.argv[1] == "merge":
        print("\n".join(merged(sys.argv[2:])))
        return
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
