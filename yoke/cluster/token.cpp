#include "yoke/cluster/token.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/host.h"
#include "yoke/base/text.h"
#include "yoke/contract/variables.h"

namespace yoke::cluster {
namespace {

constexpr size_t kRandomBytes = 32;
constexpr size_t kMinTokenBytes = 16;
constexpr const char* kWhatElse =
    "for the secret that the nodes of your jobs share (set YOKE_JOB_TOKEN to the same secret on all nodes instead, "
    "such "
    "as the output of `openssl rand -hex 32`)";

/// Reads the token from `path`. Returns nullopt if the file does not exist.
std::optional<std::string> read_token(const std::filesystem::path& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));  // a FIFO has no text
  if (!fd && errno == ENOENT) return std::nullopt;
  if (!fd) {
    throw system_error(errno, fmt::format("reading the token that your jobs share, {} (check that HOME is your own "
                                          "folder, or set YOKE_JOB_TOKEN on all nodes)",
                                          path.string()));
  }
  struct stat status {};
  fstat(fd.value(), &status);
  if (status.st_uid != geteuid() || (status.st_mode & 077) != 0) {
    throw Error(
        ErrorCode::kFailedPrecondition,
        "{} must belong to you and be readable by nobody else: use chmod 600, or delete it and yoke makes a new one",
        path.string());
  }
  char text[256];
  const auto count = read(fd.value(), text, sizeof text);
  std::string token(text, static_cast<size_t>(std::max<ssize_t>(0, count)));
  while (token.ends_with('\n')) token.pop_back();
  if (token.size() >= kMinTokenBytes) return token;
  throw Error(ErrorCode::kFailedPrecondition,
              "{} does not contain a token of at least 16 bytes; delete it, and yoke makes a new one", path.string());
}

/// Several processes, even on different hosts, may call this at the same time: link() succeeds for only one of them.
void write_token(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  if (error)
    throw system_error(error.value(), fmt::format("making the folder {} {}", path.parent_path().string(), kWhatElse));
  auto own = path.string() + ".XXXXXX";
  const UniqueFd fd(mkostemp(own.data(), O_CLOEXEC));  // mkostemp creates it with mode 600
  if (!fd) throw system_error(errno, fmt::format("making the file {} {}", path.string(), kWhatElse));
  int error_number = 0;
  try {
    const auto token = new_token() + "\n";
    write_all(fd.value(), token, own);
    if (link(own.c_str(), path.c_str()) != 0) error_number = errno;
  } catch (...) {
    unlink(own.c_str());
    throw;
  }
  unlink(own.c_str());
  if (error_number != 0 && error_number != EEXIST) {
    throw system_error(error_number, fmt::format("making the file {} {}", path.string(), kWhatElse));
  }
}

}  // namespace

std::string new_token() { return random_digits(2 * kRandomBytes); }

std::filesystem::path token_file(const Environment& environment) {
  if (const auto config = user_folder(UserFolder::kConfig, environment)) return *config / "yoke" / "token";
  throw Error(
      ErrorCode::kFailedPrecondition,
      "the nodes of a job need a common secret, but HOME is not set; set YOKE_JOB_TOKEN to the same value on all");
}

std::string job_token(const Environment& environment) {
  if (const auto token = environment.find(variable::kJobToken); token && !token->empty()) {
    if (token->size() >= kMinTokenBytes) return *token;
    throw Error(ErrorCode::kFailedPrecondition, "YOKE_JOB_TOKEN has {} byte{}; it needs at least {}", token->size(),
                token->size() == 1 ? "" : "s", kMinTokenBytes);
  }
  const auto path = token_file(environment);
  if (const auto token = read_token(path)) return *token;
  write_token(path);
  if (const auto token = read_token(path)) return *token;
  throw Error(ErrorCode::kUnavailable, "{} was removed while yoke made it; run the command again", path.string());
}

}  // namespace yoke::cluster
