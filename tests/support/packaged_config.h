// tests/support/packaged_config.h -- the settings in /etc/yoke/config.toml of the package, which are comments there.
#pragma once

#include <string>

#include "yoke/base/file.h"
#include "yoke/base/text.h"

namespace yoke::test {

/// kDefaults: only the settings that hold without the file. kAll: also those whose line says "for example".
enum class Settings { kDefaults, kAll };

inline std::string packaged_config(Settings which) {
  const auto text = read_file(YOKE_PACKAGED_CONFIG);
  std::string result;
  for (const auto line : lines_of(text)) {
    const bool is_setting = line.size() > 1 && line[0] == '#' && line[1] != ' ';
    if (!is_setting) continue;
    if (which == Settings::kDefaults && line.find("# for example") != line.npos) continue;
    result += line.substr(1);
    result += '\n';
  }
  return result;
}

}  // namespace yoke::test
