// yoke/site/config.h -- what the administrator of a machine has decided: /etc/yoke/config.toml, and a user's own file.
//
// Each room reads a table of its own, [claim] for instance, and says which keys it has. A key or a table that nobody
// knows is an error, because a misspelt limit would be no limit.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/base/toml_text.h"

namespace yoke::site {

enum class Owner { kSite, kUser };

/// Says why a text cannot be the value of `key`; empty: it can.
using TextCheck = std::string (*)(std::string_view key, std::string_view text);

/// A table of a TOML file. All functions that give values return nullopt if there is no such key.
/// Errors  LineError{kDataLoss} if the value is of another kind.
class Section {
 public:
  /// An empty table.
  Section() = default;

  /// A whole file. `name` is for messages, and `advice` ends the one of a mistake in the syntax.
  /// Errors  kDataLoss, with file and line: it is not TOML.
  static Section parse(std::string_view text, const std::string& name, Owner owner = Owner::kSite,
                       std::string_view advice = "");

  std::vector<std::string> keys() const;  ///< In alphabetical order.

  std::optional<std::string> text(std::string_view key, TextCheck check = nullptr) const;
  std::optional<int64_t> count(std::string_view key, int64_t most = INT64_MAX) const;  ///< A whole number from 0.
  std::optional<bool> flag(std::string_view key) const;                                ///< true or false.
  std::optional<std::chrono::seconds> length(std::string_view key) const;              ///< Such as "24h".
  std::optional<int64_t> memory(std::string_view key) const;                           ///< Such as "20GiB", in bytes.
  std::optional<std::vector<std::string>> texts(std::string_view key, TextCheck check = nullptr) const;  ///< ["a", "b"]
  Section section(std::string_view key) const;                ///< The table [claim.KEY]; empty if there is none.
  std::vector<Section> sections(std::string_view key) const;  ///< The tables [[KEY]].

  /// Errors  kDataLoss: the table has a key that is not among `known`.
  void check_keys(std::initializer_list<std::string_view> known) const;

  /// Throws LineError{kDataLoss}. An empty key stands for the table itself. REQUIRES: there is such a key.
  [[noreturn]] void refuse(std::string_view key, const std::string& why) const;

  /// Errors  LineError{kInvalidArgument}: a user's own file has a key that only the site may set. `why` says
  ///         for what reason.
  void for_site_only(std::string_view key, const std::string& why) const;

 private:
  struct Table;
  explicit Section(std::shared_ptr<const Table> table) : table_(std::move(table)) {}

  std::shared_ptr<const Table> table_;
};

/// Refuses a misspelt field such as {usr}, which would stay in every path and name as it is. `known` are written with
/// their braces.
/// Errors  kDataLoss, with file and line: the text of `key` has a brace that is not of a known field.
void check_fields(const Section& section, std::string_view key, std::initializer_list<std::string_view> known);

/// A whole file.
class ConfigFile {
 public:
  ConfigFile() = default;  ///< An empty one.

  /// `name` is for messages. Errors  LineError{kDataLoss}: it is not TOML, or has an unknown table.
  static ConfigFile parse(const std::string& text, const std::string& name, Owner owner);

  /// The table of that name; empty if the file does not have it.
  Section section(std::string_view name) const { return root_.section(name); }

 private:
  Section root_;
};

struct Config {
  ConfigFile site, user;
  /// The administrator has decided: there is a site's file that has more than comments, and this user is not root. No
  /// variable may lift its limits.
  bool is_decided = false;
  bool is_of_user = false;  ///< YOKE_SITE_CONFIG names a file of the user's own as that of the site.
};

/// Where the site's file is, and who reads it.
struct SitePlace {
  std::filesystem::path file = "/etc/yoke/config.toml";
  int64_t uid = int64_t{geteuid()};
};

/// What those leave out of the files who only look at what others do, or end what is their own: a mistake must not keep
/// them from it. Whoever takes something reads strictly, because a limit that is left out would be no limit.
struct LeftOut {
  std::map<std::string, std::set<size_t>> lines;  ///< By file, counted from 1.
  std::string problem;                            ///< The first mistake, with file and line; empty: there is none.

  /// Leaves out the line of `error`. Returns false if it is left out already, and so is no help.
  bool add(const LineError& error);
};

/// Reads /etc/yoke/config.toml, and then ~/.config/yoke/config.toml. A missing file is an empty one. YOKE_SITE_CONFIG
/// names a different file for the site, for tests; only root may name one where the administrator has decided.
/// Errors  those of ConfigFile::parse(); kPermissionDenied: somebody other than root could have written the site's
/// file, or YOKE_SITE_CONFIG would replace it.
/// With `left_out`, a file that cannot be read or trusted is an empty one, and LeftOut::problem says why.
Config read_config(const Environment& environment, const SitePlace& place = {}, LeftOut* left_out = nullptr);

/// The stricter of two limits. nullopt: there is no limit.
template <typename T>
std::optional<T> stricter(const std::optional<T>& a, const std::optional<T>& b) {
  if (!a || !b) return a ? a : b;
  return *b < *a ? b : a;
}

}  // namespace yoke::site
