// yoke/base/json_text.h -- JSON as text. `Json` is one of nlohmann's types. U+FFFD replaces bytes that are not UTF-8,
// such as those of file names and arguments, because JSON has none and dump() alone would throw.
#pragma once

#include <string>

namespace yoke {

/// Returns one line, without a line feed.
template <class Json>
std::string json_line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Returns lines with an indent of two spaces, each with its line feed.
template <class Json>
std::string json_page(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

/// Returns `text` as a string that every dump() takes.
template <class Json>
Json json_string(const std::string& text) {
  return Json::parse(json_line(Json(text)));
}

}  // namespace yoke
