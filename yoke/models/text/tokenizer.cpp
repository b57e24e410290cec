#include "yoke/models/text/tokenizer.h"

#include "yoke/base/error.h"

namespace yoke::models {

std::vector<int64_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<int64_t> tokens;
  tokens.reserve(text.size());
  for (const char byte : text) tokens.push_back(static_cast<unsigned char>(byte));
  return tokens;
}

std::string ByteTokenizer::decode(std::span<const int64_t> tokens) const {
  std::string text;
  text.reserve(tokens.size());
  for (const int64_t token : tokens) {
    if (token < 0 || token > 255)
      throw Error(ErrorCode::kInvalidArgument, "{} is not a byte; tokens are 0 to 255", token);
    text += static_cast<char>(token);
  }
  return text;
}

std::optional<int64_t> ByteTokenizer::token(std::string_view text) const {
  if (text.size() != 1) return std::nullopt;
  return static_cast<unsigned char>(text.front());
}

}  // namespace yoke::models
