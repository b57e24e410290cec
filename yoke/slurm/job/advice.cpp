// The advice about a job. Source of thresholds and kinds: PrincetonUniversity/jobstats, config.py and
// output_formatters.py.
#include <fmt/format.h>

#include <cmath>

#include "yoke/base/format.h"
#include "yoke/slurm/job/report.h"

namespace yoke::slurm {
namespace {

constexpr Seconds kShortestRun{300};  // jobstats: ten samples of 30 s
constexpr int64_t kGiB = int64_t{1} << 30;

class Adviser {
 public:
  explicit Adviser(const UseReport& report) : report_(report), job_(report.job) {}

  std::vector<Advice> advise() {
    endings();
    restarts();
    const auto length = report_.is_known ? job_.elapsed : Seconds(static_cast<int64_t>(report_.sampled_seconds));
    if (length > kShortestRun) {
      gpus();
      cpus();
      nodes();
      memory();
    }
    time();
    return std::move(advice_);
  }

 private:
  void add(bool is_serious, const char* kind, std::string text) {
    advice_.push_back({is_serious, kind, std::move(text)});
  }

  void endings() {
    if (report_.is_out_of_memory) {
      const auto had =
          report_.memory_limit_bytes ? fmt::format(" ({})", format_bytes(*report_.memory_limit_bytes)) : std::string();
      add(true, "memory-out",
          fmt::format("{}the job needed more memory than it had{}. Ask for more with --mem or --mem-per-cpu",
                      job_.state == "OUT_OF_MEMORY" ? "" : "a process was killed, because ", had));
    }
    if (job_.state == "TIMEOUT") {
      add(true, "time-out",
          "the job reached its time limit. Ask for more with --time, or go on from its newest "
          "checkpoint with `yoke slurm resume`");
    }
  }

  void restarts() {
    if (!report_.earlier_runs || *report_.earlier_runs * 10 <= job_.elapsed) return;
    add(false, "restarts",
        fmt::format("earlier runs of the job took {}. What they computed after their last checkpoint is lost; "
                    "checkpoints more often lose less",
                    format_rough_duration(*report_.earlier_runs)));
  }

  void gpus() {
    if (report_.num_unused_gpus > 0) {
      has_unused_ = true;
      const bool is_one = report_.num_seen_gpus == 1 && report_.is_known;
      add(true, "gpus-unused",
          is_one
              ? "the job did not use its GPU. Does the program find it (`yoke doctor`, `yoke visible`)?"
              : fmt::format("the job did not use {} of {}{} GPUs. Does the program use several GPUs, and does it find "
                            "them (`yoke visible`)?",
                            report_.num_unused_gpus, report_.num_seen_gpus, report_.is_known ? "" : " sampled"));
    }
    if (!report_.gpu_percent || has_unused_) return;
    const auto percent = *report_.gpu_percent;
    if (fits_slice(percent)) {
      add(true, "mig",
          fmt::format("the job used {:.0f} % of one GPU and {} of its memory, with one CPU. A slice of a GPU "
                      "(MIG) would do, if the site has them",
                      percent, format_bytes(*report_.gpu_memory_peak_bytes)));
    } else if (percent <= 15) {
      add(true, "gpu-low",
          fmt::format("the GPUs were busy for only {:.0f} % of the time. `yoke profile` shows what they "
                      "wait for",
                      percent));
    } else if (percent < 25) {
      add(false, "gpu-low",
          fmt::format("the GPUs were busy for {:.0f} % of the time, which is rather low. `yoke profile` "
                      "shows what they wait for",
                      percent));
    }
  }

  /// jobstats' conditions for its slices of 10 GB.
  bool fits_slice(double percent) const {
    return percent < 15 && report_.num_seen_gpus == 1 && job_.num_cpus == 1 && report_.gpu_memory_peak_bytes &&
           *report_.gpu_memory_peak_bytes < 10 * kGiB && report_.memory_peak_bytes &&
           *report_.memory_peak_bytes < 32 * kGiB;
  }

  void cpus() {
    if (report_.num_idle_nodes.value_or(0) > 0) {
      has_unused_ = true;
      add(true, "nodes-idle",
          num_nodes() <= 1 ? "the job did not use its CPUs. Something may have failed at its beginning; `yoke slurm "
                             "logs` shows what it printed"
                           : fmt::format("the job did not use the CPUs of {} of {} nodes. Does the program use "
                                         "several nodes? srun or `yoke run` starts it on all",
                                         *report_.num_idle_nodes, num_nodes()));
      return;
    }
    // With GPUs, few busy CPUs are usual.
    if (!report_.is_known || !report_.cpu_percent || has_gpus()) return;
    const auto percent = *report_.cpu_percent;
    const auto ratio = percent * static_cast<double>(job_.num_cpus) / 100;
    if (job_.num_nodes <= 1 && job_.num_cpus > 1 && ratio > 0.85 && ratio < 1.01) {
      add(percent < 65, "one-core",
          fmt::format("the job used about one of its {} CPUs. If the program cannot use more, "
                      "ask for one (--cpus-per-task=1)",
                      job_.num_cpus));
    } else if (percent <= 80 && job_.num_cpus <= 1) {
      add(percent < 65, "cpu-low",
          fmt::format("the CPU was busy for {:.0f} % of the time; the program waited in the rest, for files perhaps",
                      percent));
    } else if (percent <= 80) {
      add(percent < 65, "cpu-low",
          fmt::format(
              "the CPUs were busy for {:.0f} % of the time; well-filled jobs reach 90 %. Fewer CPUs may take as "
              "long",
              percent));
    }
  }

  int64_t num_nodes() const { return report_.is_known ? job_.num_nodes : static_cast<int64_t>(report_.nodes.size()); }
  bool has_gpus() const { return job_.num_gpus > 0 || report_.num_seen_gpus > 0; }

  void nodes() {
    if (!report_.is_known || job_.num_nodes <= 1) return;
    if (job_.num_gpus == job_.num_nodes) {
      add(false, "fewer-nodes",
          fmt::format("the job had one GPU on each of {} nodes. GPUs of one node are connected faster: ask for fewer "
                      "nodes and more --gpus-per-node",
                      job_.num_nodes));
      return;
    }
    if (has_gpus() || report_.nodes.empty()) return;
    auto least = report_.nodes.front().num_host_cpus;
    for (const auto& node : report_.nodes) least = std::min(least, node.num_host_cpus);
    if (least < job_.num_cpus) return;
    add(false, "fewer-nodes",
        fmt::format("{} CPUs of {} nodes would fit on one node, which has {}. Ask for fewer nodes "
                    "and more --ntasks-per-node",
                    job_.num_cpus, job_.num_nodes, least));
  }

  void memory() {
    if (!report_.is_known || !report_.memory_peak_bytes || report_.memory_limit_bytes.value_or(0) <= 0 || has_unused_ ||
        report_.is_memory_partial || report_.is_out_of_memory ||
        job_.state == "FAILED") {  // it may have failed for want of memory
      return;
    }
    const auto peak = *report_.memory_peak_bytes, limit = *report_.memory_limit_bytes;
    if (static_cast<double>(peak) >= 0.7 * static_cast<double>(limit)) return;
    if (job_.num_gpus > 0 && limit / job_.num_gpus < 50 * kGiB) return;
    const auto on_a_node = static_cast<double>(peak) / static_cast<double>(std::max<int64_t>(1, job_.num_nodes));
    const auto needed = 1.2 * on_a_node / static_cast<double>(kGiB);
    const auto gib = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(needed)));
    if (gib * kGiB * std::max<int64_t>(1, job_.num_nodes) >= limit) return;
    add(false, "memory-low",
        fmt::format(
            "the job used {} of {} of memory. --mem={}G for each node {}, and may shorten the time in the queue",
            format_bytes(peak), format_bytes(limit), gib,
            needed < 0.5 ? "is far more than that" : "leaves a fifth to spare"));
  }

  void time() {
    const auto percent = report_.time_percent();
    if (job_.state != "COMPLETED" || !percent || *percent >= 60 || job_.elapsed <= 3 * kShortestRun || has_unused_)
      return;
    add(*percent <= 10, "time-low",
        fmt::format(
            "the job needed {:.0f} % of its time limit, {}. A shorter --time lets the scheduler start it earlier",
            *percent, format_rough_duration(*job_.limit)));
  }

  const UseReport& report_;
  const Job& job_;
  bool has_unused_ = false;  ///< Something was wrong, so amounts say little.
  std::vector<Advice> advice_;
};

}  // namespace

std::vector<Advice> advise(const UseReport& report) { return Adviser(report).advise(); }

}  // namespace yoke::slurm
