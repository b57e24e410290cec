"""Tells `yoke env create` what pip has been told, and what this environment has.

usage: ENVIRONMENT/bin/python -I yoke_environment.py [--settings] [REQUIREMENTS]

pip's own code reads the file, so that nested files, constraints, markers, hashes and continued lines mean what they mean
to `pip install`. Prints a JSON object, which yoke/environment/pip.h describes.
"""

import ast
import importlib.metadata
import json
import os
import re
import subprocess
import sys

FRAMEWORKS = ("torch", "torchvision", "torchaudio", "tensorflow", "tensorflow-cpu")


def settings_of_pip():
    """pip's options by variables and configuration files, in the order in which `pip install` lets them override."""
    command = [sys.executable, "-I", "-m", "pip", "config", "list"]
    shown = {**os.environ, "PIP_QUIET": "0"}
    listed = subprocess.run(command, env=shown, stdout=subprocess.PIPE, universal_newlines=True)
    if listed.returncode != 0:  # a setting has a wrong value, and pip has said so
        sys.exit(listed.stdout.strip() or listed.returncode)
    order = ("global", "install", ":env:")
    found = re.findall(r"^(global|install|:env:)\.([\w-]+)=(.*)$", listed.stdout, re.MULTILINE)
    found.sort(key=lambda one: order.index(one[0]))
    settings = {name: ast.literal_eval(value) for _, name, value in found if name != "quiet"}
    return {name: value for name, value in settings.items() if value}


def requirements_of(files):
    """pip's InstallRequirement of each line that has a name and applies here. `files`: pairs (path, is_constraint)."""
    from pip._internal.network.session import PipSession
    from pip._internal.req.constructors import install_req_from_parsed_requirement
    from pip._internal.req.req_file import parse_requirements

    session = PipSession()
    for path, is_constraint in files:
        for parsed in parse_requirements(path, session=session, constraint=is_constraint):
            try:
                one = install_req_from_parsed_requirement(parsed)
            except Exception:  # such as a folder that does not exist; the installation will say it
                continue
            if one.req is not None and one.match_markers():
                yield one


def described(one):
    from pip._vendor.packaging.utils import canonicalize_name

    decided = ""
    if any("+" in each.version for each in one.req.specifier):
        decided = "it names a build"
    if one.hash_options:
        decided = "it has a hash"
    if one.link is not None:
        decided = "it has a URL"
    where = one.comes_from if isinstance(one.comes_from, str) else ""
    return {
        "package": canonicalize_name(one.req.name),
        "specifier": str(one.req.specifier),
        "where": where,
        "decided": decided,
        "is_constraint": bool(one.constraint),
    }


def torch_minors(named):
    """The N for which all lines allow some PyTorch 2.N. torchvision 0.15 is that of PyTorch 2.0, and so on."""
    from pip._vendor.packaging.specifiers import SpecifierSet

    forms = {"torch": "2.{0}.{2}", "torchvision": "0.{1}.{2}", "torchaudio": "2.{0}.{2}"}
    lines = [one for one in named if one["package"] in forms and one["specifier"] and not one["decided"]]
    if not lines:
        return None
    allowed = {}
    for one in lines:
        allowed.setdefault(forms[one["package"]], SpecifierSet())
        allowed[forms[one["package"]]] &= SpecifierSet(one["specifier"])
    patches = range(10)
    return [
        minor
        for minor in range(100)
        if all(
            any(each.contains(form.format(minor, minor + 15, patch), prereleases=True) for patch in patches)
            for form, each in allowed.items()
        )
    ]


def version_of(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def unmet(one, package):
    version = version_of(package) or version_of(one.req.name)
    return version is None or not one.req.specifier.contains(version, prereleases=True)


def main(words):
    facts = {"settings": {}, "named": [], "has_hashes": False, "torch_minors": None, "unmet": [], "unread": ""}
    if "--settings" in words:
        words.remove("--settings")
        facts["settings"] = settings_of_pip()
    files = [(path, False) for path in words]
    files += [(path, True) for path in facts["settings"].get("constraint", "").split()]
    try:
        for one in requirements_of(files) if files else ():
            line = described(one)
            facts["named"].append(line)
            facts["has_hashes"] = facts["has_hashes"] or bool(one.hash_options)
            if not line["is_constraint"] and unmet(one, line["package"]):
                facts["unmet"].append("{}{} ({})".format(line["package"], line["specifier"], line["where"]))
        facts["torch_minors"] = torch_minors(facts["named"])
    except Exception as error:  # pip's code of another version, or a file that pip refuses
        facts["unread"] = "{}: {}".format(type(error).__name__, error)
    versions = {package: version_of(package) for package in FRAMEWORKS}
    facts["versions"] = {package: version for package, version in versions.items() if version is not None}
    print(json.dumps(facts))


if __name__ == "__main__":
    main(sys.argv[1:])
