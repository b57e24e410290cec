#include "yoke/cli/help/help.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <memory>

#include "yoke/base/text.h"
#include "yoke/cli/command.h"

namespace yoke::cli {
namespace {

constexpr int64_t kMaxColumn = 30;  // descriptions of options begin at this column or further left
constexpr int64_t kMinTextWidth = 20;

class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(int64_t width) : width_(width), column_(std::clamp<int64_t>(width - 50, 8, kMaxColumn)) {
    column_width(static_cast<size_t>(column_));
  }

  /// Removes the "..." that CLI11 adds, because placeholders such as "ID..." already contain it.
  std::string make_option_opts(const CLI::Option* option) const override {
    auto opts = CLI::Formatter::make_option_opts(option);
    const auto twice = option->get_type_name() + " ...";
    const auto at = option->get_type_name().find("...") == std::string::npos ? opts.npos : opts.find(twice);
    if (at != opts.npos) opts.erase(at + twice.size() - 4, 4);
    return opts;
  }
  std::string make_option_desc(const CLI::Option* option) const override { return text(option->get_description()); }
  std::string make_subcommand(const CLI::App* command) const override {
    std::stringstream out;
    CLI::detail::format_help(out, command->get_display_name(true), text(command->get_description()),
                             static_cast<size_t>(column_));
    return out.str();
  }
  std::string make_usage(const CLI::App* app, std::string name) const override {
    const auto* const command = find_command(app->get_name());
    if (command != nullptr && !command->object.empty()) name += fmt::format(" {}", command->object);
    return CLI::Formatter::make_usage(app, name);
  }
  std::string make_description(const CLI::App* app) const override {
    return wrapped(app->get_description(), width_) + '\n';
  }
  std::string make_footer(const CLI::App* app) const override {
    return wrapped_footer(app->get_footer(), width_) + '\n';
  }

 private:
  std::string text(const std::string& description) const {
    return wrapped(description, std::max(kMinTextWidth, width_ - column_));
  }

  int64_t width_, column_;
};

}  // namespace

std::string wrapped(std::string_view text, int64_t width) {
  std::string result;
  int64_t used = 0;
  for (size_t begin = text.find_first_not_of(" \n"); begin < text.size();) {
    const auto word = text.substr(begin, text.find_first_of(" \n", begin) - begin);
    const auto columns = display_width(word);
    if (!result.empty()) {
      const bool fits = used + 1 + columns <= width;
      result += fits ? ' ' : '\n';
      used = fits ? used + 1 : 0;
    }
    result += word;
    used += columns;
    begin = text.find_first_not_of(" \n", begin + word.size());
  }
  return result;
}

std::string wrapped_footer(const std::string& footer, int64_t width) {
  auto end = std::min(footer.find("\n\n"), footer.size());
  auto result = footer.substr(0, end);
  while (end < footer.size()) {
    const auto begin = end + 2;
    end = std::min(footer.find("\n\n", begin), footer.size());
    result += "\n\n" + wrapped(std::string_view(footer).substr(begin, end - begin), width);
  }
  return result;
}

void set_help_width(CLI::App& app, int64_t width) {
  const auto formatter = std::make_shared<HelpFormatter>(width);
  app.formatter(formatter);
  for (auto* command : app.get_subcommands([](CLI::App*) { return true; })) set_help_width(*command, width);
}

}  // namespace yoke::cli
