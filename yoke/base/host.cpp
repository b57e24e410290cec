#include "yoke/base/host.h"

#include <netdb.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "yoke/base/error.h"

namespace yoke {

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

std::string address_text(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST] = "";
  getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  const std::string_view mapped = "::ffff:";
  return std::string_view(text).starts_with(mapped) ? text + mapped.size() : text;
}

std::optional<std::filesystem::path> user_folder(UserFolder folder, const Environment& environment) {
  struct Row {
    const char* variable;
    const char* below_home;
  };
  static constexpr std::array<Row, 3> kRows = {
      {{"XDG_CONFIG_HOME", ".config"}, {"XDG_DATA_HOME", ".local/share"}, {"XDG_STATE_HOME", ".local/state"}}};
  const auto& row = kRows[static_cast<size_t>(folder)];
  const std::filesystem::path chosen = environment.value_or(row.variable, "");
  if (chosen.is_absolute()) return chosen;
  const std::filesystem::path home = environment.value_or("HOME", "");
  return home.is_absolute() ? std::optional(home / row.below_home) : std::nullopt;
}

void make_private_folder(const std::filesystem::path& folder, std::string_view why) {
  std::error_code error;
  std::filesystem::create_directories(folder.parent_path(), error);
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    throw system_error(errno, "making the folder " + folder.string());
  }
  struct stat status {};
  if (lstat(folder.c_str(), &status) != 0) throw system_error(errno, "reading " + folder.string());
  if (!S_ISDIR(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & 022) != 0) {
    throw Error(
        ErrorCode::kPermissionDenied,
        "{} must be a folder of yours that nobody else can write{}; remove it, or `chmod go-w` it if it is yours",
        folder.string(), why);
  }
}

}  // namespace yoke
