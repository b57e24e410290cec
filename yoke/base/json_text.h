// yoke/base/json_text.h -- JSON as text. `Json` is one of nlohmann's types. U+FFFD replaces bytes that are not UTF-8,
// such as those of file names and arguments, because JSON has none and dump() alone would throw. Characters that change
// how a terminal or an editor shows a line, and those that nobody sees, are escaped as \uXXXX.
#pragma once

#include <string>

namespace yoke {

/// Returns the JSON `text` with \uXXXX for the characters that printable() (text.h) replaces, and for joiners of no
/// width. REQUIRES: `text` is UTF-8, and such characters are in strings alone.
std::string with_visible_escapes(std::string text);

/// Returns one line, without a line feed.
template <class Json>
std::string json_line(const Json& json) {
  return with_visible_escapes(json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

/// Returns lines with an indent of two spaces, each with its line feed.
template <class Json>
std::string json_page(const Json& json) {
  return with_visible_escapes(json.dump(2, ' ', false, Json::error_handler_t::replace)) + '\n';
}

/// Returns `text` as a string that every dump() takes.
template <class Json>
Json json_string(const std::string& text) {
  return Json::parse(json_line(Json(text)));
}

}  // namespace yoke
