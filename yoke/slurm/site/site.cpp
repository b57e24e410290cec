#include "yoke/slurm/site/site.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <initializer_list>

#include "yoke/base/error.h"
#include "yoke/base/toml_text.h"

namespace yoke::slurm {
namespace {

/// A table of a site's file, whose keys are all known.
class SiteTable {
 public:
  SiteTable(const toml::table* values, std::string title, const std::string& file,
            std::initializer_list<std::string_view> known)
      : values_(values), title_(std::move(title)), file_(file) {
    if (values_ == nullptr) return;
    for (const auto& [key, value] : *values_) {
      if (std::find(known.begin(), known.end(), key.str()) != known.end()) continue;
      refuse(value, fmt::format("{} has no key {}; it has {}", title_, key.str(), fmt::join(known, ", ")));
    }
  }

  const toml::node* find(std::string_view key) const { return values_ == nullptr ? nullptr : values_->get(key); }

  SiteTable table(std::string_view key, std::initializer_list<std::string_view> known) const {
    const auto* const node = find(key);
    if (node != nullptr && !node->is_table()) refuse(*node, fmt::format("{} is a table: write [{}]", key, key));
    return {node == nullptr ? nullptr : node->as_table(), fmt::format("[{}]", key), file_, known};
  }

  /// A text in one line of which a script can be made.
  std::string text(std::string_view key) const {
    const auto* const node = find(key);
    return node == nullptr ? "" : text_of(*node, key);
  }

  std::vector<std::string> texts(std::string_view key) const {
    std::vector<std::string> result;
    const auto* const node = find(key);
    if (node == nullptr) return result;
    if (!node->is_array()) refuse(*node, fmt::format("{} takes a list of texts, such as [\"a\", \"b\"]", key));
    for (const auto& one : *node->as_array()) result.push_back(text_of(one, key));
    return result;
  }

  std::optional<int64_t> count(std::string_view key, int64_t most) const {
    const auto* const node = find(key);
    if (node == nullptr) return std::nullopt;
    const auto value = node->value_exact<int64_t>();
    if (!value || *value < 0 || *value > most) {
      refuse(*node, fmt::format("{} takes a whole number up to {}", key, most));
    }
    return value;
  }

  bool flag(std::string_view key) const {
    const auto* const node = find(key);
    if (node == nullptr) return false;
    const auto value = node->value_exact<bool>();
    if (!value) refuse(*node, fmt::format("{} takes true or false", key));
    return *value;
  }

  const toml::table* values() const { return values_; }

  [[noreturn]] void refuse(const toml::node& node, const std::string& why) const {
    throw Error(ErrorCode::kDataLoss, "{}:{}: {}", file_, node.source().begin.line, why);
  }

  std::string text_of(const toml::node& node, std::string_view key) const {
    const auto value = node.value_exact<std::string>();
    if (!value) refuse(node, fmt::format("{} takes a text in quotes", key));
    // Values become parts of a shell script. $NAME is wanted there; commands and the ends of quotes are not.
    for (size_t i = 0; i < value->size(); ++i) {
      const auto c = static_cast<unsigned char>((*value)[i]);
      const bool is_command = c == '$' && i + 1 < value->size() && (*value)[i + 1] == '(';
      if (c < ' ' || c == 0x7f || c == '`' || c == '"' || c == '\\' || is_command) {
        refuse(node, fmt::format("{} may not have quotes, backslashes, `, $( and control characters", key));
      }
    }
    return *value;
  }

 private:
  const toml::table* values_;
  std::string title_;
  const std::string& file_;
};

bool is_variable_name(std::string_view name) {
  const auto is_letter = [](char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_'; };
  return !name.empty() && is_letter(name[0]) &&
         std::ranges::all_of(name, [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

std::vector<GpuPlace> read_gpus(const SiteTable& root, const std::string& file) {
  std::vector<GpuPlace> result;
  const auto* const node = root.find("gpu");
  if (node == nullptr) return result;
  if (!node->is_array_of_tables()) root.refuse(*node, "gpu is a list of tables: write [[gpu]] for each GPU");
  CpuSet taken;
  for (const auto& one : *node->as_array()) {
    const SiteTable table(one.as_table(), "[[gpu]]", file, {"cpus", "mask", "numa", "pci"});
    GpuPlace place{.cpus = {}, .numa_node = table.count("numa", 4095), .pci = table.text("pci")};
    const auto list = table.text("cpus"), mask = table.text("mask");
    if (!list.empty() && !mask.empty()) root.refuse(one, "cpus and mask are two ways to say the same; give one");
    const auto cpus = mask.empty() ? CpuSet::parse_list(list) : CpuSet::parse_mask(mask);
    if (!cpus) root.refuse(one, "cpus takes a list such as \"0-7,64-71\", and mask a number such as \"0xff\"");
    if (cpus->intersects(taken)) root.refuse(one, "these CPUs belong to an earlier [[gpu]] already");
    taken |= *cpus;
    place.cpus = *cpus;
    result.push_back(std::move(place));
  }
  const auto has_cpus = [](const GpuPlace& place) { return !place.cpus.empty(); };
  if (std::ranges::any_of(result, has_cpus) && !std::ranges::all_of(result, has_cpus)) {
    root.refuse(*node, "some [[gpu]] have cpus and others have none; give all or none");
  }
  return result;
}

std::string quoted_list(const std::vector<std::string>& words) {
  std::vector<std::string> quoted;
  for (const auto& word : words) quoted.push_back('"' + word + '"');
  return fmt::format("[{}]", fmt::join(quoted, ", "));
}

void check_choice(const SiteTable& table, std::string_view key, const std::string& value,
                  std::initializer_list<std::string_view> choices) {
  if (value.empty() || std::find(choices.begin(), choices.end(), value) != choices.end()) return;
  table.refuse(*table.find(key), fmt::format("{} is one of {}", key, fmt::join(choices, ", ")));
}

/// Words of `module` go into scripts as they are.
void check_modules(const SiteTable& table, const std::vector<std::string>& modules) {
  for (const auto& words : modules) {
    if (!is_module_text(words)) {
      table.refuse(*table.find("modules"), "modules takes words of the command module, such as \"load rocm\"");
    }
  }
}

}  // namespace

bool is_module_text(std::string_view words) {
  return !words.empty() && std::ranges::all_of(words, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view(" ._+-/:@").find(c) != std::string_view::npos;
  });
}

Site parse_site(std::string_view text, const std::string& name) {
  toml::table file;
  check_toml_text(text, name);
  try {
    file = toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    throw Error(ErrorCode::kDataLoss, "{}:{}: {}", name, error.source().begin.line, error.description());
  }
  const SiteTable root(&file, "a site's file", name,
                       {"name", "summary", "sources", "checked", "detect", "slurm", "node", "gpu", "launch", "network",
                        "modules", "environment", "cache", "container"});
  Site site{.name = root.text("name"),
            .summary = root.text("summary"),
            .sources = root.texts("sources"),
            .checked = root.text("checked")};
  if (site.name.empty()) throw Error(ErrorCode::kDataLoss, "{}:1: name is missing, such as name = \"lumi-g\"", name);
  site.modules = root.texts("modules");
  check_modules(root, site.modules);

  const auto detect = root.table("detect", {"clusters", "hosts"});
  site.clusters = detect.texts("clusters");
  site.hosts = detect.texts("hosts");

  const auto slurm = root.table("slurm", {"version", "partition", "whole_node_partitions", "needs_account", "options"});
  if (const auto* const version = slurm.find("version")) {
    site.version = parse_version(slurm.text("version"));
    if (!site.version) slurm.refuse(*version, "version takes a version of Slurm, such as \"23.11\"");
  }
  site.partition = slurm.text("partition");
  site.whole_node_partitions = slurm.texts("whole_node_partitions");
  site.needs_account = slurm.flag("needs_account");
  site.options = slurm.texts("options");
  for (const auto& option : site.options) {
    if (!option.starts_with("--") || option.find_first_of(" #") != option.npos) {
      slurm.refuse(*slurm.find("options"),
                   "options takes long options without spaces, such as \"--hint=nomultithread\"");
    }
  }

  const auto node = root.table("node", {"gpus", "gpu_type", "vendor", "cpus", "cpus_per_gpu", "memory_per_gpu"});
  site.num_gpus = node.count("gpus", 1024).value_or(0);
  site.gpu_type = node.text("gpu_type");
  if (site.gpu_type.find_first_of(" :,#") != std::string::npos) {
    node.refuse(*node.find("gpu_type"),
                "gpu_type takes the name of a type as `sinfo -o %G` prints it, such as \"a100\"");
  }
  site.vendor = node.text("vendor");
  check_choice(node, "vendor", site.vendor, {"nvidia", "amd"});
  site.num_cpus = node.count("cpus", CpuSet::kMaxCpus);
  site.cpus_per_gpu = node.count("cpus_per_gpu", CpuSet::kMaxCpus);
  site.memory_per_gpu = node.text("memory_per_gpu");
  if (site.num_cpus && site.cpus_per_gpu && *site.cpus_per_gpu * site.num_gpus > *site.num_cpus) {
    node.refuse(*node.find("cpus_per_gpu"), "cpus_per_gpu times gpus is more than cpus: such jobs never run");
  }
  site.gpus = read_gpus(root, name);
  if (!site.gpus.empty() && static_cast<int64_t>(site.gpus.size()) != site.num_gpus) {
    root.refuse(*root.find("gpu"),
                fmt::format("there are {} [[gpu]], but [node] gpus is {}", site.gpus.size(), site.num_gpus));
  }

  const auto launch = root.table("launch", {"launcher"});
  site.launcher = launch.text("launcher");
  check_choice(launch, "launcher", site.launcher, {"srun", "yoke"});
  const auto network = root.table("network", {"nccl_interfaces", "gloo_interface", "master_suffix"});
  site.nccl_interfaces = network.text("nccl_interfaces");
  site.gloo_interface = network.text("gloo_interface");
  site.master_suffix = network.text("master_suffix");

  const auto* const environment = root.find("environment");
  if (environment != nullptr) {
    if (!environment->is_table()) root.refuse(*environment, "environment is a table: write [environment]");
    for (const auto& [key, value] : *environment->as_table()) {
      if (!is_variable_name(key.str())) root.refuse(value, fmt::format("{} is not the name of a variable", key.str()));
      site.variables.emplace_back(std::string(key.str()), root.text_of(value, key.str()));
    }
  }
  const auto cache = root.table("cache", {"folder", "variables"});
  site.cache_folder = cache.text("folder");
  site.cache_variables = cache.texts("variables");
  if (site.cache_folder.empty() != site.cache_variables.empty()) {
    root.refuse(*root.find("cache"), "[cache] takes both folder and variables");
  }
  for (const auto& variable : site.cache_variables) {
    constexpr std::array kOfUsers = {"HOME", "USER", "PATH", "PWD", "SHELL", "TMPDIR", "LD_LIBRARY_PATH"};
    if (!is_variable_name(variable) || std::ranges::find(kOfUsers, variable) != kOfUsers.end()) {
      root.refuse(*root.find("cache"), "variables takes names of variables that name folders of caches");
    }
  }
  const auto container = root.table("container", {"command", "overlay", "modules"});
  site.container = container.texts("command");
  site.container_overlay = container.text("overlay");
  site.container_modules = container.texts("modules");
  check_modules(container, site.container_modules);
  return site;
}

std::string to_toml(const Site& site) {
  std::string text;
  const auto line = [&](std::string_view key, const std::string& value) {
    if (!value.empty()) text += fmt::format("{} = \"{}\"\n", key, value);
  };
  const auto list = [&](std::string_view key, const std::vector<std::string>& words) {
    if (!words.empty()) text += fmt::format("{} = {}\n", key, quoted_list(words));
  };
  const auto number = [&](std::string_view key, const std::optional<int64_t>& value) {
    if (value) text += fmt::format("{} = {}\n", key, *value);
  };
  /// Removes a title that has no keys.
  const auto section = [&](std::string_view title, const auto& write) {
    const auto before = text.size();
    text += fmt::format("\n[{}]\n", title);
    const auto begin = text.size();
    write();
    if (text.size() == begin) text.resize(before);
  };
  line("name", site.name);
  line("summary", site.summary);
  list("sources", site.sources);
  line("checked", site.checked);
  list("modules", site.modules);
  section("detect", [&] {
    list("clusters", site.clusters);
    list("hosts", site.hosts);
  });
  section("slurm", [&] {
    if (site.version) line("version", to_text(*site.version));
    line("partition", site.partition);
    list("whole_node_partitions", site.whole_node_partitions);
    if (site.needs_account) text += "needs_account = true\n";
    list("options", site.options);
  });
  section("node", [&] {
    if (site.num_gpus > 0) number("gpus", site.num_gpus);
    line("gpu_type", site.gpu_type);
    line("vendor", site.vendor);
    number("cpus", site.num_cpus);
    number("cpus_per_gpu", site.cpus_per_gpu);
    line("memory_per_gpu", site.memory_per_gpu);
  });
  for (const auto& gpu : site.gpus) {
    text += "\n[[gpu]]\n";
    line("cpus", gpu.cpus.to_list());
    number("numa", gpu.numa_node);
    line("pci", gpu.pci);
  }
  section("launch", [&] { line("launcher", site.launcher); });
  section("network", [&] {
    line("nccl_interfaces", site.nccl_interfaces);
    line("gloo_interface", site.gloo_interface);
    line("master_suffix", site.master_suffix);
  });
  section("environment", [&] {
    for (const auto& [key, value] : site.variables) line(key, value);
  });
  section("cache", [&] {
    line("folder", site.cache_folder);
    list("variables", site.cache_variables);
  });
  section("container", [&] {
    list("command", site.container);
    line("overlay", site.container_overlay);
    list("modules", site.container_modules);
  });
  return text;
}

bool matches(std::string_view pattern, std::string_view text) {
  if (pattern.empty()) return text.empty();
  if (pattern[0] == '*') {
    while (!pattern.empty() && pattern[0] == '*') pattern.remove_prefix(1);
    if (pattern.empty()) return true;
    for (size_t i = 0; i < text.size(); ++i) {
      if (matches(pattern, text.substr(i))) return true;
    }
    return false;
  }
  return !text.empty() && (pattern[0] == '?' || pattern[0] == text[0]) && matches(pattern.substr(1), text.substr(1));
}

const Site* choose_site(const std::vector<Site>& sites, std::string_view cluster, std::string_view host) {
  const auto any = [](const std::vector<std::string>& patterns, std::string_view text) {
    return !text.empty() && std::ranges::any_of(patterns, [&](const auto& pattern) { return matches(pattern, text); });
  };
  for (const auto& site : sites) {
    if (any(site.clusters, cluster)) return &site;
  }
  for (const auto& site : sites) {
    const bool is_of_another_cluster = !cluster.empty() && !site.clusters.empty();
    if (!is_of_another_cluster && any(site.hosts, host)) return &site;
  }
  return nullptr;
}

}  // namespace yoke::slurm
