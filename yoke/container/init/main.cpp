// container-init: the first program in a container that `yoke container run` starts.
//
// It tells the keeper of the claim what it sees (device nodes, variables), waits for its consent, starts the user's
// program, passes signals on to it, and ends with its exit status. It is linked statically and uses nothing of the
// image, so it runs in every image. As the first process of the PID namespace, its end is the end of all others.
//
//   container-init PROGRAM [ARG...]
//
// `yoke container exec` starts another program with it, which gets the variables of the first one:
//
//   container-init --exec PROGRAM [ARG...]
//
// Where its environment has YOKE_CONTAINER_SET_NAME, the program gets NAME instead.
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "yoke/contract/variables.h"

namespace {

constexpr const char* kSocket = "/opt/yoke/run/keeper.sock";
constexpr const char* kBin = "/opt/yoke/bin";
using yoke::variable::kContainerSetPrefix;
constexpr const char* kCommand = "/opt/yoke/bin/yoke";
constexpr int kRefused = 69;
constexpr int kNotExecutable = 126, kNoProgram = 127;

/// A text of limited length. What does not fit is left out.
struct Text {
  char bytes[16384];
  size_t size;

  void add(const char* more) {
    const size_t length = strlen(more);
    if (size + length >= sizeof bytes) return;
    memcpy(bytes + size, more, length + 1);
    size += length;
  }
};

int told_keeper = -1;  ///< The connection to the keeper, once it has given its consent.

/// Tells the keeper that the program has begun ("started"), or why it has not ("failed 127 cannot start ...").
void tell_keeper(const char* text) {
  if (told_keeper >= 0) send(told_keeper, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT);
}

[[noreturn]] void refuse(const char* what, const char* why) {
  char text[1024];
  snprintf(text, sizeof text, "failed %d %s%s", kRefused, what, why);
  tell_keeper(text);
  dprintf(STDERR_FILENO, "yoke container run: %s%s\n", what, why);
  _exit(kRefused);
}

/// "node /dev/nvidia0\n", and why it does not open if it does not.
void add_node(Text& report, const char* path) {
  struct stat info;
  if (stat(path, &info) != 0 || !S_ISCHR(info.st_mode)) return;
  report.add("node ");
  report.add(path);
  const int fd = open(path, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
  if (fd >= 0) {
    close(fd);
  } else if (errno == EACCES || errno == EPERM) {  // other failures are the driver's affair
    report.add(" ");
    report.add(strerror(errno));
  }
  report.add("\n");
}

void add_nodes(Text& report, const char* folder, const char* prefix) {
  DIR* const entries = opendir(folder);
  if (entries == nullptr) return;
  while (const dirent* const entry = readdir(entries)) {
    if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0) continue;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    add_node(report, path);
  }
  closedir(entries);
}

void add_variable(Text& report, const char* name) {
  const char* const value = getenv(name);
  if (value == nullptr) return;
  report.add("variable ");
  report.add(name);
  report.add("=");
  report.add(value);
  report.add("\n");
}

int meet() {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  strcpy(address.sun_path, kSocket);
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    refuse("no process keeps the claim of this container; start it by `yoke container run`: ", strerror(errno));
  }
  return fd;
}

int descriptor_of_signals() {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, nullptr);
  return signalfd(-1, &all, SFD_CLOEXEC);
}

/// Waits for the keeper's word. The program starts only after "go".
void wait_for_consent(int keeper, int signals) {
  pollfd news[] = {{keeper, POLLIN, 0}, {signals, POLLIN, 0}};
  for (;;) {
    if (poll(news, 2, -1) < 0) continue;
    if (news[1].revents != 0) {
      signalfd_siginfo info;
      const bool is_read = read(signals, &info, sizeof info) == sizeof info;
      const auto number = static_cast<int>(info.ssi_signo);
      if (is_read && (number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT))
        _exit(128 + number);
    }
    if (news[0].revents == 0) continue;
    char word[8192];
    const ssize_t count = recv(keeper, word, sizeof word - 1, 0);
    if (count <= 0) refuse("the process that keeps the claim has ended", "");
    word[count] = '\0';
    if (strcmp(word, "go") == 0) return;
    if (strncmp(word, "no ", 3) == 0) refuse(word + 3, "");
  }
}

/// Puts yoke's command behind all other folders of PATH, so that the image's own comes first.
void extend_path() {
  const char* const path = getenv("PATH");
  char extended[16384];
  snprintf(extended, sizeof extended, "%s:%s",
           path != nullptr && *path != '\0' ? path : "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
           kBin);
  setenv("PATH", extended, 1);
}

/// Takes the variables with the prefix out of the environment. Returns them without it, as a list that ends with
/// nullptr.
char** take_set_variables() {
  size_t count = 0, length = strlen(kContainerSetPrefix);
  for (char** one = environ; *one != nullptr; ++one) ++count;
  auto** const taken = static_cast<char**>(calloc(count + 1, sizeof(char*)));
  if (taken == nullptr) refuse("there is no memory", "");
  char** to = environ;
  count = 0;
  for (char** one = environ; *one != nullptr; ++one) {
    if (strncmp(*one, kContainerSetPrefix, length) == 0) {
      taken[count++] = *one + length;
    } else {
      *to++ = *one;
    }
  }
  *to = nullptr;
  return taken;
}

void set_variables(char** variables) {
  for (; *variables != nullptr; ++variables) putenv(*variables);
}

/// Finds the first file of this name in the folders of PATH to which this process has access of a kind (R_OK, X_OK).
bool find_in_path(const char* name, int kind, char (&file)[PATH_MAX]) {
  char path[16384];
  snprintf(path, sizeof path, "%s", getenv("PATH"));
  for (char* folder = strtok(path, ":"); folder != nullptr; folder = strtok(nullptr, ":")) {
    snprintf(file, sizeof file, "%s/%s", folder, name);
    if (access(file, kind) == 0) return true;
  }
  return false;
}

/// Whether execvp() would start yoke's own command for `name`.
bool is_our_command(const char* name) {
  char file[PATH_MAX];
  return strcmp(name, "yoke") == 0 && find_in_path(name, X_OK, file) && strcmp(file, kCommand) == 0;
}

bool runs(const char* program) {
  const pid_t child = fork();
  if (child == 0) {
    const int null = open("/dev/null", O_RDWR);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    execl(program, program, "--version", nullptr);
    _exit(1);
  }
  int status = 1;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status == 0;
}

/// The version of the image's C library, such as "2.31"; empty if it has none that is known.
void find_libc_version(char* version, size_t size) {
  version[0] = '\0';
  for (const char* path : {"/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/usr/lib64/libc.so.6",
                           "/lib/aarch64-linux-gnu/libc.so.6", "/lib/libc.so.6"}) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    static char bytes[4 << 20];
    size_t total = 0;
    for (ssize_t count = 0; (count = read(fd, bytes + total, sizeof bytes - total)) > 0;)
      total += static_cast<size_t>(count);
    close(fd);
    constexpr char kMark[] = "release version ";
    auto* const found = static_cast<char*>(memmem(bytes, total, kMark, sizeof kMark - 1));
    if (found == nullptr) continue;
    const char* const begin = found + sizeof kMark - 1;
    size_t length = 0;
    while (length + 1 < size && (begin[length] == '.' || (begin[length] >= '0' && begin[length] <= '9'))) ++length;
    while (length > 0 && begin[length - 1] == '.') --length;
    memcpy(version, begin, length);
    version[length] = '\0';
    return;
  }
}

void check_our_command(const char* name) {
  if (!is_our_command(name) || runs(kCommand)) return;
  char version[16], why[256];
  find_libc_version(version, sizeof version);
  if (version[0] == '\0') {
    snprintf(why, sizeof why, "the image has no C library of GNU");
  } else {
    snprintf(why, sizeof why,
             "the image has version %s of the C library, and yoke of this machine needs " YOKE_LIBC " or later",
             version);
  }
  refuse("yoke of this machine does not run in this image; install yoke in the image: ", why);
}

/// Opens the program that execvp() would start; -1 if there is none.
int open_program(const char* name) {
  char file[PATH_MAX];
  if (strchr(name, '/') == nullptr) return find_in_path(name, R_OK, file) ? open(file, O_RDONLY | O_CLOEXEC) : -1;
  return open(name, O_RDONLY | O_CLOEXEC);
}

/// Says why a program cannot be executed. The kernel says that there is no such file if what it needs is missing, too.
void explain(const char* name, int error, char* text, size_t size) {
  const char* why = strerror(error);
  char line[PATH_MAX] = "", more[PATH_MAX + 64];
  const int fd = error == ENOENT ? open_program(name) : -1;
  const ssize_t count = fd >= 0 ? read(fd, line, sizeof line - 1) : 0;
  if (fd >= 0) close(fd);
  if (count > 4 && memcmp(line, "\177ELF", 4) == 0) {
    why = "the image has no loader for it, so it was built for another system, such as one with another C library";
  } else if (count > 2 && memcmp(line, "#!", 2) == 0) {
    line[strcspn(line, "\n")] = '\0';
    char* const interpreter = line + 2 + strspn(line + 2, " \t");
    if (strchr(line, '\r') != nullptr) {
      why = "its lines end with carriage returns, as on Windows; sed -i 's/\\r$//' FILE removes them";
    } else {
      interpreter[strcspn(interpreter, " \t")] = '\0';
      snprintf(more, sizeof more, "the image has no %s, which its first line names", interpreter);
      why = more;
    }
  }
  snprintf(text, size, "cannot start %s in the container: %s", name, why);
}

[[noreturn]] void end_without(const char* action, const char* name, int error) {
  char text[1024];
  explain(name, error, text, sizeof text);
  dprintf(STDERR_FILENO, "yoke container %s: %s\n", action, text);
  _exit(error == ENOENT ? kNoProgram : kNotExecutable);
}

/// Starts the program and tells the keeper whether it could be executed.
pid_t start(char** argv, bool has_terminal) {
  int failure[2];
  if (pipe2(failure, O_CLOEXEC) != 0) return -1;
  const pid_t child = fork();
  if (child != 0) {
    close(failure[1]);
    char text[1024] = "started";
    int error = 0;
    if (child > 0 && read(failure[0], &error, sizeof error) == sizeof error) {
      const int length = snprintf(text, sizeof text, "failed %d ", error == ENOENT ? kNoProgram : kNotExecutable);
      explain(argv[0], error, text + length, sizeof text - static_cast<size_t>(length));
    }
    close(failure[0]);
    if (child > 0) tell_keeper(text);
    return child;
  }
  // On a terminal, the program stays in the foreground group, which gets Ctrl-C. Otherwise it leads a group of its own,
  // to which signals are passed on.
  if (!has_terminal) setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execvp(argv[0], argv);
  const int error = errno;
  [[maybe_unused]] const auto count = write(failure[1], &error, sizeof error);
  end_without("run", argv[0], error);
}

void signal_program(pid_t program, int number, bool has_terminal) {
  if (has_terminal || kill(-program, number) != 0) kill(program, number);
}

/// Reaps what has ended. Returns the program's exit status once it has ended, and -1 before.
int reap(pid_t program) {
  int result = -1, status = 0;
  for (pid_t child = 0; (child = waitpid(-1, &status, WNOHANG)) > 0;) {
    if (child == program) result = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  return result;
}

int watch(pid_t program, int keeper, int signals, bool has_terminal) {
  for (;;) {
    pollfd news[] = {{keeper, POLLIN, 0}, {signals, POLLIN, 0}};
    poll(news, 2, -1);
    if (news[1].revents != 0) {
      signalfd_siginfo info;
      if (read(signals, &info, sizeof info) == sizeof info && info.ssi_signo != SIGCHLD) {
        const bool is_from_terminal = has_terminal && info.ssi_code > 0;  // the program has it already
        if (!is_from_terminal) signal_program(program, static_cast<int>(info.ssi_signo), has_terminal);
      }
    }
    if (news[0].revents != 0) {
      char word[64];
      const ssize_t count = recv(keeper, word, sizeof word - 1, MSG_DONTWAIT);
      if (count > 0) {
        word[count] = '\0';
        const int number = strncmp(word, "signal ", 7) == 0 ? atoi(word + 7) : 0;
        if (number == SIGKILL) return 128 + SIGKILL;
        if (number > 0) signal_program(program, number, has_terminal);
      } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
        // Its devices may be given to others from now on, so there is no time to end well.
        dprintf(STDERR_FILENO,
                "yoke container run: the process that keeps the claim was ended, so the program is too\n");
        return 128 + SIGKILL;
      }
    }
    if (const int status = reap(program); status >= 0) return status;
  }
}

/// Takes the variables of the program that runs in this container: it has those that were set only for it.
void take_its_variables() {
  char path[64] = "/proc/1/environ";
  if (FILE* const children = fopen("/proc/1/task/1/children", "re")) {
    long child = 0;
    if (fscanf(children, "%ld", &child) == 1) snprintf(path, sizeof path, "/proc/%ld/environ", child);
    fclose(children);
  }
  FILE* const file = fopen(path, "re");
  if (file == nullptr) return;
  const char* const terminal = getenv("TERM");  // of whoever looks
  clearenv();
  char* variable = nullptr;
  for (size_t size = 0; getdelim(&variable, &size, '\0', file) > 0;) putenv(strdup(variable));
  fclose(file);
  if (terminal != nullptr) setenv("TERM", terminal, 1);
}

/// What `yoke container exec` starts: words[0] is after "--exec".
[[noreturn]] void exec_program(char** words) {
  char** const variables = take_set_variables();
  take_its_variables();
  set_variables(variables);
  execvp(words[0], words);
  end_without("exec", words[0], errno);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2 && strcmp(argv[1], "--exec") == 0) exec_program(argv + 2);
  if (argc < 2) refuse("container-init needs a program", "");
  const int signals = descriptor_of_signals();
  const int keeper = meet();
  static Text report;
  add_nodes(report, "/dev", "nvidia");
  add_nodes(report, "/dev", "kfd");
  add_nodes(report, "/dev/dri", "renderD");
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"}) add_variable(report, name);
  report.add("end\n");
  if (send(keeper, report.bytes, report.size, MSG_NOSIGNAL) < 0) refuse("the keeper of the claim is gone", "");
  wait_for_consent(keeper, signals);
  told_keeper = keeper;
  set_variables(take_set_variables());
  extend_path();
  check_our_command(argv[1]);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const bool has_terminal = isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0;
  const pid_t program = start(argv + 1, has_terminal);
  if (program < 0) refuse("cannot start a process: ", strerror(errno));
  const int status = watch(program, keeper, signals, has_terminal);
  if (getpid() == 1) kill(-1, SIGKILL);
  return status;
}
