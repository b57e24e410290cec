#!/usr/bin/env python3
"""Executes notebooks, each in an empty folder, and compares what their cells say with the stored outputs.

    run_notebooks.py [--write] [--python PYTHON] NOTEBOOK...

--write stores the outputs instead. The Python that runs this has jupyter_client and ipykernel. A notebook in Python runs with
--python, or else with the same one. YOKE_COMMAND is the command, and YOKE_FAKES the folder of the driver without hardware. The
metadata of a notebook may describe the machine on which it runs, as docs/fakes.md does: {"yoke": {"machine": {"devices": 4}}}.
Otherwise there is no GPU.
"""

import argparse
import difflib
import json
import os
import pathlib
import sys
import tempfile

import ipykernel
from jupyter_client import KernelManager
from jupyter_client.kernelspec import KernelSpec

import notebook

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
CELL_SECONDS = 600
HIDDEN = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "YOKE_FAKE_NVML", "YOKE_SITE_CONFIG", "COLUMNS",
          "NO_COLOR")


def environment_of(content, folder):
    command = pathlib.Path(os.environ["YOKE_COMMAND"])
    environment = {name: value for name, value in os.environ.items() if name not in HIDDEN}
    (folder / "locks").mkdir()
    (folder / "locks").chmod(0o1777)
    paths = [str(REPOSITORY / "python"), str(pathlib.Path(ipykernel.__file__).parents[1])]
    environment.update(PATH=f"{command.parent}:{environment['PATH']}", PYTHONPATH=":".join(paths), SHELL="/bin/sh",
                       YOKE_CLAIM_DIR=str(folder / "locks"), IPYTHONDIR=str(folder / "ipython"),
                       KINETO_LOG_LEVEL="99")  # the profiler of libtorch misses GPUs
    machine = content["metadata"].get("yoke", {}).get("machine")
    if machine:
        (folder / "machine.json").write_text(json.dumps(machine))
        environment.update(LD_LIBRARY_PATH=os.environ["YOKE_FAKES"], YOKE_FAKE_NVML=str(folder / "machine.json"))
    return environment


def execute(content, folder, python):
    """Returns the outputs of each code cell."""
    name = content["metadata"]["kernelspec"]["name"]
    manager = KernelManager(kernel_name=name)
    if name == "python3":
        manager._kernel_spec = KernelSpec(argv=[python, "-m", "ipykernel_launcher", "-f", "{connection_file}"], language="python",
                                          display_name=name)
    (folder / "work").mkdir()
    manager.start_kernel(cwd=str(folder / "work"), env=environment_of(content, folder))
    try:
        client = manager.client()
        client.start_channels()
        client.wait_for_ready(timeout=CELL_SECONDS)
        for cell in content["cells"]:
            if cell["cell_type"] != "code":
                continue
            outputs = []

            def hook(message):
                output = notebook.output_of(message)
                if output is not None:
                    notebook.add(outputs, output)

            reply = client.execute_interactive(notebook.text_of(cell["source"]), timeout=CELL_SECONDS, output_hook=hook)
            yield cell, outputs, reply["content"]
        client.stop_channels()
    finally:
        manager.shutdown_kernel(now=True)


def faults_of(path, python, writes):
    content, faults = notebook.read(path), []
    with tempfile.TemporaryDirectory(prefix="yoke-notebook-") as name:
        for cell, outputs, reply in execute(content, pathlib.Path(name), python):
            tags = cell["metadata"].get("tags", [])
            if reply["status"] != "ok" and "raises-exception" not in tags:
                faults.append(f"{path}: the cell {cell['id']} ended with an error:\n{outputs or reply}")
            if writes:
                folder = str(pathlib.Path(name, "work"))
                cell["outputs"] = json.loads(json.dumps(outputs).replace(folder, notebook.FOLDER))
                cell["execution_count"] = reply["execution_count"]
                continue
            stored, found = notebook.said(cell["outputs"], tags), notebook.said(outputs, tags)
            for kind in sorted({*stored, *found}):
                difference = difflib.unified_diff(stored.get(kind, []), found.get(kind, []), "stored", "found", lineterm="")
                if text := "\n".join(difference):
                    faults.append(f"{path}: the cell {cell['id']} prints something else ({kind}):\n{text}")
    if writes:
        notebook.write(path, content)
    return faults


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--write", action="store_true")
    options.add_argument("--python", default=sys.executable)
    options.add_argument("notebooks", nargs="+")
    options = options.parse_args()
    faults = [fault for path in options.notebooks for fault in faults_of(path, options.python, options.write)]
    if faults:
        sys.exit("\n".join(faults))
    print(f"{len(options.notebooks)} notebooks")


main()
