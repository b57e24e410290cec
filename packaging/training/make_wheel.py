#!/usr/bin/env python3
"""Packs files of a prefix into a wheel, with the same bytes for the same files, and judges it by auditwheel.

make_wheel.py library --prefix FOLDER --licenses FOLDER --version VERSION --torch MINOR --command VERSION
              --time SECONDS --output FOLDER
make_wheel.py data --prefix FOLDER --licenses FOLDER --time SECONDS --output FOLDER

The first makes yoke-torch for torch MINOR, such as 2.11, the second yoke-fashion-mnist. It prints the path of the wheel.
pip copies NAME-VERSION.data/data to the environment itself, so the files lie beside those of the command there as in any
installation. What an installation has in lib/yoke/python are packages of Python, which the wheel has at its top.
"""

import argparse
import pathlib
import platform
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from wheel_writer import write_wheel  # noqa: E402

PACKAGES = "lib/yoke/python"
ENTRY_POINTS = HERE.parent.parent / "python/yoke_torch/entry_points.txt"

# Libraries that the wheel uses and that come with torch, or with the driver.
OF_TORCH = ["libtorch.so", "libtorch_*.so", "libc10*.so", "libcudart.so.*", "libnccl.so.*", "libcuda.so.*"]
DATA_VERSION = "1.0"

# yoke itself is under the first one; the others are those of libraries that it contains.
LIBRARY_LICENSE = "Apache-2.0 AND BSD-3-Clause AND IJG AND MIT AND Zlib AND libpng-2.0"


def library_metadata(options):
    """The name, version, tag and headers of METADATA of yoke-torch. The version ends with torch's minor version without
    its point, so that pip can choose among the wheels of one version of yoke: 0.1.0.211 is for torch 2.11."""
    major, minor = options.torch.split(".")
    headers = [
        "Summary: The training library of yoke: C++ on libtorch, from one device to all of them",
        f"License-Expression: {LIBRARY_LICENSE}",
        "Keywords: PyTorch,libtorch,C++,distributed training,DDP,FSDP",
        "Classifier: Environment :: Console",
        "Classifier: Operating System :: POSIX :: Linux",
        "Classifier: Programming Language :: C++",
        f"Requires-Dist: torch>={major}.{minor},<{major}.{int(minor) + 1}",
        f"Requires-Dist: yoke-gpu=={options.command}",
        f"Requires-Dist: yoke-fashion-mnist=={DATA_VERSION}",
        "Requires-Python: >=3.10",
    ]
    return "yoke-torch", f"{options.version}.{major}{minor}", None, headers, "description.md"


def data_metadata(_options):
    headers = [
        "Summary: Fashion-MNIST, as the first recipe of yoke reads it",
        "License-Expression: MIT",
        "Requires-Python: >=3.9",
    ]
    return "yoke-fashion-mnist", DATA_VERSION, "py3-none-any", headers, "description-data.md"


def files_below(folder):
    """The files below a folder, in an order that does not depend on the file system."""
    links = [path for path in folder.rglob("*") if path.is_symlink()]
    if links:
        raise SystemExit(f"make_wheel.py: a wheel cannot contain links, and {links[0]} is one")
    return sorted(path for path in folder.rglob("*") if path.is_file())


def write(path, name, version, tag, headers, description, options):
    """Writes the wheel `path`, with what options.prefix and options.licenses have."""
    stem = f"{name.replace('-', '_')}-{version}"
    packages = options.prefix / PACKAGES
    contents = [(str(file.relative_to(packages)) if file.is_relative_to(packages) else
                 f"{stem}.data/data/{file.relative_to(options.prefix)}", file) for file in files_below(options.prefix)]
    licenses = {str(file.relative_to(options.licenses)): file for file in files_below(options.licenses)}
    contents += [(f"{stem}.dist-info/licenses/{file_name}", file) for file_name, file in licenses.items()]
    metadata = ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}", *headers,
                *[f"License-File: {file_name}" for file_name in licenses],
                "Description-Content-Type: text/markdown", "", (HERE / description).read_text()]
    if packages.is_dir():
        contents.append((f"{stem}.dist-info/entry_points.txt", ENTRY_POINTS))
    contents.append((f"{stem}.dist-info/METADATA", "\n".join(metadata)))
    pure = "true" if tag.endswith("-any") else "false"
    contents.append((f"{stem}.dist-info/WHEEL",
                     f"Wheel-Version: 1.0\nGenerator: yoke {version}\nRoot-Is-Purelib: {pure}\nTag: {tag}\n"))
    write_wheel(path, contents, options.time)


def tag_of(path):
    """The oldest manylinux that the programs and libraries in a wheel run on, by the versions of the symbols that they
    use, as auditwheel finds them. Stops if they use a library that is neither torch's nor on every Linux."""
    from auditwheel.wheel_abi import analyze_wheel_abi

    found = analyze_wheel_abi(None, None, path, frozenset(OF_TORCH), disable_isa_ext_check=False, allow_graft=False)
    if found.overall_policy == found.policies.linux:
        highest = found.external_refs[found.policies.highest.name]
        raise SystemExit(f"make_wheel.py: {path.name} runs on no manylinux: it needs the libraries {sorted(highest.libs)} "
                         f"and symbols {dict(found.versioned_symbols)}; link them statically, or compile on an older "
                         "system")
    return f"py3-none-{found.overall_policy.name}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["library", "data"])
    for name in ("prefix", "licenses", "output"):
        parser.add_argument(f"--{name}", type=lambda text: pathlib.Path(text).resolve(), required=True)
    parser.add_argument("--version", help="of yoke")
    parser.add_argument("--torch", help="the minor version, such as 2.11")
    parser.add_argument("--command", help="the version of yoke-gpu that it needs")
    parser.add_argument("--time", type=int, required=True, help="the time of all files, in seconds since 1970")
    options = parser.parse_args()

    library = options.kind == "library"
    name, version, tag, headers, description = (library_metadata if library else data_metadata)(options)

    def wheel_with(folder, its_tag):
        path = folder / f"{name.replace('-', '_')}-{version}-{its_tag}.whl"
        write(path, name, version, its_tag, headers, description, options)
        return path

    if tag is None:
        with tempfile.TemporaryDirectory() as folder:
            tag = tag_of(wheel_with(pathlib.Path(folder), f"py3-none-linux_{platform.machine()}"))
    path = wheel_with(options.output, tag)
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
