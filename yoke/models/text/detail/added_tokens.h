// yoke/models/text/detail/added_tokens.h -- texts that are one token wherever they stand, such as "[MASK]". Internal.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace yoke::models::detail {

class AddedTokens {
 public:
  AddedTokens() = default;
  explicit AddedTokens(std::map<std::string, int64_t> tokens) : tokens_(std::move(tokens)) {
    tokens_.erase("");
    for (const auto& [name, token] : tokens_) first_bytes_ += name.front();
  }

  /// Calls `on_token` for each added token in the text and `on_text` for what is between them, in order. Of the tokens
  /// that begin at one place, the longest is taken; empty parts are left out.
  void divide(std::string_view text, const std::function<void(int64_t)>& on_token,
              const std::function<void(std::string_view)>& on_text) const {
    size_t begin = 0;
    for (size_t at = text.find_first_of(first_bytes_); at != std::string_view::npos;
         at = text.find_first_of(first_bytes_, at)) {
      const std::pair<const std::string, int64_t>* longest = nullptr;
      for (const auto& entry : tokens_) {
        if (text.substr(at).starts_with(entry.first) &&
            (longest == nullptr || entry.first.size() > longest->first.size())) {
          longest = &entry;
        }
      }
      if (longest == nullptr) {
        ++at;
        continue;
      }
      if (at > begin) on_text(text.substr(begin, at - begin));
      on_token(longest->second);
      begin = at += longest->first.size();
    }
    if (begin < text.size()) on_text(text.substr(begin));
  }

 private:
  std::map<std::string, int64_t> tokens_;
  std::string first_bytes_;
};

}  // namespace yoke::models::detail
