#include "tests/top/tmux.h"

#include <fmt/format.h>

#include <stdexcept>

namespace yoke::test {

bool has_tmux() { return test::run({.argv = {"tmux", "-V"}}).exit_code == 0; }

Tmux::Tmux(const TmuxOptions& options) {
  std::string script = "PS1='shell$ '\n";
  for (const auto& [name, value] : options.environment) script += fmt::format("export {}='{}'\n", name, value);
  script += fmt::format("export TERM='{}'\n", options.term);
  folder_.write("rc", script);
  run({"-f", "/dev/null", "new-session", "-d", "-x", std::to_string(options.width), "-y",
       std::to_string(options.height), fmt::format("exec bash --noprofile --rcfile '{}' -i", folder_.path("rc"))});
  if (!shows("shell$")) throw std::runtime_error("the shell in tmux does not start");
  type(options.command + "\r");
}

Tmux::~Tmux() { run({"kill-server"}); }

std::string Tmux::run(std::vector<std::string> words) const {
  words.insert(words.begin(), {"tmux", "-S", folder_.path("socket")});
  return test::run({.argv = words, .environment = {{"LC_ALL", "C.UTF-8"}}, .without = {"TMUX"}}).out;
}

void Tmux::press(const std::vector<std::string>& keys) const {
  std::vector<std::string> words = {"send-keys"};
  words.insert(words.end(), keys.begin(), keys.end());
  run(words);
}

void Tmux::type(const std::string& bytes) const {
  std::vector<std::string> words = {"send-keys", "-H"};
  for (const char c : bytes) words.push_back(fmt::format("{:x}", static_cast<unsigned char>(c)));
  run(words);
}

void Tmux::resize(int width, int height) const {
  run({"resize-window", "-x", std::to_string(width), "-y", std::to_string(height)});
}

std::string Tmux::text() const { return run({"capture-pane", "-p"}); }
std::string Tmux::styled_text() const { return run({"capture-pane", "-p", "-e"}); }
std::string Tmux::title() const { return run({"display-message", "-p", "#{pane_title}"}); }
pid_t Tmux::shell() const { return std::stoi(run({"display-message", "-p", "#{pane_pid}"})); }

bool Tmux::shows(std::string_view text_) const {
  return wait_until([&] { return text().find(text_) != std::string::npos; });
}
bool Tmux::no_longer_shows(std::string_view text_) const {
  return wait_until([&] { return text().find(text_) == std::string::npos; });
}

}  // namespace yoke::test
