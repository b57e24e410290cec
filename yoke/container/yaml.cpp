#include "yoke/container/detail/yaml.h"

#include <string>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke::container {
namespace {

using Json = nlohmann::json;

struct YamlLine {
  size_t number = 0, indent = 0;
  std::string text;  ///< Without indentation.
};

std::string_view without_spaces_at_end(std::string_view text) {
  while (!text.empty() && (text.back() == ' ' || text.back() == '\r' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

class YamlReader {
 public:
  explicit YamlReader(std::string_view text) {
    size_t number = 0;
    for (const auto whole : lines_of(text)) {
      ++number;
      auto line = without_spaces_at_end(whole);
      const auto indent = line.find_first_not_of(' ');
      if (indent == line.npos || line[indent] == '#' || line == "---") continue;
      lines_.push_back({number, indent, std::string(line.substr(indent))});
    }
  }

  Json read() {
    auto result = lines_.empty() ? Json() : block(lines_[0].indent, 0);
    if (next_ < lines_.size()) refuse("this line does not belong to what is above it");
    return result;
  }

 private:
  [[noreturn]] void refuse(const char* why) const {
    const auto number = next_ < lines_.size() ? lines_[next_].number : 0;
    throw Error(ErrorCode::kDataLoss, "line {}: {}", number, why);
  }

  bool is_item(size_t at) const { return lines_[at].text == "-" || lines_[at].text.starts_with("- "); }

  /// Reads the lines that have this indentation, or more.
  Json block(size_t indent, int depth) {
    if (depth > 32) refuse("the nesting is too deep");
    return is_item(next_) ? sequence(indent, depth) : mapping(indent, depth);
  }

  Json sequence(size_t indent, int depth) {
    auto result = Json::array();
    while (next_ < lines_.size() && lines_[next_].indent == indent && is_item(next_)) {
      auto& line = lines_[next_];
      const auto begin = line.text.find_first_not_of(' ', 1);
      if (begin == line.text.npos) {  // the item is below
        ++next_;
        const bool has_item = next_ < lines_.size() && lines_[next_].indent > indent;
        result.push_back(has_item ? block(lines_[next_].indent, depth + 1) : Json());
        continue;
      }
      line.text.erase(0, begin);
      line.indent += begin;
      const bool nests = colon_of(line.text) != line.text.npos || is_item(next_);
      result.push_back(nests ? block(line.indent, depth + 1) : scalar(lines_[next_++].text));
    }
    return result;
  }

  Json mapping(size_t indent, int depth) {
    auto result = Json::object();
    while (next_ < lines_.size() && lines_[next_].indent == indent && !is_item(next_)) {
      const auto text = lines_[next_].text;
      const auto colon = colon_of(text);
      if (colon == text.npos) refuse("a key and a colon are expected");
      const auto key = scalar(text.substr(0, colon)).get<std::string>();
      const auto begin = text.find_first_not_of(' ', colon + 1);
      ++next_;
      if (begin != text.npos) {
        result[key] = scalar(text.substr(begin));
      } else if (next_ < lines_.size() &&
                 (lines_[next_].indent > indent || (lines_[next_].indent == indent && is_item(next_)))) {
        result[key] = block(lines_[next_].indent, depth + 1);
      } else {
        result[key] = Json();
      }
    }
    return result;
  }

  /// The colon that ends a key: a space or the end of the line follows it.
  static size_t colon_of(const std::string& text) {
    char quote = text.empty() || (text[0] != '"' && text[0] != '\'') ? '\0' : text[0];
    for (size_t i = quote == '\0' ? 0 : 1; i < text.size(); ++i) {
      if (quote != '\0' && text[i] == quote)
        quote = '\0';
      else if (quote == '\0' && text[i] == ':' && (i + 1 == text.size() || text[i + 1] == ' '))
        return i;
    }
    return text.npos;
  }

  Json scalar(std::string_view text) const {
    if (text == "[]") return Json::array();
    if (text == "{}") return Json::object();
    if (text[0] == '[' || text[0] == '{' || text[0] == '|' || text[0] == '>' || text[0] == '&' || text[0] == '*') {
      refuse("this form of YAML is not supported");
    }
    if (text[0] == '"' || text[0] == '\'') {
      const auto end = text.find(text[0], 1);
      if (end == text.npos || text.substr(1, end - 1).find('\\') != text.npos) refuse("this quoting is not supported");
      return std::string(text.substr(1, end - 1));
    }
    if (const auto comment = text.find(" #"); comment != text.npos)
      text = without_spaces_at_end(text.substr(0, comment));
    return std::string(text);
  }

  std::vector<YamlLine> lines_;
  size_t next_ = 0;
};

}  // namespace

Json parse_yaml(std::string_view text) { return YamlReader(text).read(); }

}  // namespace yoke::container
