"""Observes a Python program that trains with torch, without any change to the program.

Python imports this file when it starts, if the command has put its folder first into PYTHONPATH. The file then
imports the sitecustomize that Python would have imported otherwise. An error in here never ends the program.
"""

import importlib.machinery
import importlib.util
import os
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))


def observe():
    import yoke_steps

    # Modules with a function start(). Each is used if the environment variable with its name is set.
    for name in ("yoke_profile", "yoke_step_times", "yoke_lock_step"):
        if name.upper() in os.environ:
            importlib.import_module(name).start()
    yoke_steps.watch_imports()


def import_the_next():
    others = [folder for folder in sys.path if os.path.abspath(folder or ".") != FOLDER]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module  # now only functions of this file are still in use
    spec.loader.exec_module(module)


try:
    observe()
except Exception as error:  # noqa: BLE001: the user's program must run anyway
    print(f"warning: yoke cannot observe this program: {error}", file=sys.stderr)
import_the_next()
