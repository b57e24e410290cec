#include "yoke/cluster/hosts.h"

#include <algorithm>
#include <set>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/hostlist.h"
#include "yoke/base/text.h"

namespace yoke::cluster {
namespace {

constexpr size_t kMaxNameBytes = 255;  // RFC 1035, and room for a user name
constexpr int64_t kMaxRanks = 65'536;

/// Whether the text without user@ is an IPv6 address, perhaps with a zone: "fd00::1", "fe80::1%eth0".
bool is_ipv6(std::string_view text) {
  text.remove_prefix(text.find('@') + 1);  // 0 if there is none
  return std::ranges::count(text, ':') > 1;
}

/// Refuses a name that a shell or ssh could interpret as something else.
void check_name(std::string_view name) {
  const bool is_address = is_ipv6(name);
  const auto is_allowed = [is_address](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view(is_address ? "._-@:%" : "._-@").find(c) != std::string_view::npos;
  };
  if (name.empty()) throw Error(ErrorCode::kInvalidArgument, "a host name is missing; give HOST or HOST:N");
  if (name.front() != '-' && name.front() != '@' && name.back() != '@' && name.size() <= kMaxNameBytes &&
      std::ranges::all_of(name, is_allowed)) {
    return;
  }
  throw Error(ErrorCode::kInvalidArgument,
              "'{}' is not a valid host name: use letters, digits, '.', '_', '-' and one user@; for anything else "
              "define a name in ~/.ssh/config",
              printable(name.substr(0, 80)));
}

int64_t parse_ranks(std::string_view text, std::string_view host) {
  const auto number = parse_int(text);
  if (number && *number >= 1 && *number <= kMaxRanks) return *number;
  throw Error(ErrorCode::kInvalidArgument, "host {}: '{}' is not a number of ranks from 1 to 65536", host,
              printable(text.substr(0, 40)));
}

/// Parses "a", "a:4", "fd00::1" or "[fd00::1]:4".
HostEntry parse_entry(std::string_view text) {
  const auto open = text.find('['), close = text.find(']');
  const bool has_brackets = open != text.npos && close != text.npos && open < close;
  const auto colon = has_brackets ? text.find(':', close) : is_ipv6(text) ? text.npos : text.find(':');
  HostEntry entry{std::string(text.substr(0, colon)), std::nullopt};
  if (has_brackets && entry.name.size() == close + 1) {
    entry.name.erase(close);
    entry.name.erase(open, 1);
  }
  check_name(entry.name);
  if (colon != text.npos) entry.num_ranks = parse_ranks(text.substr(colon + 1), entry.name);
  return entry;
}

/// Splits at commas that are not between brackets.
std::vector<std::string_view> split_items(std::string_view text) {
  std::vector<std::string_view> items;
  size_t begin = 0;
  int64_t depth = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && (text[i] == '[' || text[i] == ']')) depth += text[i] == '[' ? 1 : -1;
    if (i < text.size() && (text[i] != ',' || depth > 0)) continue;
    items.push_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  return items;
}

/// Parses an item of a list, which may stand for several hosts: "n[01-02]:4". Brackets around an IPv6 address are not a
/// list.
std::vector<HostEntry> parse_item(std::string_view text) {
  if (is_ipv6(text)) return {parse_entry(text)};
  std::vector<HostEntry> entries;
  for (const auto& one : expand_hostlist(text)) entries.push_back(parse_entry(one));
  return entries;
}

void check_twice(const std::vector<HostEntry>& hosts) {
  std::set<std::string_view> seen;
  for (const auto& host : hosts) {
    if (!seen.insert(host.name).second) {
      throw Error(ErrorCode::kInvalidArgument, "host {} is named twice; give it more ranks by {}:N", host.name,
                  host.name);
    }
  }
}

}  // namespace

std::vector<HostEntry> parse_hosts(std::string_view text) {
  std::vector<HostEntry> hosts;
  for (const auto item : split_items(text)) {
    for (auto& entry : parse_item(item)) hosts.push_back(std::move(entry));
  }
  check_twice(hosts);
  return hosts;
}

std::vector<HostEntry> read_hostfile(const std::filesystem::path& path) {
  const auto text = read_file(path);
  std::vector<HostEntry> hosts;
  int64_t number = 0;
  for (const auto line : lines_of(text)) {
    const auto words = words_of(line.substr(0, line.find('#')));
    ++number;
    if (words.empty()) continue;
    try {
      auto entries = parse_item(words.front());
      for (size_t i = 1; i < words.size(); ++i) {
        constexpr std::string_view kSlots = "slots=";
        if (words[i].starts_with(kSlots)) {
          for (auto& entry : entries) entry.num_ranks = parse_ranks(words[i].substr(kSlots.size()), entry.name);
        } else if (!words[i].starts_with("max_slots=") && !words[i].starts_with("max-slots=")) {  // Open MPI has these
          throw Error(ErrorCode::kInvalidArgument, "'{}' is unknown; a line is HOST or HOST slots=N",
                      printable(words[i].substr(0, 80)));
        }
      }
      hosts.insert(hosts.end(), entries.begin(), entries.end());
    } catch (const Error& error) {
      throw Error(error.code(), "{}:{}: {}", path.string(), number, error.what());
    }
  }
  if (hosts.empty())
    throw Error(ErrorCode::kInvalidArgument, "{} lists no host; write one in each line: HOST, or HOST slots=N",
                path.string());
  check_twice(hosts);
  return hosts;
}

}  // namespace yoke::cluster
