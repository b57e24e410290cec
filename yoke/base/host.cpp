#include "yoke/base/host.h"

#include <unistd.h>

#include <array>

namespace yoke {

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
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

}  // namespace yoke
