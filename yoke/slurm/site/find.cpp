#include "yoke/slurm/site/find.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/host.h"
#include "yoke/base/process.h"
#include "yoke/base/sysfs.h"
#include "yoke/slurm/words/programs.h"

namespace yoke::slurm {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostSiteBytes = 1 << 20;

FoundSite read_site(const fs::path& path) {
  const auto name = path.string();
  std::error_code error;
  const auto target = fs::weakly_canonical(path, error);  // links are allowed
  const auto text = read_regular_file(error ? path : target, kMostSiteBytes);
  return {.site = parse_site(text, name), .file = name, .why = "", .version = {}};
}

}  // namespace

std::vector<fs::path> site_folders(const Environment& environment, const fs::path& share) {
  std::vector<fs::path> folders;
  if (const auto config = user_folder(UserFolder::kConfig, environment)) folders.push_back(*config / "yoke" / "sites");
  folders.push_back(share / "sites");
  return folders;
}

std::vector<FoundSite> list_sites(const std::vector<fs::path>& folders, std::vector<std::string>& problems) {
  std::vector<FoundSite> sites;
  std::set<std::string> names;
  for (const auto& folder : folders) {
    for (const auto& file : entries_of(folder)) {
      if (file.extension() != ".toml") continue;
      try {
        auto found = read_site(file);
        if (names.insert(found.site.name).second) sites.push_back(std::move(found));
      } catch (const std::exception& problem) {
        problems.emplace_back(problem.what());
      }
    }
  }
  return sites;
}

FoundSite find_site(const std::string& name, const std::vector<fs::path>& folders) {
  if (name.find('/') != name.npos || name.ends_with(".toml")) {
    auto found = read_site(name);
    found.why = "--site";
    found.version = found.site.version;
    return found;
  }
  std::vector<std::string> problems;
  auto sites = list_sites(folders, problems);
  const auto found = std::ranges::find(sites, name, [](const auto& one) { return one.site.name; });
  if (found == sites.end()) {
    std::vector<std::string> names;
    for (const auto& one : sites) names.push_back(one.site.name);
    throw Error(ErrorCode::kNotFound, "there is no site {}; there are: {}. A file's path works too{}", name,
                fmt::join(names, ", "), problems.empty() ? "" : "; unreadable: " + problems.front());
  }
  found->why = "--site";
  found->version = found->site.version;
  return *std::move(found);
}

std::optional<ClusterConfig> ask_config(const Environment& environment) {
  const auto program = find_program("scontrol", environment);
  if (!program) return std::nullopt;
  return parse_config(ask({program->native(), "show", "config"}, environment));
}

Site ask_site(const ClusterConfig& config, const std::string& partition, const Environment& environment,
              std::vector<std::string>& notes) {
  const auto nodes = parse_nodes(ask({"scontrol", "show", "node", "--oneliner"}, environment));
  const auto partitions = parse_partitions(ask({"scontrol", "show", "partition", "--oneliner"}, environment));
  return detect_site(config, nodes, partitions, partition, notes);
}

FoundSite choose_site_here(const std::string& name, const std::string& partition, const Environment& environment,
                           const std::vector<fs::path>& folders, std::vector<std::string>& notes) {
  std::optional<FoundSite> named;
  if (!name.empty()) named = find_site(name, folders);
  std::optional<ClusterConfig> config;
  std::optional<Error> unanswered;
  try {
    config = ask_config(environment);
  } catch (const Error& error) {  // a named site needs no answer, and the host's name may be enough for others
    unanswered = error;
  }
  if (named) {
    // A script for this cluster takes the version of its Slurm. For another cluster, the version here says nothing.
    const auto& clusters = named->site.clusters;
    const bool is_here = config && (clusters.empty() || matches_any(clusters, config->name));
    if (is_here && config->version) named->version = config->version;
    return *std::move(named);
  }
  std::vector<std::string> problems;
  const auto sites = list_sites(folders, problems);
  for (const auto& problem : problems) notes.push_back("a site's file is left out: " + problem);
  std::vector<Site> plain;
  for (const auto& one : sites) plain.push_back(one.site);
  const auto host = host_name();
  if (const auto* const chosen = choose_site(plain, config ? config->name : "", host)) {
    auto found = sites[static_cast<size_t>(chosen - plain.data())];
    const bool is_by_cluster = config && matches_any(chosen->clusters, config->name);
    found.why = is_by_cluster ? "ClusterName " + config->name : "host " + host;
    found.version = config && config->version ? config->version : chosen->version;
    return found;
  }
  if (unanswered) {
    throw Error(unanswered->code(), "{}; `--site NAME` writes a script without asking (`yoke slurm site list`)",
                unanswered->what());
  }
  if (!config) {
    throw Error(ErrorCode::kNotFound,
                "there is no Slurm here (no scontrol in PATH), so the site is not known: give --site NAME; `yoke slurm "
                "site list` lists them");
  }
  return {.site = ask_site(*config, partition, environment, notes),
          .why = "what Slurm says of its nodes",
          .version = config->version};
}

}  // namespace yoke::slurm
