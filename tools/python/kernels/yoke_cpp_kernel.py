"""A Jupyter kernel for C++ with yoke: compiles each cell with a precompiled <yoke/train.h>, and loads it into a process.

    python yoke_cpp_kernel.py FOLDER -f CONNECTION_FILE     run the kernel; Jupyter does that
    python yoke_cpp_kernel.py FOLDER --prepare PREFIX       compile what it needs into FOLDER, for the yoke of
                                                            CMAKE_PREFIX_PATH, or else below PREFIX

docs/jupyter.md says what a cell may contain; yoke_cpp_cells.py, how it becomes a translation unit.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import yoke_cpp_cells as cells

SOURCES = Path(__file__).resolve().parent / "cpp"
END_OF_CELL = b"\0yoke\0"
GRACE_S = 2  # between an interrupt and the end of the process in which the cell runs


def prepare(folder, prefix):
    """Compiles the precompiled header and the host. Returns the exit status."""
    for program in ("cmake", "objcopy"):
        if shutil.which(program) is None:
            print(f"there is no {program} in PATH; install the packages cmake and binutils", file=sys.stderr)
            return 69
    # Clang needs a third of the time of GCC, and a fifth of the space.
    compiler = os.environ.get("CXX") or shutil.which("clang++") or shutil.which("c++")
    if compiler is None:
        print("there is no C++ compiler in PATH; install the package clang or g++", file=sys.stderr)
        return 69
    prefixes = ";".join([*filter(None, os.environ.get("CMAKE_PREFIX_PATH", "").split(":")), prefix])
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    configure = ["cmake", *generator, "-S", SOURCES, "-B", folder, f"-DCMAKE_CXX_COMPILER={compiler}",
                 "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_PREFIX_PATH={prefixes}"]
    for command in (configure, ["cmake", "--build", folder]):
        status = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr).returncode
        if status != 0:
            return status
    return 0


def compile_words(folder):
    """The words that compile cell.cpp, without its name and that of the object."""
    commands = json.loads((folder / "compile_commands.json").read_text())
    [command] = [one["command"] for one in commands if one["file"].endswith("/cell.cpp")]
    words = shlex.split(command)
    at = words.index("-o")
    del words[at : at + 2]
    del words[words.index("-c") :]
    return words


class Interrupted(Exception):
    pass


class Host:
    """The process in which cells run, and the threads that pass its output on."""

    def __init__(self, program, on_text):
        answers, its_end = os.pipe()
        self.process = subprocess.Popen(
            [program, str(its_end)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=[its_end])
        os.close(its_end)
        self.answers = os.fdopen(answers)
        self.ends = threading.Semaphore(0)
        for name, stream in (("stdout", self.process.stdout), ("stderr", self.process.stderr)):
            threading.Thread(target=self.forward, args=(name, stream, on_text), daemon=True).start()

    def forward(self, name, stream, on_text):
        kept = b""
        while block := os.read(stream.fileno(), 65536):
            kept += block
            while END_OF_CELL in kept:
                before, kept = kept.split(END_OF_CELL, 1)
                if before:
                    on_text(name, before.decode(errors="replace"))
                self.ends.release()
            # A character or a mark may be incomplete at the end.
            cut = len(kept) - next((n for n in range(len(END_OF_CELL) - 1, 0, -1) if kept.endswith(END_OF_CELL[:n])), 0)
            text = kept[:cut].decode(errors="ignore")
            if text:
                on_text(name, text)
                kept = kept[len(text.encode()) :]
        if kept:
            on_text(name, kept.decode(errors="replace"))
        self.ends.release()

    def run(self, path):
        """Returns the answer without its line feed; empty if the process has ended."""
        try:
            self.process.stdin.write(f"{path}\n".encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            return ""
        answer = self.answers.readline()
        for _ in range(2):
            self.ends.acquire(timeout=10)
        return answer.rstrip("\n").replace("\x1f", "\n")

    def end(self):
        self.process.kill()
        self.process.wait()
        self.answers.close()


def main():
    from ipykernel.kernelapp import IPKernelApp
    from ipykernel.kernelbase import Kernel

    class CppKernel(Kernel):
        implementation = "yoke"
        implementation_version = "1"
        language_info = {"name": "c++", "version": "20", "mimetype": "text/x-c++src", "file_extension": ".cpp",
                         "codemirror_mode": "text/x-c++src", "pygments_lexer": "cpp"}
        banner = "C++20 with <yoke/train.h>"

        def __init__(self, **options):
            super().__init__(**options)
            self.build = Path(folder)
            self.scratch = Path(tempfile.mkdtemp(prefix="yoke-cells-"))
            self.words = None
            self.host = None
            self.compiler = None
            self.done = []  # the cells that have run
            self.number = 0
            self.is_running = False
            self.is_interrupted = False

        # ---- a cell

        def do_execute(self, code, silent, *_, **__):
            self.is_interrupted = False
            self.is_running = True
            try:
                error = self.run_cell(code, silent)
            finally:
                self.is_running = False
            if error is None:
                return {"status": "ok", "execution_count": self.execution_count, "payload": [], "user_expressions": {}}
            content = {"ename": error[0], "evalue": error[1], "traceback": error[2].splitlines()}
            if not silent:
                self.send_response(self.iopub_socket, "error", content)
            return {"status": "error", "execution_count": self.execution_count, **content}

        def run_cell(self, code, silent):
            """Returns None, or the name, the value and the text of an error."""
            if not (self.build / "yoke_cell_host").exists():
                text = f"{self.build} is incomplete; run `yoke jupyter install --cpp` again"
                return "NotPrepared", text, text
            items = cells.split(code)
            if not items:
                return None
            self.number += 1
            cell = cells.Cell(self.number, items)
            library, diagnostics = self.compile(cells.unit(self.done, cell))
            if self.is_interrupted:
                return "Interrupted", "the cell was interrupted", "The cell was interrupted before it ran."
            if library is None:
                errors = [line for line in diagnostics.splitlines() if "error:" in line]
                return "CompileError", errors[0] if errors else "the compiler failed", diagnostics
            if self.host is None:
                self.host = Host(self.build / "yoke_cell_host", lambda name, text: self.show(name, text, silent))
            answer = self.host.run(library)
            if answer == "ok":
                self.done.append(cell)
                return None
            if answer:
                name, _, text = answer.removeprefix("error ").partition(": ")
                if name == "LinkError":
                    text = text.replace(str(library), "the cell")
                return name, text, f"{name}: {text}\nThe names that this cell defines are not kept."
            return self.lose_host()

        def lose_host(self):
            """The error of a cell whose process has ended."""
            status = self.host.process.wait()
            self.host.end()
            self.host = None
            self.done = []
            why = "was interrupted" if self.is_interrupted else (
                f"crashed ({signal.Signals(-status).name})" if status < 0 else f"ended with status {status}")
            text = f"The cell {why}. All variables of the notebook are lost; run its cells again."
            return "Interrupted" if self.is_interrupted else "Crash", f"the cell {why}", text

        def compile(self, text):
            """Returns the path of a shared object, or None and the compiler's messages."""
            self.words = self.words or compile_words(self.build)
            name = f"cell_{self.number}"
            source, compiled, library = f"{name}.cpp", f"{name}.o", f"{name}.so"
            (self.scratch / source).write_text(text)
            # The host, not dlopen(), runs the initialisers: see host.cpp.
            for words in ([*self.words, "-fno-diagnostics-color", "-c", source, "-o", compiled],
                          ["objcopy", "--rename-section", ".init_array=yoke_init", compiled],
                          [self.words[0], "-shared", compiled, "-o", library]):
                self.compiler = subprocess.Popen(words, cwd=self.scratch, stdin=subprocess.DEVNULL,
                                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
                output = self.compiler.communicate()[0]
                if self.compiler.returncode != 0:
                    return None, re.sub(r"\bcell_\d+::", "", output)
            (self.scratch / compiled).unlink()
            return self.scratch / library, ""

        def show(self, name, text, silent):
            if not silent:
                self.send_response(self.iopub_socket, "stream", {"name": name, "text": text})

        # ---- what else Jupyter asks

        def do_is_complete(self, code):
            return {"status": "complete"}

        def _send_interrupt_children(self):
            """Called on another thread: by an interrupt_request."""
            if not self.is_running:
                return
            self.is_interrupted = True
            host, number = self.host, self.number
            if self.compiler is not None and self.compiler.poll() is None:
                self.compiler.terminate()
            if host is None:
                return
            host.process.send_signal(signal.SIGINT)

            def end():
                if self.is_running and self.number == number:
                    host.process.kill()

            timer = threading.Timer(GRACE_S, end)
            timer.daemon = True
            timer.start()

        def do_shutdown(self, restart):
            if self.host is not None:
                self.host.end()
            shutil.rmtree(self.scratch, ignore_errors=True)
            return {"status": "ok", "restart": restart}

    folder = sys.argv[1]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    IPKernelApp.launch_instance(argv=sys.argv[2:], kernel_class=CppKernel)


if __name__ == "__main__":
    if sys.argv[2] == "--prepare":
        sys.exit(prepare(sys.argv[1], sys.argv[3]))
    main()
