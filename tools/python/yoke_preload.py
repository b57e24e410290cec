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

import _random

VERSION = 3
MAX_FDS = 253  # SCM_MAX_FD
PR_SET_PDEATHSIG = 1
# What does not survive a fork, if a module opens it while it is imported.
DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/", "/dev/accel", "/dev/infiniband/")
# How many open files are enough to receive a rank's descriptors and to give them their numbers.
MIN_FILES = 256
# A module that finds no rank while it is imported may set these for a process that is alone. Ranks keep their own.
OF_RANKS = {b"RANK", b"LOCAL_RANK", b"WORLD_SIZE", b"LOCAL_WORLD_SIZE", b"GROUP_RANK", b"GROUP_WORLD_SIZE", b"ROLE_RANK",
            b"ROLE_NAME", b"ROLE_WORLD_SIZE", b"MASTER_ADDR", b"MASTER_PORT"}


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


# ---- What modules change while they are imported -------------------------------------------------------------------------


class Output:
    """Keeps what modules print, because the first rank's standard error is known only once ranks start."""

    def __init__(self):
        # Some Pythons, such as conda's, have no os.memfd_create(), because they were built with an old C library.
        self.fd = ctypes.CDLL(None).memfd_create(b"yoke-preload", ctypes.c_uint(1))  # MFD_CLOEXEC
        for stream in (1, 2):
            os.dup2(self.fd, stream)

    def take(self):
        """Returns what was printed. What comes later is lost."""
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (AttributeError, ValueError, OSError):
                pass  # a module has closed it, or put something else in its place
        ctypes.CDLL(None).fflush(None)  # each rank would print what C libraries have in their buffers
        data = b""
        while block := os.pread(self.fd, 1 << 20, len(data)):
            data += block
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (1, 2):
            os.dup2(null, stream)
        for fd in (null, self.fd):
            os.close(fd)
        return data


def first_environment():
    """Returns the environment that exec gave to this interpreter, before Python and sitecustomize could change it."""
    try:
        with open("/proc/self/environ", "rb") as file:
            result = to_dict(file.read().split(b"\0"))
    except OSError:
        result = dict(os.environb)
    result.pop(b"YOKE_PRELOAD_FD", None)
    return result


def to_dict(variables):
    result = {}
    for variable in variables:
        name, equals, value = variable.partition(b"=")
        if equals:
            result.setdefault(name, value)
    return result


class Generators:
    """Finds out which generators of random numbers modules have seeded while they were imported. The states of generators
    that are fresh are taken right after the import of their modules; this is a finder of sys.meta_path for that."""

    @staticmethod
    def state_of_random(module):
        return module.getstate()[1]

    @staticmethod
    def state_of_numpy(module):
        _, key, position, *_ = module.get_state()
        return tuple(int(word) for word in key) + (position,)

    @staticmethod
    def state_of_torch(module):
        return module.default_generator.initial_seed()

    def __init__(self):
        self.readers = {"random": self.state_of_random, "numpy.random": self.state_of_numpy, "torch": self.state_of_torch}
        self.fresh = {}
        self.seeded = set()
        self.state_of_python = None
        for name in self.readers:
            if name in sys.modules:
                self.take(name)
        sys.meta_path.insert(0, self)

    def read(self, name):
        try:
            return self.readers[name](sys.modules[name])
        except Exception:  # another module of that name
            return None

    def take(self, name):
        self.fresh[name] = self.read(name)

    def find_spec(self, name, path=None, target=None):
        if name not in self.readers:
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if finder is not self and hasattr(finder, "find_spec") else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = Loader(spec.loader, lambda: self.take(name))
                return spec
        return None

    def finish(self):
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        self.seeded = {name for name in self.fresh if self.is_seeded(name)}
        if "random" in self.seeded:
            self.state_of_python = sys.modules["random"].getstate()

    def is_seeded(self, name):
        fresh, now = self.fresh[name], self.read(name)
        if fresh is None or now is None or name == "torch":
            return fresh is not None and fresh != now
        # The Mersenne twister makes 624 words at a time. A module that only drew numbers has left a state that follows the
        # fresh one: ranks with that would all draw the same numbers, which differ in each job.
        clone = _random.Random()
        clone.setstate(fresh)
        for _ in range(1000):
            if clone.getstate()[:-1] == now[:-1]:
                return False
            clone.getrandbits(32 * 624)
        return True

    def seed(self):
        """In a rank: seeds those that no module has seeded."""
        if self.state_of_python is not None:
            sys.modules["random"].setstate(self.state_of_python)  # Python seeds it after each fork
        if "numpy.random" in sys.modules and "numpy.random" not in self.seeded:
            sys.modules["numpy.random"].seed()
        if "torch" in sys.modules and "torch" not in self.seeded:  # of the CPU; those of GPUs begin with a constant
            sys.modules["torch"].default_generator.seed()


class Loader:
    """Loads a module as `loader` does, and calls `then`."""

    def __init__(self, loader, then):
        self.loader, self.then = loader, then

    def create_module(self, spec):
        return self.loader.create_module(spec) if hasattr(self.loader, "create_module") else None

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        self.then()


class Changes:
    """Notes what modules change in this process and exec would leave as it is, but a fork's preparations would undo."""

    def __init__(self):
        self.output = Output()
        self.began = first_environment()
        self.first_limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.generators = Generators()
        self.variables, self.limits, self.printed = {}, None, b""

    def finish(self):
        """Raises Refused if no rank could get its descriptors."""
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        if limits != self.first_limits:
            self.limits, hard = limits, limits[1]
            if 0 <= hard < MIN_FILES:
                raise Refused(f"a module has lowered the limit of open files to {hard} while it was imported")
            set_file_limit((hard, hard))
        now = dict(os.environb)
        self.variables = {name: now.get(name) for name in self.began.keys() | now.keys() if now.get(name) != self.began.get(name)}
        self.generators.finish()
        self.printed = self.output.take()

    def set_environment(self, variables):
        """Gives this process the rank's `variables`, and what modules have changed of those that are not the rank's alone."""
        wanted = to_dict(variables)
        for name, value in self.variables.items():
            if name in OF_RANKS or name.startswith(b"TORCHELASTIC_") or wanted.get(name) != self.began.get(name):
                continue
            if value is None:
                wanted.pop(name, None)
            else:
                wanted[name] = value
        for name in [name for name in os.environb if name not in wanted]:
            del os.environb[name]
        os.environb.update({name: value for name, value in wanted.items() if os.environb.get(name) != value})


def set_file_limit(limits):
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)  # -1 is no limit
    except (ValueError, OSError):
        pass  # the hard limit was lowered


def write_all(fd, data):
    try:
        while data:
            data = data[os.write(fd, data):]
    except OSError:
        pass  # nobody reads it


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


def become_rank(fds, changes):
    """Makes the changes that are made between fork and exec of another rank, and those of exec and of Python's start."""
    if "threading" in sys.modules:  # CPython below 3.12 keeps the number of the process that it was forked from
        sys.modules["threading"].main_thread()._set_native_id()
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
    write_all(2, changes.printed)
    if cpus:
        try:
            os.sched_setaffinity(0, cpus)
        except OSError:
            pass
    prefer_memory(memory_nodes)
    set_file_limit(changes.limits or limits)
    threads = os.environ.get("OMP_NUM_THREADS")
    changes.set_environment(environment)
    for name, fd, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        old = getattr(sys, name)
        if old is not None:
            setattr(sys, name, open_stream(fd, mode, old))
            setattr(sys, f"__{name}__", getattr(sys, name))
    changes.generators.seed()
    now = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    if "torch" in sys.modules and now.isdigit() and int(now) > 0 and now != threads:
        sys.modules["torch"].set_num_threads(int(now))  # OpenMP has read the variable already
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def serve(sock, changes):
    """Forks a rank for each message. Returns in a rank."""
    guardian = os.getppid()
    while True:
        message, fds, _, _ = socket.recv_fds(sock, 1, MAX_FDS, socket.MSG_CMSG_CLOEXEC)
        if not message:
            os._exit(0)
        rank = fork_rank(guardian)
        if rank == 0:
            sock.close()
            return become_rank(fds, changes)
        if rank > 0:
            changes.printed = b""  # once is enough
        for fd in fds:
            os.close(fd)
        sock.send(struct.pack("=i", rank))


# ---- The program ------------------------------------------------------------------------------------------------------


def absolute(path):
    """The path as Python makes it absolute: ".." after a symbolic link stays there for the kernel."""
    return os.path.join(os.getcwd(), path)


def make_main(path):
    """Puts a module __main__ as of `python PATH` in the place of this one."""
    main = types.ModuleType("__main__")
    main.__builtins__ = sys.modules["builtins"]
    if path:
        main.__file__ = absolute(path)
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


def load(modules, kind, name, sock, changes):
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
        if kind == "module" and not named:
            raise Refused(f"with -m {name} what to load must be named: --preload-modules torch")
        if not own + named:
            raise Refused(f"{name} imports nothing at its beginning; name what to load: --preload-modules torch")
        import_all(own + named)
        check_that_it_can_fork(sock.fileno())
        changes.finish()
    except Refused as refusal:
        sock.send(struct.pack("=Ii", VERSION, 0) + str(refusal).encode(errors="replace")[:2000])
        os._exit(0)
    gc.collect()
    gc.freeze()  # what is there now is not looked at again, so its pages stay shared
    sock.send(struct.pack("=Ii", VERSION, 1))


def run():
    loader, modules, kind, name = sys.argv[0], sys.argv[1].split(",") if sys.argv[1] else [], sys.argv[2], sys.argv[3]
    sock, changes = guardians_socket(), Changes()
    sys.argv = (["-m"] if kind == "module" else [name]) + sys.argv[4:]
    if hasattr(sys, "orig_argv"):
        at = sys.orig_argv.index(loader)
        sys.orig_argv[at:] = (["-m", name] if kind == "module" else [name]) + sys.argv[1:]
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        sys.path[0] = os.getcwd() if kind == "module" else os.path.dirname(os.path.realpath(name))
    main = make_main(name if kind == "script" else None)
    load(modules, kind, name, sock, changes)
    serve(sock, changes)
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
