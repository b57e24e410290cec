// Rules about CPUs of tasks: masks, maps, and whether they are near the task's GPU.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "yoke/base/cpu_set.h"
#include "yoke/slurm/check/rules.h"
#include "yoke/slurm/words/cpu_bind.h"

namespace yoke::slurm::check {
namespace {

/// What --cpu-bind of a step lists: a set of CPUs for each task of a node.
struct BindList {
  int64_t line = 0;
  bool is_mask = false;
  std::vector<std::optional<CpuSet>> tasks;  ///< nullopt: not a number.
  std::vector<std::string> words;
};

std::optional<BindList> bind_list(const Request& request) {
  const auto bind = parse_cpu_bind(request.value("cpu-bind"));
  const bool is_mask = bind.effective == "mask_cpu";
  if (bind.is_refused() || (!is_mask && bind.effective != "map_cpu")) return std::nullopt;
  BindList list{request.line_of("cpu-bind"), is_mask, {}, {}};
  for (const auto& [text, count] : bind.entries) {
    auto cpus = is_mask ? CpuSet::parse_mask(text) : CpuSet::parse_list(text);
    for (int64_t i = 0; i < std::min<int64_t>(count, 1024); ++i) {
      list.tasks.push_back(cpus);
      list.words.push_back((is_mask ? "0x" : "") + text);
    }
  }
  return list;
}

void for_each_list(
    const Subject& subject,
    const std::function<void(const BindList& list, const Request& request, const Layout& layout)>& visit) {
  if (subject.program == kSrun) {
    if (const auto list = bind_list(subject.script.job()))
      visit(*list, subject.script.job(), layout_of(subject.script.job()));
    return;
  }
  for (const auto& step : steps_of(subject)) {
    if (const auto list = bind_list(step.request)) visit(*list, step.request, step.layout);
  }
}

const SiteFacts* gpu_facts(const Subject& subject) {
  const auto& job = subject.script.job();
  return built_in_facts(job.value("partition"), job.value("account"));
}

/// Calls `visit` for each --cpu-bind of srun whose value is known.
void for_each_bind(const Subject& subject,
                   const std::function<void(const CpuBind& bind, const std::string& value, int64_t line)>& visit) {
  for_each_request(subject, [&](const Request& request, Program program, bool /*is_step*/) {
    const auto value = request.value("cpu-bind");
    if (program != kSrun || value.empty() || value.find('$') != value.npos) return;
    visit(parse_cpu_bind(value), value, request.line_of("cpu-bind"));
  });
}

void check_bad_bind(const Subject& subject, Finder& finder) {
  for_each_bind(subject, [&](const CpuBind& bind, const std::string& value, int64_t line) {
    if (!bind.empty_list.empty()) {
      finder.add(line, fmt::format("--cpu-bind={} has no list, and is refused", value));
    } else if (!bind.unknown_word.empty()) {
      finder.add(line, fmt::format("srun refuses --cpu-bind={}: unrecognized --cpu-bind argument \"{}\"", value,
                                   bind.unknown_word));
    }
  });
}

void check_bad_list(const Subject& subject, Finder& finder) {
  for_each_bind(subject, [&](const CpuBind& bind, const std::string& /*value*/, int64_t line) {
    if (bind.bad_entry.empty()) return;
    finder.add(line, fmt::format("\"{}\" in --cpu-bind is not a {}, and srun refuses it", bind.bad_entry,
                                 bind.is_mask_entry ? "mask, such as 0xff" : "decimal number"));
  });
}

void check_bind_words(const Subject& subject, Finder& finder) {
  for_each_bind(subject, [&](const CpuBind& bind, const std::string& value, int64_t line) {
    const std::set<std::string> kinds(bind.kinds.begin(), bind.kinds.end());
    if (bind.is_refused() || kinds.size() < 2) return;
    finder.add(line, fmt::format("--cpu-bind={} names {} kinds of binding, and only {} counts", value, kinds.size(),
                                 bind.effective));
  });
}

void check_rank_bind(const Subject& subject, Finder& finder) {
  for_each_bind(subject, [&](const CpuBind& bind, const std::string& /*value*/, int64_t line) {
    if (std::ranges::find(bind.kinds, std::string_view("rank")) == bind.kinds.end()) return;
    finder.add(line, "--cpu-bind=rank does not exist since Slurm 24.11");
  });
}

void check_mask_count(const Subject& subject, Finder& finder) {
  for_each_list(subject, [&](const BindList& list, const Request& /*request*/, const Layout& layout) {
    const auto count = static_cast<int64_t>(list.tasks.size());
    if (!layout.ntasks_per_node || count == 0) return;
    const auto sharing = (*layout.ntasks_per_node + count - 1) / count;
    const bool is_meant =
        *layout.ntasks_per_node % count == 0 &&
        std::ranges::all_of(list.tasks, [&](const auto& cpus) { return cpus && cpus->size() >= sharing; });
    if (count < *layout.ntasks_per_node && is_meant) {
      finder.add_as(Severity::kNote, list.line,
                    fmt::format("{} tasks of a node share each entry of --cpu-bind", sharing));
    } else if (count < *layout.ntasks_per_node) {
      finder.add(list.line,
                 fmt::format("--cpu-bind lists {} {}{}, but a node has {} tasks; Slurm begins again with the first "
                             "one, so tasks share CPUs",
                             count, list.is_mask ? "mask" : "CPU", count == 1 ? "" : "s", *layout.ntasks_per_node));
    } else if (count > *layout.ntasks_per_node) {
      finder.add_as(Severity::kNote, list.line,
                    fmt::format("--cpu-bind lists {} entries, but a node has {}; the last ones are not used", count,
                                counted(*layout.ntasks_per_node, "task")));
    }
  });
}

void check_mask_overlap(const Subject& subject, Finder& finder) {
  for_each_list(subject, [&](const BindList& list, const Request& /*request*/, const Layout& layout) {
    const auto num_tasks = std::min<int64_t>(std::ssize(list.tasks), layout.ntasks_per_node.value_or(1024));
    for (size_t i = 0; i < static_cast<size_t>(num_tasks); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (!list.tasks[i] || !list.tasks[j] || !list.tasks[i]->intersects(*list.tasks[j])) continue;
        finder.add(list.line, fmt::format("the CPUs of the tasks {} and {} of a node overlap: {}", j, i,
                                          (*list.tasks[i] & *list.tasks[j]).to_list()));
        return;
      }
    }
  });
}

void check_mask_reserved(const Subject& subject, Finder& finder) {
  const auto* facts = gpu_facts(subject);
  if (facts == nullptr) return;
  if (subject.script.job().has("core-spec")) return;  // then Slurm does not compare masks with the job's CPUs
  for_each_list(subject, [&](const BindList& list, const Request& /*request*/, const Layout& /*layout*/) {
    for (size_t i = 0; i < list.tasks.size(); ++i) {
      if (!list.tasks[i] || !list.tasks[i]->intersects(facts->reserved_cpus)) continue;
      finder.add(list.line,
                 fmt::format("entry {} ({}) of --cpu-bind has CPU {}, which the system keeps; srun says: CPU binding "
                             "outside of job step allocation",
                             i, list.words[i], (*list.tasks[i] & facts->reserved_cpus).to_list()),
                 "On LUMI-G, leave out the first core of each group of 8: 0xfe instead of 0xff.");
      return;
    }
  });
}

/// Whether tasks choose the GPU of their local rank, or have the GPUs in order.
bool chooses_by_rank(const Script& script) {
  return script.text.find("SLURM_LOCALID") != std::string::npos ||
         script.text.find("LOCAL_RANK") != std::string::npos ||
         script.text.find("map_gpu:0,1,2,3,4,5,6,7") != std::string::npos;
}

void check_mask_far(const Subject& subject, Finder& finder) {
  const auto* facts = gpu_facts(subject);
  if (facts == nullptr) return;
  for_each_list(subject, [&](const BindList& list, const Request& /*request*/, const Layout& layout) {
    if (layout.ntasks_per_node != static_cast<int64_t>(facts->gpu_cpus.size()) ||
        list.tasks.size() != facts->gpu_cpus.size() || !chooses_by_rank(subject.script)) {
      return;
    }
    std::vector<size_t> wrong;
    for (size_t i = 0; i < list.tasks.size(); ++i) {
      if (list.tasks[i] && !list.tasks[i]->is_subset_of(facts->gpu_cpus[i])) wrong.push_back(i);
    }
    if (wrong.empty()) return;
    finder.add(
        list.line,
        fmt::format("the CPUs of local rank{} {} are not on the NUMA node of the GPU with the same number",
                    wrong.size() == 1 ? "" : "s", fmt::join(wrong, ", ")),
        list.is_mask
            ? "On LUMI-G: mask_cpu:fe000000000000,fe00000000000000,fe0000,fe000000,fe,fe00,fe00000000,fe0000000000"
            : "On LUMI-G: map_cpu:49,57,17,25,1,9,33,41");
  });
}

void check_mask_shared_node(const Subject& subject, Finder& finder) {
  const auto* facts = gpu_facts(subject);
  if (facts == nullptr || subject.script.job().has("exclusive")) return;
  const auto found = facts->partitions.find(subject.script.job().value("partition"));
  if (found == facts->partitions.end() || found->second.is_whole_node) return;
  if (subject.script.job().value("mem") == "0" && subject.script.job().gpus_per_node() == 8) return;
  for_each_list(subject, [&](const BindList& list, const Request& /*request*/, const Layout& layout) {
    if (layout.gpus_per_node == 8) return;  // all GPUs of a node: in effect the whole node
    finder.add(list.line,
               fmt::format("masks name CPUs of the whole node, but jobs in {} get a part of it: srun refuses CPUs that "
                           "the job does not have",
                           subject.script.job().value("partition")),
               "Add --exclusive, or use a partition of whole nodes, or leave --cpu-bind out.");
  });
}

void check_mask_and_cpus(const Subject& subject, Finder& finder) {
  for_each_list(subject, [&](const BindList& list, const Request& request, const Layout& layout) {
    const auto cpus = request.has("cpus-per-task") ? request.count("cpus-per-task") : layout.cpus_per_task;
    if (!cpus || *cpus == 1) return;
    for (size_t i = 0; i < list.tasks.size(); ++i) {
      if (!list.tasks[i] || list.tasks[i]->size() >= *cpus || !list.is_mask) continue;
      finder.add(list.line, fmt::format("mask {} has {}, but --cpus-per-task is {}: threads would share them",
                                        list.words[i], counted(list.tasks[i]->size(), "CPU"), *cpus));
      return;
    }
  });
}

constexpr const char* kLumi = "docs.lumi-supercomputer.eu, LUMI-G example batch scripts; Distribution and binding";
constexpr const char* kRefusedMasks =
    "docs.lumi-supercomputer.eu, LUMI-G example batch scripts; Slurm src/plugins/task/affinity/dist_tasks.c, "
    "_validate_mask and _validate_map, 22.05.8 to 26.05.3";
constexpr const char* kTaskMasks = "Slurm src/plugins/task/affinity/affinity.c, get_cpuset, 22.05.8 to 26.05.3";

constexpr Rule kBindingRules[] = {
    {"bad-cpu-bind", Severity::kError, "", "", "--cpu-bind with a word that srun does not know", "srun refuses it.",
     "It takes none, cores, threads, sockets, ldoms, map_cpu:LIST, mask_cpu:LIST, ...", "srun 22.05.8", check_bad_bind},
    {"bad-cpu-list", Severity::kError, "", "", "A mask or CPU that is not a number",
     "srun refuses it: Failed to validate number.", "Masks are hexadecimal, and CPUs decimal.", "srun 22.05.8",
     check_bad_list},
    {"cpu-bind-words", Severity::kWarning, "", "", "--cpu-bind with several kinds of binding",
     "srun takes one of them, and drops the others without a message.", "Keep the one that is meant.",
     "Slurm src/common/slurm_resource_info.c, slurm_verify_cpu_bind; srun 22.05.8", check_bind_words},
    {"cpu-bind-rank", Severity::kError, "24.11", "", "--cpu-bind=rank", "It was removed.",
     "Use --cpu-bind=cores or map_cpu:LIST.", "Slurm CHANGELOG 24.11.0rc1: Remove srun --cpu-bind=rank",
     check_rank_bind},
    {"mask-count", Severity::kWarning, "", "", "Fewer masks than tasks on a node",
     "Slurm uses the list again from its beginning.", "List one mask for each task of a node.", kTaskMasks,
     check_mask_count},
    {"mask-overlap", Severity::kWarning, "", "", "Masks of tasks overlap", "The tasks compete for these CPUs.",
     "Give each task CPUs of its own.", kTaskMasks, check_mask_overlap},
    {"mask-reserved-cpu", Severity::kError, "", "", "A mask with a CPU that the system keeps",
     "Such CPUs are not in any allocation.", "Leave it out.", kRefusedMasks, check_mask_reserved},
    {"mask-misses-gpu", Severity::kWarning, "", "", "A mask on another NUMA node than the task's GPU",
     "Copies to the GPU then cross the sockets' links. The order of GPUs is not that of NUMA nodes.",
     "Order the masks like the GPUs.", kLumi, check_mask_far},
    {"mask-on-shared-node", Severity::kWarning, "", "", "Masks in a job that has a part of a node",
     "Masks count the CPUs of the node, and the job may have others.", "Ask for whole nodes.", kRefusedMasks,
     check_mask_shared_node},
    {"mask-smaller-than-cpus", Severity::kWarning, "", "", "A mask with fewer CPUs than --cpus-per-task",
     "Threads share CPUs, and the others are idle.", "Let both agree.", kTaskMasks, check_mask_and_cpus},
};

}  // namespace

std::span<const Rule> binding_rules() { return kBindingRules; }

}  // namespace yoke::slurm::check
