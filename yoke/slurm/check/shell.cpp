#include "yoke/slurm/check/shell.h"

#include <algorithm>
#include <cctype>

#include "yoke/base/text.h"

namespace yoke::slurm::check {
namespace {

constexpr int kMaxDepth = 40;

bool is_name_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_name_char(char c) { return is_name_start(c) || std::isdigit(static_cast<unsigned char>(c)) != 0; }

/// The letters, digits and underscores at the beginning of `text`.
std::string_view name_in(std::string_view text) {
  return text.substr(0, static_cast<size_t>(std::ranges::find_if_not(text, is_name_char) - text.begin()));
}

/// The length of "NAME=", "NAME+=" or "NAME[...]=" at the beginning of `text`; 0 if there is none.
size_t assignment_length(std::string_view text) {
  auto i = name_in(text).size();
  if (i == 0 || !is_name_start(text[0])) return 0;
  if (i < text.size() && text[i] == '[') {
    const auto close = text.find(']', i);
    if (close == text.npos) return 0;
    i = close + 1;
  }
  if (i < text.size() && text[i] == '+') ++i;
  return i < text.size() && text[i] == '=' ? i + 1 : 0;
}

class Reader {
 public:
  Reader(std::string_view text, int64_t first_line, ShellText& result, int depth)
      : text_(text), line_(first_line), result_(result), depth_(depth) {}

  void read() {
    begin_command();
    while (at_ < text_.size()) step();
    end_command();
  }

  bool is_in_substitution = false;
  bool is_in_function = false;
  bool is_in_loop = false;

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  void skip(size_t n = 1) {
    for (; n > 0 && at_ < text_.size(); --n, ++at_) {
      if (text_[at_] == '\n') ++line_;
    }
  }

  void begin_command() {
    command_ = ShellCommand{};
    command_.line = line_;
    is_redirection_ = false;
    is_test_ = false;
  }

  void end_command(bool is_background = false) {
    auto& words = command_.words;
    command_.is_background = is_background;
    command_.is_in_loop = is_in_loop || num_loops_ > 0;
    command_.is_in_condition = num_conditions_ > 0 || is_after_and_;
    command_.is_in_function = is_in_function || !function_ends_.empty();
    command_.is_in_substitution = is_in_substitution;
    command_.subshell = static_cast<int64_t>(groups_.size());
    if (!words.empty() && words[0].text == "for") {
      if (words.size() > 1) result_.assigned.push_back(words[1].text);
    } else if (!words.empty() || !command_.assignments.empty()) {
      note_assigned();
      result_.commands.push_back(command_);
    }
    begin_command();
  }

  void note_assigned() {
    for (const auto& assignment : command_.assignments) result_.assigned.push_back(assignment.name);
    auto& words = command_.words;
    if (words.empty()) return;
    const auto& name = words[0].text;
    if (name == "source" || name == "." || name == "eval") result_.has_source = true;
    if (name == "coproc") {
      const auto coprocess = words.size() > 2 ? words[1].text : "COPROC";
      for (const auto& one : {std::string("COPROC"), std::string("COPROC_PID"), coprocess, coprocess + "_PID"}) {
        result_.assigned.push_back(one);
      }
    }
    if (has_word("export declare local typeset readonly", name)) {
      for (size_t i = 1; i < words.size(); ++i) {
        const auto length = assignment_length(words[i].text);
        const std::string variable(name_in(words[i].text));
        if (variable.empty()) continue;
        if (length > 0 || name != "export") result_.assigned.push_back(variable);
        if (length == 0) continue;
        Assignment assignment{variable, words[i], words[i].line};
        assignment.value.drop_front(length);
        assignment.is_appended = length >= 2 && words[i].text[length - 2] == '+';
        command_.assignments.push_back(std::move(assignment));
      }
    }
    if (has_word("read mapfile readarray getopts let printf unset select env", name)) {
      for (size_t i = 1; i < words.size(); ++i) {
        if (const auto variable = name_in(words[i].text); !variable.empty()) result_.assigned.emplace_back(variable);
      }
    }
  }

  // ---- Words

  void use(std::string_view name, bool has_default = false, bool is_cut = false) {
    result_.uses.push_back({std::string(name), line_, has_default, is_cut});
  }

  /// Reads a nested script, as in $(...).
  void read_nested(std::string_view inner, int64_t first_line) {
    if (depth_ >= kMaxDepth) return;
    Reader nested(inner, first_line, result_, depth_ + 1);
    nested.is_in_substitution = true;
    nested.is_in_function = is_in_function || !function_ends_.empty();
    nested.is_in_loop = is_in_loop || num_loops_ > 0;
    nested.read();
  }

  /// The position after the bracket that closes the one at `begin`. Knows quotes.
  size_t closing(size_t begin, char open, char close) const {
    int64_t level = 0;
    for (size_t i = begin; i < text_.size(); ++i) {
      const char c = text_[i];
      if (c == '\\') {
        ++i;
      } else if (c == '\'') {
        const auto end = text_.find('\'', i + 1);
        if (end == text_.npos) return text_.size();
        i = end;
      } else if (c == '"') {
        for (++i; i < text_.size() && text_[i] != '"'; ++i) {
          if (text_[i] == '\\') ++i;
        }
      } else if (c == open) {
        ++level;
      } else if (c == close && --level == 0) {
        return i + 1;
      }
    }
    return text_.size();
  }

  /// Appends the text up to `end` to `word`, as a part that the shell expands.
  void take_expansion(Word& word, size_t end) {
    const auto part = text_.substr(at_, end - at_);
    word.expansions.push_back({word.text.size(), word.text.size() + part.size()});
    word.text += part;
    skip(part.size());
  }

  void read_dollar(Word& word) {
    if (peek(1) == '(' || peek(1) == '{') {
      const auto end = closing(at_ + 1, peek(1), peek(1) == '(' ? ')' : '}');
      const auto inner = text_.substr(at_ + 2, end > at_ + 3 ? end - at_ - 3 : 0);
      if (peek(1) == '{') {
        read_braces(inner);
      } else if (peek(2) == '(') {
        scan_expansions(inner);
      } else {
        read_nested(inner, line_);
      }
      take_expansion(word, end);
    } else if (is_name_start(peek(1))) {
      const auto name = name_in(text_.substr(at_ + 1));
      use(name);
      take_expansion(word, at_ + 1 + name.size());
    } else if (peek(1) != '\0' && std::string_view("@*#?$!-0123456789").find(peek(1)) != std::string_view::npos) {
      take_expansion(word, at_ + 2);
    } else {
      word.text += '$';
      skip();
    }
  }

  void read_braces(std::string_view inner) {
    const auto begin = std::min(inner.find_first_not_of("#!"), inner.size());
    const auto name = name_in(inner.substr(begin));
    if (name.empty() || !is_name_start(name[0])) return;
    auto rest = inner.substr(begin + name.size());
    if (!rest.empty() && rest[0] == '[') {
      const auto close = rest.find(']');
      rest = close == rest.npos ? "" : rest.substr(close + 1);
    }
    if (rest.starts_with(":=") || rest.starts_with("=")) result_.assigned.emplace_back(name);
    const auto sign = rest.substr(rest.starts_with(":") ? 1 : 0, 1);
    const bool has_default = inner[0] == '!' || (!sign.empty() && std::string_view("-=+?").find(sign) != sign.npos);
    const bool is_cut = !has_default && !rest.empty() && std::string_view("#%/:^,@").find(rest[0]) != rest.npos;
    use(name, has_default, is_cut);
    scan_expansions(rest);
  }

  /// Notes $NAME and ${NAME...} within a part that was taken as a whole.
  void scan_expansions(std::string_view inner) {
    for (size_t i = 0; i + 1 < inner.size(); ++i) {
      if (inner[i] != '$') continue;
      const bool has_brace = inner[i + 1] == '{';
      const auto rest = inner.substr(i + (has_brace ? 2 : 1));
      const auto name = name_in(rest);
      if (name.empty() || !is_name_start(name[0])) continue;
      use(name, has_brace && name.size() < std::min(rest.find('}'), rest.size()));  // ${NAME:-1}
    }
  }

  void read_backticks(Word& word) {
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != '`') end += text_[end] == '\\' ? 2 : 1;
    end = std::min(end, text_.size());
    read_nested(text_.substr(at_ + 1, end - at_ - 1), line_);
    take_expansion(word, end + 1);
  }

  void note_string(int64_t first_line) {
    if (at_ < text_.size() && line_ > first_line) result_.strings.push_back({first_line + 1, line_});
  }

  void read_double_quotes(Word& word) {
    word.is_quoted = true;
    const auto first_line = line_;
    skip();
    while (at_ < text_.size() && peek() != '"') {
      if (peek() == '\\' && at_ + 1 < text_.size()) {
        if (peek(1) == '\n') {
          skip(2);
          continue;
        }
        if (std::string_view("$`\"\\").find(peek(1)) == std::string_view::npos) word.text += '\\';
        word.text += peek(1);
        skip(2);
      } else if (peek() == '$') {
        read_dollar(word);
      } else if (peek() == '`') {
        read_backticks(word);
      } else {
        word.text += peek();
        skip();
      }
    }
    note_string(first_line);
    skip();
  }

  Word read_word() {
    Word word;
    word.line = line_;
    while (at_ < text_.size()) {
      const char c = peek();
      if (c == '\\') {
        if (peek(1) == '\n') {
          skip(2);
          continue;
        }
        if (at_ + 1 < text_.size()) word.text += peek(1);
        skip(2);
      } else if (c == '\'' || (c == '$' && peek(1) == '\'')) {
        word.is_quoted = true;
        if (c == '$') skip();
        const auto end = std::min(text_.find('\'', at_ + 1), text_.size());
        word.text += text_.substr(at_ + 1, end - at_ - 1);
        const auto first_line = line_;
        skip(end - at_);
        note_string(first_line);
        skip();
      } else if (c == '"') {
        read_double_quotes(word);
      } else if (c == '$') {
        read_dollar(word);
      } else if (c == '`') {
        read_backticks(word);
      } else if (c == '(' && assignment_length(word.text) == word.text.size() && !word.text.empty()) {
        const auto end = closing(at_, '(', ')');  // an array
        scan_expansions(text_.substr(at_ + 1, end - at_ - 1));
        take_expansion(word, end);
      } else if (std::isspace(static_cast<unsigned char>(c)) != 0 ||
                 std::string_view(";&|()<>").find(c) != std::string_view::npos) {
        break;
      } else {
        word.text += c;
        skip();
      }
    }
    return word;
  }

  // ---- Commands

  void step() {
    const char c = peek();
    if (c == '\\' && peek(1) == '\n') return skip(2);
    if (c == '\n') {
      if (!is_test_) end_command();
      is_after_and_ = false;
      skip();
      return read_here_documents();
    }
    if (std::isspace(static_cast<unsigned char>(c)) != 0) return skip();
    if (c == '#') {
      while (at_ < text_.size() && peek() != '\n') ++at_;
      return;
    }
    if (c == '<' || c == '>' || (c == '&' && peek(1) == '>')) return read_redirection();
    if (is_test_ && (c == '&' || c == '|' || c == '(' || c == ')')) return skip();
    if (c == ';') {
      end_command();
      is_after_and_ = false;
      if (peek(1) == ';') {
        if (!cases_.empty()) expects_pattern_ = true;
        skip();
      }
      return skip();
    }
    if (c == '&' || c == '|') return read_operator();
    if (c == '(') return read_open();
    if (c == ')') {
      end_command();
      if (!groups_.empty()) groups_.pop_back();
      return skip();
    }
    take(read_word());
  }

  void read_operator() {
    const bool is_double = peek(1) == peek();
    const bool is_pipe = peek() == '|' && !is_double;
    end_command(peek() == '&' && !is_double);
    is_after_and_ = is_double;
    skip(is_double || (is_pipe && peek(1) == '&') ? 2 : 1);
  }

  void read_open() {
    const bool is_loop = command_.words.size() == 1 && command_.words[0].text == "for";
    if ((command_.words.empty() || is_loop) && peek(1) == '(') {  // ((i++))
      const auto end = closing(at_, '(', ')');
      const auto inner = text_.substr(at_ + 2, end > at_ + 4 ? end - at_ - 4 : 0);
      scan_expansions(inner);
      for (size_t i = 0; i < inner.size(); ++i) {
        if (!is_name_start(inner[i])) continue;
        result_.assigned.emplace_back(name_in(inner.substr(i)));
        i += result_.assigned.back().size();
      }
      return skip(end - at_);
    }
    if (command_.words.size() == 1 && peek(1) == ')') {  // name()
      begin_function();
      return skip(2);
    }
    if (command_.words.empty()) {
      end_command();
      groups_.push_back('(');
    }
    skip();
  }

  void begin_function() {
    begin_command();
    waits_for_body_ = true;
  }

  void read_redirection() {
    if ((peek() == '<' || peek() == '>') && peek(1) == '(') {  // <(...)
      const auto end = closing(at_ + 1, '(', ')');
      read_nested(text_.substr(at_ + 2, end > at_ + 3 ? end - at_ - 3 : 0), line_);
      Word word;
      word.line = line_;
      take_expansion(word, end);
      return take(std::move(word));
    }
    // "2>file": the number before it is no word.
    if (!command_.words.empty() && at_ > 0 && std::isdigit(static_cast<unsigned char>(text_[at_ - 1])) != 0 &&
        peek() != '&') {
      const auto& last = command_.words.back().text;
      if (last.size() == 1 && !command_.words.back().is_quoted) command_.words.pop_back();
    }
    if (peek() == '<' && peek(1) == '<' && peek(2) != '<') {
      skip(2);
      const bool strips = peek() == '-';
      if (strips) skip();
      while (peek() == ' ' || peek() == '\t') skip();
      const auto begin = at_;
      const auto word = read_word();
      const bool is_quoted = word.is_quoted || text_.substr(begin, at_ - begin).find('\\') != std::string_view::npos;
      pending_.push_back({word.text, is_quoted, strips});
      return;
    }
    while (peek() == '<' || peek() == '>' || peek() == '&' || peek() == '|') skip();
    is_redirection_ = true;
  }

  void read_here_documents() {
    for (const auto& [delimiter, is_quoted, strips] : pending_) {
      HereDocument document{line_, "", !is_quoted};
      while (at_ < text_.size()) {
        const auto end = std::min(text_.find('\n', at_), text_.size());
        auto line = text_.substr(at_, end - at_);
        if (strips) {
          while (!line.empty() && line[0] == '\t') line.remove_prefix(1);
        }
        skip(end + 1 - at_);
        if (line == delimiter) break;
        document.text += line;
        document.text += '\n';
      }
      if (document.is_expanded) {
        std::string visible;
        for (size_t i = 0; i < document.text.size(); ++i) {
          if (document.text[i] == '\\') {
            ++i;
          } else {
            visible += document.text[i];
          }
        }
        scan_expansions(visible);
      }
      result_.here_documents.push_back(std::move(document));
    }
    pending_.clear();
  }

  void take(Word word) {
    if (is_redirection_) {
      is_redirection_ = false;
      command_.redirections.push_back(std::move(word));
      return;
    }
    auto& words = command_.words;
    const bool is_plain = !word.is_quoted && word.is_known();
    if (expects_pattern_) {
      if (is_plain && word.text == "esac") {
        expects_pattern_ = false;
        if (!cases_.empty()) cases_.pop_back();
        if (num_conditions_ > 0) --num_conditions_;
        return;
      }
      while (at_ < text_.size() && peek() != ')') skip();  // the rest of the pattern
      skip();
      expects_pattern_ = false;
      return;
    }
    if (words.empty() && is_plain && take_keyword(word.text)) return;
    if (words.empty() && assignment_length(word.text) > 0) return take_assignment(std::move(word));
    if (words.empty()) {
      command_.line = word.line;
      if (is_plain && word.text == "[[") is_test_ = true;
    }
    if (is_plain && word.text == "]]") is_test_ = false;
    const bool ends_case = !words.empty() && words[0].text == "case" && is_plain && word.text == "in";
    const bool is_function = words.size() == 1 && words[0].text == "function" && is_plain;
    if (is_function) {
      begin_function();
      if (peek() == '(' && peek(1) == ')') skip(2);
      return;
    }
    words.push_back(std::move(word));
    if (ends_case) {
      begin_command();
      cases_.push_back(true);
      expects_pattern_ = true;
      ++num_conditions_;
    }
  }

  /// Returns whether the word is a part of the shell's grammar and no command.
  bool take_keyword(const std::string& text) {
    if (text == "if") ++num_conditions_;
    if (text == "fi" || text == "esac") {
      if (num_conditions_ > 0) --num_conditions_;
      if (text == "esac" && !cases_.empty()) cases_.pop_back();
      return true;
    }
    if (text == "while" || text == "until") ++num_loops_;
    if (text == "for" || text == "select") ++num_loops_;
    if (text == "done") {
      if (num_loops_ > 0) --num_loops_;
      return true;
    }
    if (text == "{") {
      if (waits_for_body_) {
        function_ends_.push_back(num_braces_);
        waits_for_body_ = false;
      }
      ++num_braces_;
      return true;
    }
    if (text == "}") {
      if (num_braces_ > 0) --num_braces_;
      if (!function_ends_.empty() && function_ends_.back() == num_braces_) function_ends_.pop_back();
      return true;
    }
    return has_word("if then elif else while until do ! time", text);
  }

  void take_assignment(Word word) {
    const auto length = assignment_length(word.text);
    const auto name = name_in(word.text);
    if (command_.assignments.empty()) command_.line = word.line;
    Assignment assignment{std::string(name), word, word.line};
    assignment.is_appended = length >= 2 && word.text[length - 2] == '+';
    assignment.value.drop_front(length);
    assignment.is_array = assignment.value.text.starts_with("(") || word.text[name.size()] == '[';
    command_.assignments.push_back(std::move(assignment));
  }

  struct Pending {
    std::string delimiter;
    bool is_quoted, strips;
  };

  std::string_view text_;
  size_t at_ = 0;
  int64_t line_;
  ShellText& result_;
  int depth_;
  ShellCommand command_;
  std::vector<Pending> pending_;
  std::vector<char> groups_;
  std::vector<bool> cases_;
  std::vector<int64_t> function_ends_;  ///< The number of open braces outside of each function.
  int64_t num_braces_ = 0, num_loops_ = 0, num_conditions_ = 0;
  bool is_redirection_ = false, is_test_ = false, expects_pattern_ = false, waits_for_body_ = false;
  bool is_after_and_ = false;
};

}  // namespace

std::string ShellCommand::name() const { return words.empty() ? std::string() : std::string(base_name(words[0].text)); }

ShellText read_shell(std::string_view text) {
  ShellText result;
  Reader(text, 1, result, 0).read();
  return result;
}

}  // namespace yoke::slurm::check
