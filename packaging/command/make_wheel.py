#!/usr/bin/env python3
"""Packs an installation of the command into a wheel, with the same bytes for the same files.

make_wheel.py --installation FOLDER --licenses FOLDER --module FOLDER --arch ARCH --version VERSION --time SECONDS
              --output FOLDER

It prints the path of the wheel. pip copies yoke_gpu-VERSION.data/scripts to bin/ of an environment and .data/data to the
environment itself, so the command lies beside share/ and libexec/ there as in any installation.
"""

import argparse
import os
import pathlib
import sys

# What the wheel takes of an installation, without the libraries and headers for C++ programs.
TAKEN = [
    "libexec/yoke",
    "share/bash-completion",
    "share/fish",
    "share/man",
    "share/yoke/examples/first",
    "share/yoke/notebooks",
    "share/yoke/python",
    "share/yoke/sites",
    "share/yoke/tmpfiles.d",
    "share/zsh",
]

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from wheel_writer import write_wheel  # noqa: E402


def metadata(version, licenses):
    lines = [
        "Metadata-Version: 2.4",
        "Name: yoke-gpu",
        f"Version: {version}",
        "Summary: Sees, shares and claims GPUs, and launches training on one of them or on many machines",
        # yoke itself is under the first one; the others are those of libraries that it links statically.
        "License-Expression: Apache-2.0 AND BSD-3-Clause AND ISC AND MIT AND X11-distribute-modifications-variant AND Zlib",
        *[f"License-File: {name}" for name in licenses],
        "Keywords: GPU,CUDA,ROCm,nvidia-smi,torchrun,Slurm",
        "Classifier: Environment :: Console",
        "Classifier: Operating System :: POSIX :: Linux",
        "Classifier: Programming Language :: C++",
        "Classifier: Programming Language :: Python :: 3",
        "Requires-Python: >=3.9",
        "Description-Content-Type: text/markdown",
    ]
    return "\n".join(lines) + "\n\n" + (HERE / "description.md").read_text()


def files_below(folder):
    """The files below a folder, in an order that does not depend on the file system; links are followed."""
    found = []
    for parent, folders, names in os.walk(folder, followlinks=True):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        found += [pathlib.Path(parent) / name for name in names]
    return sorted(found)


def contents(options):
    """Pairs of a name in the wheel and the file or text that it gets. The folder .dist-info is last, as is usual."""
    data = f"yoke_gpu-{options.version}.data"
    info = f"yoke_gpu-{options.version}.dist-info"
    if options.module.is_dir():
        for file in files_below(options.module):
            if file.suffix in (".py", ".pyi") or file.name == "py.typed":
                yield f"yoke/{file.relative_to(options.module)}", file
    for folder in TAKEN:
        files = files_below(options.installation / folder)
        if not files:
            raise SystemExit(f"make_wheel.py: {options.installation} has nothing in {folder}; was all of it installed?")
        for file in files:
            yield f"{data}/data/{file.relative_to(options.installation)}", file
    yield f"{data}/scripts/yoke", options.installation / "bin/yoke"

    repository = HERE.parent.parent
    licenses = {"LICENSE": repository / "LICENSE"}
    licenses.update({f"linked/{file.name}": file for file in files_below(options.licenses)})
    for name, file in licenses.items():
        yield f"{info}/licenses/{name}", file
    yield f"{info}/METADATA", metadata(options.version, licenses)
    tag = f"py3-none-manylinux_2_28_{options.arch}"
    yield f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: yoke {options.version}\nRoot-Is-Purelib: false\nTag: {tag}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("installation", "licenses", "module", "output"):
        parser.add_argument(f"--{name}", type=lambda text: pathlib.Path(text).resolve(), required=True)
    parser.add_argument("--arch", choices=["x86_64", "aarch64"], required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--time", type=int, required=True, help="the time of all files, in seconds since 1970")
    options = parser.parse_args()

    path = options.output / f"yoke_gpu-{options.version}-py3-none-manylinux_2_28_{options.arch}.whl"
    write_wheel(path, contents(options), options.time)
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
