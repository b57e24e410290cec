// yoke/base/process.h -- finding a program, starting a process, and passing descriptors to another process or keeping
// them from it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/base/file.h"

namespace yoke {

/// Whether `path` is a regular file that this process may execute.
bool is_program(const std::filesystem::path& path);

/// Finds the file that execvp() runs for `name`.
///
/// A name with a slash is a path already and is returned unchanged, whether or not the file exists. Any other name is
/// looked up in the folders of PATH (/bin and /usr/bin if PATH is not set); the result is the first file that
/// is_program() accepts. As in a shell, a relative folder is below the working directory, and an empty one is the
/// working directory.
/// Returns  nullopt if no folder of PATH has such a program.
std::optional<std::filesystem::path> find_program(std::string_view name, const Environment& environment);

/// Like find_program(), for a program that yoke itself chooses, such as a debugger. Skips relative folders of PATH,
/// because the working directory may belong to a different user.
std::optional<std::filesystem::path> find_tool(std::string_view name, const Environment& environment);

/// Returns the exit status that shells show for a status of waitpid(): the program's own, or 128 plus the number of the
/// signal that ended it.
int shell_status(int wait_status);

/// Waits until the child `pid` has ended, and returns its shell_status(). Returns 127 if there is no such child.
int wait_for_child(pid_t pid);

/// Returns a descriptor of the process `pid`, which is readable once the process has ended. Empty, with errno, if there
/// is no such process.
UniqueFd open_process(int64_t pid);

/// Converts `words` to the argument of an exec function: pointers into `words`, followed by a null pointer.
std::vector<char*> exec_pointers(const std::vector<std::string>& words);

/// Special values for a child's standard stream. Any other value is a descriptor of the caller.
inline constexpr int kInheritedStream = -1, kNullStream = -2;  // kNullStream: /dev/null

enum class BlockedSignals { kAsInherited, kNone, kAll };

struct SpawnOptions {
  /// The program argv[0] is found as find_program() does with the PATH of this process. No shell is involved.
  std::vector<std::string> argv;
  /// All variables as "NAME=value"; nullopt: the environment of this process.
  std::optional<std::vector<std::string>> environment = {};
  int in = kInheritedStream, out = kInheritedStream, err = kInheritedStream;
  /// Descriptors that the program keeps under the same numbers. All others must be close-on-exec.
  std::vector<int> inherited_fds = {};
  bool new_session = false;
  /// The process group that the child joins; 0: a new group, led by the child; nullopt: the caller's group.
  std::optional<pid_t> process_group = {};
  int death_signal = 0;  ///< Sent to the child when its parent (the calling thread) ends; 0: none.
  BlockedSignals blocked_signals = BlockedSignals::kAsInherited;
  bool as_sibling = false;  ///< The child's parent is the parent of the caller (CLONE_PARENT).
  /// `before_exec` is called in the child right before exec. `exec_failed` is called with errno if exec fails. Both may
  /// only do what signal-safety(7) allows.
  std::function<void()> before_exec = {};
  std::function<void(int error_number)> exec_failed = {};
};

/// Starts a program. No signal handler of this process runs in the child. The child's exit status is 127 if there is no
/// such program, and 126 if it cannot be executed.
/// Returns  the child's pid, or -1 with errno, as fork() does.
/// REQUIRES: `in`, `out` and `err` are above 2 or are the standard streams themselves.
pid_t spawn(const SpawnOptions& options);

/// The most descriptors that one message can carry (SCM_MAX_FD of the kernel).
inline constexpr size_t kMaxMessageFds = 253;

/// Sends `bytes` and `fds` as one message over a Unix socket, without SIGPIPE.
///
/// The kernel limits the descriptors that a user's processes have sent and not yet received (ETOOMANYREFS in unix(7)).
/// At this limit the function retries for up to 10 s, because receivers usually take them within milliseconds.
/// Returns  false with errno if the message was not sent.
bool send_with_fds(int socket, std::span<const std::byte> bytes, std::span<const int> fds);

/// Receives one message: stores its bytes in `bytes`, and appends its descriptors, made close-on-exec, to `fds`. Blocks
/// until a message arrives, unless `flags` has MSG_DONTWAIT. What a process has sent arrives also if it has ended
/// without reading all that was sent to it. Returns  the number of bytes; 0 at the end of file; -1 with errno.
ssize_t receive_with_fds(int socket, std::span<std::byte> bytes, std::vector<UniqueFd>& fds, int flags = 0);

/// Creates a memory file with `text`, for text too long for a message. Errors  kUnavailable: no memory or descriptors.
UniqueFd to_descriptor(std::string_view text);
/// Reads the whole text of a file made by to_descriptor(), regardless of its file position.
std::string text_of(const UniqueFd& descriptor);

/// Both ends of a close-on-exec connection that preserves message boundaries (SOCK_SEQPACKET).
struct SocketPair {
  UniqueFd near, far;
};
/// Errors  kUnavailable: out of descriptors.
SocketPair make_socket_pair();

/// Closes the descriptor `first` and all above it. Does only what signal-safety(7) allows.
void close_from(int first);

/// Raises this process's limit of open files as far as it may.
void raise_file_limit();

/// Closes all descriptors except `keep` and the standard streams. An inherited write end of another process's pipe
/// would hide the end of file from the pipe's reader until this process ends.
void close_all_except(std::vector<int> keep);

}  // namespace yoke
