"""Cells and outputs of .ipynb files, and whether two outputs say the same. Pure; compare_test.py has tables.

What changes from run to run is replaced in both outputs: times, PIDs, ports, folders of tests, names of the user and the host. Lines
of the status of `yoke run` are left out, because their number depends on the time. Tags of a cell allow more:

    any-order    lines come in any order: ranks print at the same time
    only-words   words are compared, and neither numbers nor drawings: losses, charts
    any-text     there must be some text: a report about this machine
"""

import getpass
import json
import re
import socket

FOLDER = "/home/ada/course"  # stands in stored outputs for the folder of the test
REPLACED = [
    (r"\x1b\[[\d;]*m", ""),
    (r"(?m)^yoke run: \d+ of \d+ ranks up.*\n", ""),
    (rf"/\S*/yoke-notebook-[^/\s]*/work|{FOLDER}", "FOLDER"),
    (r"\b\d+(\.\d+)? ?(us|ms|s|min|h|d)\b", "TIME"),
    (r"(?i)\bpid[ =]\d+", "pid PID"),
    (r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?", "DATE"),
    (rf"\b{re.escape(getpass.getuser())}\b", "USER"),
    (rf"\b{re.escape(socket.gethostname())}\b", "HOST"),
]


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def write(path, notebook):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(notebook, file, indent=1, ensure_ascii=False)
        file.write("\n")


def text_of(value):
    """Texts are lists of lines in a file."""
    return "".join(value) if isinstance(value, list) else value


def output_of(message):
    """The output of a message of a kernel, as a file has it; None for other messages."""
    kind, content = message["msg_type"], message["content"]
    if kind == "stream":
        return {"name": content["name"], "output_type": "stream", "text": content["text"].replace("\r\n", "\n")}
    if kind in ("display_data", "execute_result"):
        output = {"data": content["data"], "metadata": content["metadata"], "output_type": kind}
        return {**output, "execution_count": content["execution_count"]} if kind == "execute_result" else output
    if kind == "error":
        return {"ename": content["ename"], "evalue": content["evalue"], "output_type": "error", "traceback": content["traceback"]}
    return None


def add(outputs, output):
    """Adds an output, and joins what a stream writes in pieces."""
    last = outputs[-1] if outputs else {}
    if output["output_type"] == "stream" and last.get("output_type") == "stream" and last["name"] == output["name"]:
        last["text"] += output["text"]
    else:
        outputs.append(output)


def without_variation(text, tags):
    for pattern, replacement in REPLACED:
        text = re.sub(pattern, replacement, text)
    lines = text.splitlines()
    if "only-words" in tags:
        lines = [" ".join(re.findall(r"[^\W\d_]{2,}", line)) for line in lines]
        lines = [line for line in lines if line]
    if "any-text" in tags:
        lines = ["(text)"] if lines else []
    return sorted(lines) if "any-order" in tags else lines


def said(outputs, tags):
    """What is compared: the lines of each stream, of values and of errors."""
    texts = {}
    for output in outputs:
        kind = output["output_type"]
        if kind == "stream":
            kind, text = output["name"], text_of(output["text"])
        elif kind == "error":
            text = f"{output['ename']}: {output['evalue']}\n"
        else:
            text = "".join(f"{mime}: {text_of(data)}\n" for mime, data in sorted(output["data"].items()))
        texts[kind] = texts.get(kind, "") + text
    lines = {kind: without_variation(text, tags) for kind, text in texts.items()}
    return {kind: found for kind, found in lines.items() if found}
