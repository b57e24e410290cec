#include "yoke/container/engine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <strings.h>

#include <array>

#include "yoke/base/error.h"
#include "yoke/base/json.h"
#include "yoke/base/text.h"

namespace yoke::container {
namespace {

constexpr std::array kEngineNames = {std::pair{EngineKind::kPodman, "podman"}, std::pair{EngineKind::kDocker, "docker"},
                                     std::pair{EngineKind::kApptainer, "apptainer"}};

/// The last word but one of a line of /proc/PID/limits is the hard limit if the line ends with a unit.
int64_t hard_limit(std::string_view limits, std::string_view title) {
  for (const auto line : lines_of(limits)) {
    if (!line.starts_with(title)) continue;
    const auto words = words_of(line.substr(title.size()));
    if (words.size() < 2) continue;
    return parse_int(words[1]).value_or(kUnlimited);
  }
  return kUnlimited;
}

SortedJson parse_answer(const std::string& text) {
  auto json = SortedJson::parse(text, nullptr, false);
  return json.is_object() ? json : SortedJson::object();
}

}  // namespace

std::string_view name(EngineKind kind) {
  for (const auto& [one, text] : kEngineNames) {
    if (one == kind) return text;
  }
  return "";
}

std::optional<EngineKind> parse_engine_kind(std::string_view text) {
  for (const auto& [kind, known] : kEngineNames) {
    if (text == known) return kind;
  }
  return std::nullopt;
}

std::string Version::text() const { return fmt::format("{}.{}.{}", major, minor, patch); }

std::optional<Version> parse_version(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (!is_digit(text[i]) || (i > 0 && (is_digit(text[i - 1]) || text[i - 1] == '.'))) continue;
    std::array<int64_t, 3> parts = {};
    size_t num_parts = 0;
    for (auto at = i; num_parts < parts.size();) {
      auto end = at;
      while (end < text.size() && is_digit(text[end])) ++end;
      const auto part = parse_int(text.substr(at, end - at));
      if (!part) break;
      parts[num_parts++] = *part;
      if (end + 1 >= text.size() || text[end] != '.' || !is_digit(text[end + 1])) break;
      at = end + 1;
    }
    if (num_parts >= 2) return Version{parts[0], parts[1], parts[2]};
  }
  return std::nullopt;
}

ProcessLimits parse_process_limits(std::string_view limits, std::string_view status, std::string_view uid_map) {
  constexpr int kSysResource = 24;  // CAP_SYS_RESOURCE
  ProcessLimits result;
  result.num_files = hard_limit(limits, "Max open files");
  result.num_processes = hard_limit(limits, "Max processes");
  result.locked_bytes = hard_limit(limits, "Max locked memory");
  result.stack_bytes = hard_limit(limits, "Max stack size");
  result.can_raise = false;
  for (const auto line : lines_of(status)) {
    if (!line.starts_with("CapEff:")) continue;
    const auto words = words_of(line);
    const auto mask = words.size() == 2 ? std::stoull("0" + std::string(words[1]), nullptr, 16) : 0;
    result.can_raise = (mask >> kSysResource & 1) != 0;
  }
  // The kernel asks for the capability in the first user namespace, whose map has all ids.
  const auto maps = lines_of(uid_map);
  const bool is_first = maps.size() == 1 && words_of(maps[0]) == std::vector<std::string_view>{"0", "0", "4294967295"};
  if (!is_first) result.can_raise = false;
  return result;
}

void complete_facts(Engine& engine) {
  if (engine.kind == EngineKind::kPodman) {
    engine.has_cdi = engine.version >= Version{4, 1, 0};     // release notes of podman 4.1.0
    engine.knows_pull = engine.version >= Version{1, 5, 2};  // containers/podman#3617
  } else if (engine.kind == EngineKind::kApptainer) {
    engine.has_cdi = engine.version >= Version{1, 5, 0};  // changelog of Apptainer 1.5.0: --device and --cdi-dirs
  }                                                       // docker's daemon says so itself
}

Engine assumed_engine(EngineKind kind) {
  Engine engine{.kind = kind, .program = std::string(name(kind)), .is_installed = false};
  switch (kind) {
    case EngineKind::kPodman: engine.version = {5, 4, 0}; break;
    case EngineKind::kDocker:
      engine.version = {28, 2, 0};
      engine.has_cdi = true;
      break;
    case EngineKind::kApptainer: engine.version = {1, 4, 0}; break;
  }
  complete_facts(engine);
  return engine;
}

void read_docker_facts(Engine& engine, const std::string& version_json, const std::string& info_json) {
  const auto version = parse_answer(version_json);
  const auto info = parse_answer(info_json);
  const auto server = version.value("Server", SortedJson());
  const auto found = server.is_object() ? parse_version(server.value("Version", "")) : std::nullopt;
  if (!found) throw Error(ErrorCode::kUnavailable, "docker's daemon does not answer");
  engine.version = *found;
  const auto client = version.value("Client", SortedJson());
  const auto client_version = client.is_object() ? parse_version(client.value("Version", "")) : std::nullopt;
  // docker/cli#1498: the client pulls, so its version counts.
  engine.knows_pull = !client_version || *client_version >= Version{20, 10, 0};
  for (const auto& option : info.value("SecurityOptions", SortedJson::array())) {
    const auto text = option.is_string() ? option.get<std::string>() : "";
    if (text.find("name=rootless") != text.npos) engine.is_rootless = true;
    if (text.find("name=userns") != text.npos) engine.remaps_ids = true;  // dockerd --userns-remap
  }
  const auto runtimes = info.value("Runtimes", SortedJson());
  engine.has_nvidia_runtime = runtimes.is_object() && runtimes.contains("nvidia");
  // Since 25.0 the daemon lists the folders of specifications if CDI is enabled, by default since 28.2.
  const auto folders = info.value("CDISpecDirs", SortedJson());
  engine.has_cdi = folders.is_array() && !folders.empty();
}

std::string source_of_subordinate_ids(std::string_view nsswitch) {
  // Source  github.com/shadow-maint/shadow, lib/nss.c, of which older versions take the first source alone.
  constexpr std::string_view kName = "subid:";
  for (auto line : lines_of(nsswitch)) {
    line = line.substr(0, line.find('#'));
    if (line.size() < kName.size() || strncasecmp(line.data(), kName.data(), kName.size()) != 0) continue;
    const auto sources = words_of(line.substr(kName.size()));
    if (!sources.empty()) return fmt::format("{}", fmt::join(sources, " "));
  }
  return "files";
}

}  // namespace yoke::container
