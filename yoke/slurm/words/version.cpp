#include "yoke/slurm/words/version.h"

#include <fmt/format.h>

#include "yoke/base/environment.h"
#include "yoke/base/text.h"

namespace yoke::slurm {

std::optional<Version> parse_version(std::string_view text) {
  const auto words = words_of(text.substr(0, text.find('\n')));
  if (words.empty()) return std::nullopt;
  const auto word = words.back().substr(0, words.back().find('-'));
  const auto parts = split(word, '.');
  if (parts.size() < 2 || parts.size() > 3) return std::nullopt;
  const auto year = parse_int(parts[0]), month = parse_int(parts[1]);
  const auto patch = parts.size() == 3 ? parse_int(parts[2]) : 0;
  if (!year || !month || !patch || *year < 20 || *year > 99 || *month < 1 || *month > 12 || *patch < 0 ||
      *patch > 999) {
    return std::nullopt;
  }
  return Version{static_cast<int>(*year), static_cast<int>(*month), static_cast<int>(*patch)};
}

std::string to_text(const Version& version) { return fmt::format("{:02}.{:02}", version.year, version.month); }

}  // namespace yoke::slurm
