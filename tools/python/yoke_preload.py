"""Imports the modules of a script once, and forks ranks from this interpreter: `yoke run --preload` of a Python program.

    python [OPTION...] yoke_preload.py MODULES script|module NAME [ARGUMENT...]

MODULES are names with commas between them. If there are none, the imports at the beginning of the script count, up to its
first statement of another kind and its first import of a module from its own folder. docs/preload.md says which properties a rank
has, and yoke/contract/preload.h has the protocol.
"""

import array
import ast
import ctypes
import gc
import importlib
import importlib.machinery
import io
import os
import resource
import signal
import socket
import struct
import sys
import types

VERSION = 3
MAX_FDS = 253  # SCM_MAX_FD
PR_SET_PDEATHSIG = 1
# What does not survive a fork, if a module opens it while it is imported.
DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/", "/dev/accel", "/dev/infiniband/")


class Refused(Exception):
    """The program cannot be preloaded; the message is a clause."""


class Fields:
    """Reads what yoke/base/fields.h wrote."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self):
        (value,) = struct.unpack_from("=q", self.data, self.at)
        self.at += 8
        return value

    def text(self):
        size = self.number()
        self.at += size
        return self.data[self.at - size : self.at]

    def texts(self):
        return [self.text() for _ in range(self.number())]

    def numbers(self):
        return [self.number() for _ in range(self.number())]

    def set(self):
        """A list in the kernel's form, such as 0-3,8."""
        result = set()
        for part in filter(None, self.text().decode().split(",")):
            first, _, last = part.partition("-")
            result.update(range(int(first), int(last or first) + 1))
        return result


def prctl(option, value):
    ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def prefer_memory(nodes):
    """As in yoke/base/affinity.cpp."""
    number = {"x86_64": 238, "aarch64": 237}.get(os.uname().machine)
    if not nodes or number is None:
        return
    words = array.array("L", bytes(8 * (max(nodes) // 64 + 1)))
    for node in nodes:
        words[node // 64] |= 1 << node % 64
    address, num_bits = words.buffer_info()[0], 64 * len(words) + 1
    for policy in (5, 1):  # MPOL_PREFERRED_MANY, MPOL_PREFERRED
        if ctypes.CDLL(None).syscall(number, policy, ctypes.c_void_p(address), ctypes.c_ulong(num_bits)) == 0:
            return


def read(path):
    with io.open_code(path) as file:
        return file.read()


# ---- What is imported -------------------------------------------------------------------------------------------------


def leading_imports(path):
    """Returns the imports at the beginning of the script, up to its first statement of another kind and its first import of
    a module from its own folder: these may set what later imports read."""
    statements = []
    for statement in ast.parse(read(path), path).body:
        if isinstance(statement, ast.Import):
            names = [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom) and statement.level == 0:
            names = [statement.module]
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue  # the text that describes the script
        else:
            break
        if any(is_local(name.partition(".")[0], os.path.dirname(os.path.realpath(path))) for name in names):
            break
        if names != ["__future__"]:
            statements.append(statement)
    return statements


def is_local(name, folder):
    spec = importlib.machinery.PathFinder.find_spec(name, [folder])
    return spec is not None and spec.origin is not None  # a folder without __init__.py has no origin, and is found last


def import_all(statements):
    for statement in statements:
        try:
            exec(compile(ast.Module([statement], []), "the script's imports", "exec"), {"__name__": "yoke_preload"})
        except BaseException as error:
            text = ast.unparse(statement)
            raise Refused(f"`{text}` failed: {type(error).__name__}: {error}") from error


def num_threads():
    return len(os.listdir("/proc/self/task"))


def check_that_it_can_fork(own_socket):
    """Raises Refused if a module has left something that a forked process would not have, or would share."""
    if num_threads() > 1:
        # Libraries that support forks, such as OpenBLAS, end their threads before one, and start them again when needed.
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    if num_threads() > 1:
        raise Refused(f"a module has started {num_threads() - 1} threads while it was imported")
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        raise Refused("a module has started a process while it was imported")
    except ChildProcessError:
        pass  # there is none
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue  # that of listdir
        if target.startswith(DEVICES):
            raise Refused(f"a module has opened {target} while it was imported")
        if target.startswith("socket:") and int(fd) > 2 and int(fd) != own_socket:
            raise Refused("a module has opened a connection while it was imported")
    if "mpi4py.MPI" in sys.modules:
        raise Refused("mpi4py has begun MPI while it was imported")


# ---- A rank -----------------------------------------------------------------------------------------------------------


def fork_rank(guardian):
    """Returns 0 in a new rank; in the caller the rank's pid, or -errno. A process between the two ends at once, so that the
    rank becomes a child of the guardian, the nearest subreaper."""
    reader, writer = os.pipe()
    try:
        between = os.fork()
    except OSError as error:
        os.close(reader)
        os.close(writer)
        return -error.errno
    if between == 0:
        between = os.getpid()
        try:
            rank = os.fork()
        except OSError as error:
            rank = -error.errno
        if rank == 0:
            os.close(reader)
            os.close(writer)
            while os.getppid() == between:
                os.sched_yield()
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != guardian:
                os._exit(1)  # the guardian has ended before the death signal was set
            return 0
        os.write(writer, struct.pack("=i", rank))
        os._exit(0)
    os.close(writer)
    answer = os.read(reader, 4)
    os.close(reader)
    os.waitpid(between, 0)
    return struct.unpack("=i", answer)[0] if len(answer) == 4 else -11  # EAGAIN


def place(fds, numbers):
    """Moves each descriptor to its number; first all above the highest one, because they may occupy each other's."""
    import fcntl

    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, max(numbers) + 1) for fd in fds]
    for fd in fds:
        os.close(fd)
    for fd, number in zip(moved, numbers):
        os.dup2(fd, number)  # which programs that the rank starts inherit, too
        os.close(fd)


def set_environment(variables):
    wanted = {}
    for variable in variables:
        name, _, value = variable.partition(b"=")
        wanted.setdefault(name, value)
    for name in [name for name in os.environb if name not in wanted]:
        del os.environb[name]
    os.environb.update({name: value for name, value in wanted.items() if os.environb.get(name) != value})


def open_stream(fd, mode, old):
    """Returns a standard stream as Python opens it at its start."""
    raw = io.FileIO(fd, mode, closefd=False)
    raw.name = old.name
    is_unbuffered = old.write_through  # python -u
    if mode == "r":
        buffer = io.BufferedReader(raw)
    else:
        buffer = raw if is_unbuffered else io.BufferedWriter(raw)
    stream = io.TextIOWrapper(buffer, old.encoding, old.errors, "\n", write_through=is_unbuffered,
                              line_buffering=not is_unbuffered and (fd == 2 or raw.isatty()))
    stream.mode = mode
    return stream


def become_rank(fds):
    """Makes the changes that are made between fork and exec of another rank, and those of exec and of Python's start."""
    with open(fds[0], "rb") as file:
        file.seek(0)
        fields = Fields(file.read())
    environment, inherited = fields.texts(), fields.numbers()
    cpus, memory_nodes = fields.set(), fields.set()
    group = fields.number()
    limits = fields.number(), fields.number()
    if group == 0:
        os.setsid()
    else:
        try:
            os.setpgid(0, group)
        except OSError:
            pass  # the launcher has ended; then the guardian ends this process
    place(fds[1:], [0, 1, 2] + inherited)
    if cpus:
        try:
            os.sched_setaffinity(0, cpus)
        except OSError:
            pass
    prefer_memory(memory_nodes)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)  # -1 is no limit
    threads = os.environ.get("OMP_NUM_THREADS")
    set_environment(environment)
    for name, fd, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        old = getattr(sys, name)
        if old is not None:
            setattr(sys, name, open_stream(fd, mode, old))
            setattr(sys, f"__{name}__", getattr(sys, name))
    if "numpy.random" in sys.modules:  # Python's own generator is seeded after each fork
        sys.modules["numpy.random"].seed()
    if "torch" in sys.modules:  # of the CPU; those of GPUs begin with a constant
        sys.modules["torch"].default_generator.seed()
    now = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    if "torch" in sys.modules and now.isdigit() and int(now) > 0 and now != threads:
        sys.modules["torch"].set_num_threads(int(now))  # OpenMP has read the variable already
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def serve(sock):
    """Forks a rank for each message. Returns in a rank."""
    guardian = os.getppid()
    while True:
        message, fds, _, _ = socket.recv_fds(sock, 1, MAX_FDS, socket.MSG_CMSG_CLOEXEC)
        if not message:
            os._exit(0)
        rank = fork_rank(guardian)
        if rank == 0:
            sock.close()
            return become_rank(fds)
        for fd in fds:
            os.close(fd)
        sock.send(struct.pack("=i", rank))


# ---- The program ------------------------------------------------------------------------------------------------------


def make_main(path):
    """Puts a module __main__ as of `python PATH` in the place of this one."""
    main = types.ModuleType("__main__")
    main.__builtins__ = sys.modules["builtins"]
    if path:
        main.__file__ = os.path.abspath(path)
        main.__cached__ = None
        main.__loader__ = importlib.machinery.SourceFileLoader("__main__", main.__file__)
    if sys.version_info < (3, 14):
        main.__annotations__ = {}
    sys.modules["__main__"] = main
    return main


def guardians_socket():
    """Returns the socket that YOKE_PRELOAD_FD names, if the parent is at its other end; otherwise the variable was meant
    for a different process."""
    try:
        sock = socket.socket(fileno=int(os.environ.pop("YOKE_PRELOAD_FD")))
        pid, _, _ = struct.unpack("=iii", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    except (KeyError, ValueError, OSError):
        pid = 0
    if pid != os.getppid():
        sys.exit("yoke_preload.py is started by `yoke run --preload` alone")
    os.set_inheritable(sock.fileno(), False)
    return sock


def load(modules, kind, name, sock):
    """Imports what the program will import, and tells the guardian whether ranks can be forked."""
    try:
        if kind == "script" and not os.path.isfile(name):
            raise Refused(f"{name} is not a file")
        for module in modules:
            if not all(part.isidentifier() for part in module.split(".")):
                raise Refused(f"--preload-modules: {module!r} is not the name of a module; put commas between names")
        try:
            own = leading_imports(name) if kind == "script" and not modules else []
        except (SyntaxError, ValueError, OSError) as error:
            raise Refused(f"{name} cannot be read: {error}") from error
        named = [ast.parse(f"import {module}").body[0] for module in modules]
        if not own + named:
            raise Refused(f"{name} imports nothing at its beginning; name what to load: --preload-modules torch")
        import_all(own + named)
        check_that_it_can_fork(sock.fileno())
    except Refused as refusal:
        sock.send(struct.pack("=Ii", VERSION, 0) + str(refusal).encode(errors="replace")[:2000])
        os._exit(0)
    gc.collect()
    gc.freeze()  # what is there now is not looked at again, so its pages stay shared
    sys.stdout.flush()
    sys.stderr.flush()
    sock.send(struct.pack("=Ii", VERSION, 1))


def run():
    loader, modules, kind, name = sys.argv[0], sys.argv[1].split(",") if sys.argv[1] else [], sys.argv[2], sys.argv[3]
    sock = guardians_socket()
    sys.argv = (["-m"] if kind == "module" else [name]) + sys.argv[4:]
    if hasattr(sys, "orig_argv"):
        at = sys.orig_argv.index(loader)
        sys.orig_argv[at:] = (["-m", name] if kind == "module" else [name]) + sys.argv[1:]
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        sys.path[0] = os.getcwd() if kind == "module" else os.path.dirname(os.path.realpath(name))
    main = make_main(name if kind == "script" else None)
    load(modules, kind, name, sock)
    serve(sock)
    if kind == "module":
        import runpy

        return lambda: runpy._run_module_as_main(name)  # what `python -m` itself calls
    return lambda: exec(compile(read(main.__file__), main.__file__, "exec", dont_inherit=True), main.__dict__)


this = sys.modules["__main__"]  # kept, because another module takes its name
program = run()
try:
    program()
except BaseException as error:
    if not isinstance(error, SystemExit):
        users_hook = sys.excepthook

        def shown(kind, value, traceback):
            while traceback and traceback.tb_frame.f_code.co_filename == __file__:
                traceback = traceback.tb_next
            users_hook(kind, value.with_traceback(traceback), traceback)

        sys.excepthook = shown
    raise
