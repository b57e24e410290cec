// yoke/base/toml_text.h -- refuses texts that the parser of TOML cannot bear.
#pragma once

#include <string>
#include <string_view>

namespace yoke {

/// toml++ recurses into each part of a key with dots, so a line with very many of them would exhaust the stack. `name`
/// is the file's. Errors  kDataLoss: a line has more than 4,096 bytes.
void check_toml_text(std::string_view text, const std::string& name);

}  // namespace yoke
