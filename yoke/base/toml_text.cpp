#include "yoke/base/toml_text.h"

#include "yoke/base/text.h"

namespace yoke {

void check_toml_text(std::string_view text, const std::string& name) {
  constexpr size_t kMostLineBytes = 4096;
  const auto lines = lines_of(text);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].size() <= kMostLineBytes) continue;
    throw LineError(ErrorCode::kDataLoss, name, i + 1, fmt::format("the line is longer than {} bytes", kMostLineBytes));
  }
}

}  // namespace yoke
