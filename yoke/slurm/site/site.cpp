#include "yoke/slurm/site/site.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <initializer_list>

#include "yoke/base/error.h"
#include "yoke/site/config.h"

namespace yoke::slurm {
namespace {

/// Values become parts of a shell script. $NAME is wanted there; commands and the ends of quotes are not.
std::string why_not_in_script(std::string_view key, std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c < ' ' || c == 0x7f || c == '`' || c == '"' || c == '\\' || text.substr(i).starts_with("$(")) {
      return fmt::format("{} may not have quotes, backslashes, `, $( and control characters", key);
    }
  }
  return "";
}

/// A text in one line of which a script can be made; empty if there is none.
std::string text_in(const site::Section& table, std::string_view key) {
  return table.text(key, why_not_in_script).value_or("");
}

std::vector<std::string> texts_in(const site::Section& table, std::string_view key) {
  return table.texts(key, why_not_in_script).value_or(std::vector<std::string>());
}

site::Section table_in(const site::Section& root, std::string_view key, std::initializer_list<std::string_view> known) {
  auto table = root.section(key);
  table.check_keys(known);
  return table;
}

bool is_variable_name(std::string_view name) {
  const auto is_letter = [](char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_'; };
  return !name.empty() && is_letter(name[0]) &&
         std::ranges::all_of(name, [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

std::vector<GpuPlace> read_gpus(const site::Section& root) {
  std::vector<GpuPlace> result;
  CpuSet taken;
  for (const auto& table : root.sections("gpu")) {
    table.check_keys({"cpus", "mask", "numa", "pci"});
    GpuPlace place{.cpus = {}, .numa_node = table.count("numa", 4095), .pci = text_in(table, "pci")};
    const auto list = text_in(table, "cpus"), mask = text_in(table, "mask");
    if (!list.empty() && !mask.empty()) table.refuse("", "cpus and mask are two ways to say the same; give one");
    const auto cpus = mask.empty() ? CpuSet::parse_list(list) : CpuSet::parse_mask(mask);
    if (!cpus) table.refuse("", "cpus takes a list such as \"0-7,64-71\", and mask a number such as \"0xff\"");
    if (cpus->intersects(taken)) table.refuse("", "these CPUs belong to an earlier [[gpu]] already");
    taken |= *cpus;
    place.cpus = *cpus;
    result.push_back(std::move(place));
  }
  const auto has_cpus = [](const GpuPlace& place) { return !place.cpus.empty(); };
  if (std::ranges::any_of(result, has_cpus) && !std::ranges::all_of(result, has_cpus)) {
    root.refuse("gpu", "some [[gpu]] have cpus and others have none; give all or none");
  }
  return result;
}

std::string quoted_list(const std::vector<std::string>& words) {
  std::vector<std::string> quoted;
  for (const auto& word : words) quoted.push_back('"' + word + '"');
  return fmt::format("[{}]", fmt::join(quoted, ", "));
}

void check_choice(const site::Section& table, std::string_view key, const std::string& value,
                  std::initializer_list<std::string_view> choices) {
  if (value.empty() || std::ranges::find(choices, value) != choices.end()) return;
  table.refuse(key, fmt::format("{} is one of {}", key, fmt::join(choices, ", ")));
}

/// Words of `module` go into scripts as they are.
std::vector<std::string> modules_in(const site::Section& table) {
  auto modules = texts_in(table, "modules");
  if (std::ranges::all_of(modules, is_module_text)) return modules;
  table.refuse("modules", "modules takes words of the command module, such as \"load rocm\"");
}

}  // namespace

bool is_module_text(std::string_view words) {
  return !words.empty() && std::ranges::all_of(words, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view(" ._+-/:@").find(c) != std::string_view::npos;
  });
}

Site parse_site(std::string_view text, const std::string& name) {
  const auto root = site::Section::parse(text, name);
  root.check_keys({"name", "summary", "sources", "checked", "detect", "slurm", "node", "gpu", "launch", "network",
                   "modules", "environment", "cache", "container"});
  Site site{.name = text_in(root, "name"),
            .summary = text_in(root, "summary"),
            .sources = texts_in(root, "sources"),
            .checked = text_in(root, "checked")};
  if (site.name.empty()) throw Error(ErrorCode::kDataLoss, "{}:1: name is missing, such as name = \"lumi-g\"", name);
  site.modules = modules_in(root);

  const auto detect = table_in(root, "detect", {"clusters", "hosts"});
  site.clusters = texts_in(detect, "clusters");
  site.hosts = texts_in(detect, "hosts");

  const auto slurm =
      table_in(root, "slurm", {"version", "partition", "whole_node_partitions", "needs_account", "options"});
  if (const auto version = slurm.text("version", why_not_in_script)) {
    site.version = parse_version(*version);
    if (!site.version) slurm.refuse("version", "version takes a version of Slurm, such as \"23.11\"");
  }
  site.partition = text_in(slurm, "partition");
  site.whole_node_partitions = texts_in(slurm, "whole_node_partitions");
  site.needs_account = slurm.flag("needs_account").value_or(false);
  site.options = texts_in(slurm, "options");
  for (const auto& option : site.options) {
    if (!option.starts_with("--") || option.find_first_of(" #") != option.npos) {
      slurm.refuse("options", "options takes long options without spaces, such as \"--hint=nomultithread\"");
    }
  }

  const auto node = table_in(root, "node", {"gpus", "gpu_type", "vendor", "cpus", "cpus_per_gpu", "memory_per_gpu"});
  site.num_gpus = node.count("gpus", 1024).value_or(0);
  site.gpu_type = text_in(node, "gpu_type");
  if (site.gpu_type.find_first_of(" :,#") != std::string::npos) {
    node.refuse("gpu_type", "gpu_type takes the name of a type as `sinfo -o %G` prints it, such as \"a100\"");
  }
  site.vendor = text_in(node, "vendor");
  check_choice(node, "vendor", site.vendor, {"nvidia", "amd"});
  site.num_cpus = node.count("cpus", CpuSet::kMaxCpus);
  site.cpus_per_gpu = node.count("cpus_per_gpu", CpuSet::kMaxCpus);
  site.memory_per_gpu = text_in(node, "memory_per_gpu");
  if (site.num_cpus && site.cpus_per_gpu && *site.cpus_per_gpu * site.num_gpus > *site.num_cpus) {
    node.refuse("cpus_per_gpu", "cpus_per_gpu times gpus is more than cpus: such jobs never run");
  }
  site.gpus = read_gpus(root);
  if (!site.gpus.empty() && static_cast<int64_t>(site.gpus.size()) != site.num_gpus) {
    root.refuse("gpu", fmt::format("there are {} [[gpu]], but [node] gpus is {}", site.gpus.size(), site.num_gpus));
  }

  const auto launch = table_in(root, "launch", {"launcher"});
  site.launcher = text_in(launch, "launcher");
  check_choice(launch, "launcher", site.launcher, {"srun", "yoke"});
  const auto network = table_in(root, "network", {"nccl_interfaces", "gloo_interface", "master_suffix"});
  site.nccl_interfaces = text_in(network, "nccl_interfaces");
  site.gloo_interface = text_in(network, "gloo_interface");
  site.master_suffix = text_in(network, "master_suffix");

  const auto environment = root.section("environment");
  for (const auto& key : environment.keys()) {
    if (!is_variable_name(key)) environment.refuse(key, fmt::format("{} is not the name of a variable", key));
    site.variables.emplace_back(key, text_in(environment, key));
  }
  const auto cache = table_in(root, "cache", {"folder", "variables"});
  site.cache_folder = text_in(cache, "folder");
  site.cache_variables = texts_in(cache, "variables");
  if (site.cache_folder.empty() != site.cache_variables.empty()) {
    root.refuse("cache", "[cache] takes both folder and variables");
  }
  for (const auto& variable : site.cache_variables) {
    constexpr std::array kOfUsers = {"HOME", "USER", "PATH", "PWD", "SHELL", "TMPDIR", "LD_LIBRARY_PATH"};
    if (!is_variable_name(variable) || std::ranges::find(kOfUsers, variable) != kOfUsers.end()) {
      root.refuse("cache", "variables takes names of variables that name folders of caches");
    }
  }
  const auto container = table_in(root, "container", {"command", "overlay", "modules"});
  site.container = texts_in(container, "command");
  site.container_overlay = text_in(container, "overlay");
  site.container_modules = modules_in(container);
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

bool matches_any(const std::vector<std::string>& patterns, std::string_view text) {
  return std::ranges::any_of(patterns, [&](const auto& pattern) { return matches(pattern, text); });
}

const Site* choose_site(const std::vector<Site>& sites, std::string_view cluster, std::string_view host) {
  for (const auto& site : sites) {
    if (!cluster.empty() && matches_any(site.clusters, cluster)) return &site;
  }
  for (const auto& site : sites) {
    const bool is_of_another_cluster = !cluster.empty() && !site.clusters.empty();
    if (!is_of_another_cluster && !host.empty() && matches_any(site.hosts, host)) return &site;
  }
  return nullptr;
}

}  // namespace yoke::slurm
