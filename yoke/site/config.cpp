#include "yoke/site/config.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <functional>

#include "yoke/base/file.h"
#include "yoke/base/host.h"
#include "yoke/base/quantity.h"
#include "yoke/base/text.h"
#include "yoke/contract/variables.h"

namespace yoke::site {
namespace {

constexpr size_t kMostBytes = 1 << 20;
constexpr std::array<std::string_view, 3> kTables = {"claim", "container", "storage"};

/// The text of a file that only root can have written; empty if there is none. `is_own` is set if the user chose a file
/// of his own.
std::string read_of_site(const std::filesystem::path& path, bool is_chosen, bool& is_own) {
  UniqueFd fd;
  try {
    fd = open_regular_file(path);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kNotFound && !is_chosen) return "";
    throw;
  }
  struct stat status {};
  if (fstat(fd.value(), &status) != 0) throw system_error(errno, path.string());
  is_own = is_chosen && status.st_uid != 0 && status.st_uid == geteuid();
  if ((status.st_uid != 0 && !is_own) || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    throw Error(ErrorCode::kPermissionDenied,
                "{} could have been written by others than root, so its limits are not used; `chown root {}` and "
                "`chmod 644 {}`",
                path.string(), path.string(), path.string());
  }
  return read_regular_file(path, kMostBytes);
}

std::string read_of_user(const std::filesystem::path& path) {
  try {
    return read_regular_file(path, kMostBytes);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kNotFound) return "";
    throw;
  }
}

/// What `read` returns, without the lines that are left out; empty if it fails and `left_out` is given.
std::string text_of_file(const std::filesystem::path& path, LeftOut* left_out,
                         const std::function<std::string()>& read) {
  if (left_out == nullptr) return read();
  try {
    const auto text = read();
    const auto& numbers = left_out->lines[path.string()];
    if (numbers.empty()) return text;
    std::string result;
    size_t number = 0;
    for (const auto line : lines_of(text)) {
      if (!numbers.contains(++number)) result += line;
      result += '\n';
    }
    return result;
  } catch (const Error& error) {
    if (left_out->problem.empty()) left_out->problem = error.what();
    return "";
  }
}

/// Whether the administrator has written anything into the site's file. A package installs one that has only comments:
/// it sets no limit, so no variable could lift one. A file that cannot be read or trusted counts as one with limits.
bool has_decisions(const std::filesystem::path& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return errno != ENOENT && errno != ENOTDIR;
  try {
    bool is_own = false;
    const auto text = read_of_site(path, false, is_own);
    return std::ranges::any_of(lines_of(text), [](std::string_view line) {
      const auto begin = line.find_first_not_of(" \t\r");
      return begin != line.npos && line[begin] != '#';
    });
  } catch (const Error&) {
    return true;
  }
}

}  // namespace

bool LeftOut::add(const LineError& error) {
  constexpr size_t kMost = 1000;  // more mistakes are no typing errors, and each one means to read the file again
  auto& of_file = lines[error.file()];
  if (problem.empty()) problem = error.what();
  return of_file.size() < kMost && of_file.insert(error.line()).second;
}

struct Section::Table {
  std::shared_ptr<const toml::table> file;
  const toml::table* values = nullptr;  // in `file`; nullptr: the file does not have the table
  std::string file_name, name;
  Owner owner = Owner::kSite;

  const toml::node* find(std::string_view key) const { return values == nullptr ? nullptr : values->get(key); }

  [[noreturn]] void refuse(const toml::node& node, const std::string& why) const {
    throw LineError(ErrorCode::kDataLoss, file_name, node.source().begin.line, why);
  }

  void require(TextCheck check, const toml::node& node, std::string_view key, const std::string& text) const {
    const auto why = check == nullptr ? "" : check(key, text);
    if (!why.empty()) refuse(node, why);
  }

  std::shared_ptr<Table> child(std::string_view key, const toml::table* its_values) const {
    auto table = std::make_shared<Table>(*this);
    table->name = name.empty() ? std::string(key) : fmt::format("{}.{}", name, key);
    table->values = its_values;
    return table;
  }
};

Section Section::parse(std::string_view text, const std::string& name, Owner owner, std::string_view advice) {
  check_toml_text(text, name);
  try {
    auto file = std::make_shared<const toml::table>(toml::parse(text, name));
    const auto* const values = file.get();
    return Section(std::make_shared<Table>(Table{std::move(file), values, name, "", owner}));
  } catch (const toml::parse_error& error) {
    throw LineError(ErrorCode::kDataLoss, name, error.source().begin.line,
                    fmt::format("{}{}", error.description(), advice));
  }
}

std::vector<std::string> Section::keys() const {
  std::vector<std::string> result;
  if (!table_ || table_->values == nullptr) return result;
  for (const auto& [key, value] : *table_->values) result.emplace_back(key.str());
  std::ranges::sort(result);
  return result;
}

void Section::refuse(std::string_view key, const std::string& why) const {
  table_->refuse(key.empty() ? *table_->values : *table_->find(key), why);
}

void Section::for_site_only(std::string_view key, const std::string& why) const {
  if (!table_ || table_->owner == Owner::kSite || table_->find(key) == nullptr) return;
  throw LineError(ErrorCode::kInvalidArgument, table_->file_name, table_->find(key)->source().begin.line,
                  fmt::format("{} is for /etc/yoke/config.toml only, since {}; remove the line", key, why));
}

void Section::check_keys(std::initializer_list<std::string_view> known) const {
  for (const auto& key : keys()) {
    if (std::ranges::find(known, key) != known.end()) continue;
    const auto title = table_->name.empty() ? "a site's file" : fmt::format("[{}]", table_->name);
    refuse(key, fmt::format("{} has no key {}; it has {}", title, key, fmt::join(known, ", ")));
  }
}

std::optional<std::string> Section::text(std::string_view key, TextCheck check) const {
  const auto* const node = table_ ? table_->find(key) : nullptr;
  if (node == nullptr) return std::nullopt;
  const auto value = node->value_exact<std::string>();
  if (!value) refuse(key, fmt::format("{} takes a text in quotes", key));
  table_->require(check, *node, key, *value);
  return value;
}

std::optional<int64_t> Section::count(std::string_view key, int64_t most) const {
  const auto* const node = table_ ? table_->find(key) : nullptr;
  if (node == nullptr) return std::nullopt;
  const auto value = node->value_exact<int64_t>();
  if (!value || *value < 0 || *value > most) {
    refuse(key, fmt::format("{} takes a whole number{}", key, most == INT64_MAX ? "" : fmt::format(" up to {}", most)));
  }
  return value;
}

std::optional<bool> Section::flag(std::string_view key) const {
  const auto* const node = table_ ? table_->find(key) : nullptr;
  if (node == nullptr) return std::nullopt;
  const auto value = node->value_exact<bool>();
  if (!value) refuse(key, fmt::format("{} takes true or false", key));
  return value;
}

std::optional<std::chrono::seconds> Section::length(std::string_view key) const {
  const auto* const node = table_ ? table_->find(key) : nullptr;
  if (node == nullptr) return std::nullopt;
  const auto value = parse_length(node->value<std::string>().value_or(""));
  if (!value) refuse(key, fmt::format("{} takes a length of time in quotes, such as \"24h\"", key));
  return value;
}

std::optional<int64_t> Section::memory(std::string_view key) const {
  const auto* const node = table_ ? table_->find(key) : nullptr;
  if (node == nullptr) return std::nullopt;
  const auto value = parse_memory(node->value<std::string>().value_or(""));
  if (!value) refuse(key, fmt::format("{} takes a size in quotes, such as \"20GiB\"", key));
  return value;
}

std::optional<std::vector<std::string>> Section::texts(std::string_view key, TextCheck check) const {
  const auto* const node = table_ ? table_->find(key) : nullptr;
  if (node == nullptr) return std::nullopt;
  std::vector<std::string> result;
  const auto* const list = node->as_array();
  for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
    const auto value = list->get(i)->value_exact<std::string>();
    if (!value) refuse(key, fmt::format("{} takes a list of texts, such as [\"a\", \"b\"]", key));
    table_->require(check, *list->get(i), key, *value);
    result.push_back(*value);
  }
  if (list == nullptr) refuse(key, fmt::format("{} takes a list of texts, such as [\"a\", \"b\"]", key));
  return result;
}

Section Section::section(std::string_view key) const {
  if (!table_) return {};
  const auto* const node = table_->find(key);
  auto table = table_->child(key, node == nullptr ? nullptr : node->as_table());
  if (node != nullptr && table->values == nullptr) {
    refuse(key, fmt::format("{} is not a table; write [{}]", key, table->name));
  }
  return Section(std::move(table));
}

std::vector<Section> Section::sections(std::string_view key) const {
  const auto* const node = table_ ? table_->find(key) : nullptr;
  if (node == nullptr) return {};
  if (!node->is_array_of_tables()) {
    refuse(key, fmt::format("{} is a list of tables; write [[{}]] for each", key, table_->child(key, nullptr)->name));
  }
  std::vector<Section> result;
  for (const auto& one : *node->as_array()) {
    auto table = table_->child(key, one.as_table());
    table->name = fmt::format("[{}]", table->name);
    result.push_back(Section(std::move(table)));
  }
  return result;
}

void check_fields(const Section& section, std::string_view key, std::initializer_list<std::string_view> known) {
  const auto text = section.text(key).value_or("");
  for (size_t at = 0; (at = text.find_first_of("{}", at)) != text.npos;) {
    const auto end = std::min(text.find('}', at), text.size() - 1);
    const auto field = std::string_view(text).substr(at, end + 1 - at);
    if (std::ranges::find(known, field) == known.end()) {
      section.refuse(
          key, fmt::format("{} has {}, which is no field; it may have {}", key, field, fmt::join(known, " and ")));
    }
    at = end + 1;
  }
}

ConfigFile ConfigFile::parse(const std::string& text, const std::string& name, Owner owner) {
  ConfigFile file;
  file.root_ =
      Section::parse(text, name, owner, "; a line is KEY = VALUE or [TABLE], texts and lengths of time in quotes");
  for (const auto& key : file.root_.keys()) {
    if (std::ranges::find(kTables, key) != kTables.end()) continue;
    file.root_.refuse(key, fmt::format("there is no table [{}]; there are [{}]", key, fmt::join(kTables, "], [")));
  }
  return file;
}

Config read_config(const Environment& environment, const SitePlace& place, LeftOut* left_out) {
  const auto chosen = environment.find(variable::kSiteConfig);
  const std::filesystem::path path = chosen.value_or(place.file.string());
  Config config;
  config.is_decided = place.uid != 0 && has_decisions(place.file);
  if (config.is_decided && path != place.file) {
    throw Error(ErrorCode::kPermissionDenied,
                "YOKE_SITE_CONFIG names {}, but on this machine {} has the limits, and only root may use others; "
                "unset YOKE_SITE_CONFIG",
                path.string(), place.file.string());
  }
  const auto text =
      text_of_file(path, left_out, [&] { return read_of_site(path, chosen.has_value(), config.is_of_user); });
  config.site = ConfigFile::parse(text, path.string(), Owner::kSite);
  const auto folder = user_folder(UserFolder::kConfig, environment);
  if (!folder) return config;
  const auto own = (*folder / "yoke" / "config.toml").string();
  config.user = ConfigFile::parse(text_of_file(own, left_out, [&] { return read_of_user(own); }), own, Owner::kUser);
  return config;
}

}  // namespace yoke::site
