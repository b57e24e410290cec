#include "yoke/slurm/job/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "yoke/base/format.h"
#include "yoke/base/json.h"
#include "yoke/base/table.h"

namespace yoke::slurm {
namespace {

Job job_of(const Evidence& evidence) {
  if (evidence.job) {
    auto job = *evidence.job;
    // The accounts may have more about a job that ended, and its GPUs.
    if (!evidence.accounts.empty()) {
      job.num_gpus = std::max(job.num_gpus, evidence.accounts.back().job.num_gpus);
      if (job.user.empty()) job.user = evidence.accounts.back().job.user;
    }
    return job;
  }
  if (!evidence.accounts.empty()) {
    auto job = evidence.accounts.back().job;
    const auto is_whole = [](const Account& one) { return one.job.state != "RESIZING"; };  // else a part of a run
    const auto num_runs = std::ranges::count_if(evidence.accounts, is_whole);
    job.num_restarts = std::max(job.num_restarts, static_cast<int64_t>(num_runs) - 1);
    return job;
  }
  // Samples may be of some nodes, of visible GPUs and of a part of the time, so they do not say how much the job has.
  Job job{.number = evidence.samples.front().job};
  job.id = std::to_string(job.number);
  for (const auto& node : evidence.samples) job.num_restarts = std::max(job.num_restarts, node.restart);
  return job;
}

Seconds since(Time begin, Time end) { return std::max(Seconds(0), std::chrono::duration_cast<Seconds>(end - begin)); }

void add_times(UseReport& report, const Evidence& evidence) {
  if (evidence.accounts.empty()) {
    const auto& job = report.job;
    if (job.num_restarts > 0 && job.is_waiting() && job.submitted && evidence.now) {
      report.restart_wait = since(*job.submitted, *evidence.now);
    }
    if (!job.started || !job.submitted || job.is_waiting()) return;
    // After a restart slurmctld has the time at which the job was put back.
    if (job.num_restarts == 0) {  // of tasks of arrays see Account::planned
      const auto eligible = job.array ? std::nullopt : job.eligible;
      report.queue_wait = since(std::max(*job.submitted, eligible.value_or(*job.submitted)), *job.started);
    } else {
      report.restart_wait = since(*job.submitted, *job.started);
    }
    return;
  }
  report.queue_wait = evidence.accounts.front().planned;
  std::vector<Job> runs;
  for (const auto& account : evidence.accounts) runs.push_back(account.job);
  if (account_of_run(evidence) == nullptr) runs.push_back(report.job);
  for (size_t i = 1; i < runs.size(); ++i) {
    const auto& run = runs[i];
    if (runs[i - 1].state == "RESIZING") continue;  // the same run, with other nodes
    // Of a run that waits, the start is what Slurm expects. The pause after a restart is lost as well.
    const auto until = run.is_waiting() ? evidence.now : run.started;
    if (run.submitted && until) {
      report.restart_wait = report.restart_wait.value_or(Seconds(0)) + since(*run.submitted, *until);
    }
    report.earlier_runs = report.earlier_runs.value_or(Seconds(0)) + runs[i - 1].elapsed;
  }
}

/// Whether the samples are of all nodes and of nearly the whole run.
bool covers_run(const UseReport& report) {
  return static_cast<int64_t>(report.nodes.size()) >= report.job.num_nodes &&
         report.sampled_seconds >= 0.9 * static_cast<double>(report.job.elapsed.count());
}

void add_samples(UseReport& report) {
  double gpu_sum = 0, gpu_seconds = 0, cpu_seconds = 0, cpu_capacity = 0, energy_mj = 0;
  int64_t memory = 0, with_files = 0, limit = 0, num_idle = 0;
  bool has_cpu = !report.nodes.empty(), has_memory = has_cpu, has_files = has_cpu, has_limit = has_cpu;
  for (const auto& node : report.nodes) {
    report.sampled_seconds = std::max(report.sampled_seconds, node.seconds);
    has_cpu = has_cpu && node.cpu_seconds.has_value();
    has_memory = has_memory && node.memory_peak_bytes.has_value();
    has_files = has_files && node.memory_with_files_peak_bytes.has_value();
    with_files += node.memory_with_files_peak_bytes.value_or(0);
    report.is_out_of_memory = report.is_out_of_memory || node.num_oom_kills.value_or(0) > 0;
    has_limit = has_limit && node.memory_limit_bytes.has_value();
    cpu_seconds += node.cpu_seconds.value_or(0);
    cpu_capacity += node.seconds * static_cast<double>(node.num_cpus);
    // Less than a thousandth of one CPU: the sampling itself takes about that.
    num_idle += node.cpu_seconds && *node.cpu_seconds < node.seconds / 1000 ? 1 : 0;
    memory += node.memory_peak_bytes.value_or(0);
    limit += node.memory_limit_bytes.value_or(0);
    for (const auto& device : node.devices) {
      if (!device.mean_percent || device.known_seconds <= 0) continue;
      ++report.num_seen_gpus;
      gpu_sum += *device.mean_percent * device.known_seconds;
      gpu_seconds += device.known_seconds;
      report.num_unused_gpus += *device.mean_percent <= 0 ? 1 : 0;
      energy_mj += static_cast<double>(device.energy_mj.value_or(0));
      if (device.memory_peak_bytes.value_or(0) > report.gpu_memory_peak_bytes.value_or(-1)) {
        report.gpu_memory_peak_bytes = device.memory_peak_bytes;
        report.gpu_memory_total_bytes = device.memory_total_bytes;
      }
    }
  }
  if (gpu_seconds > 0) {
    report.gpu_percent = gpu_sum / gpu_seconds;
    report.gpu_source = "yoke";
  }
  if (has_cpu && cpu_capacity > 0) {
    report.cpu_percent = 100 * cpu_seconds / cpu_capacity;
    report.cpu_source = "yoke";
    report.num_idle_nodes = num_idle;
  }
  if (has_memory) report.memory_peak_bytes = memory;
  if (has_files) report.memory_with_files_peak_bytes = with_files;
  if (has_limit) report.memory_limit_bytes = limit;
  if (energy_mj > 0) {
    report.energy_joules = energy_mj / 1000;
    report.energy_source = "yoke, GPUs alone";
  }
}

void add_account(UseReport& report, const Account& account) {
  const auto capacity = static_cast<double>(account.job.num_cpus) * static_cast<double>(account.job.elapsed.count());
  if (!report.cpu_percent && account.cpu_seconds && capacity > 0 && !report.is_running) {
    report.cpu_percent = 100 * *account.cpu_seconds / capacity;
    report.cpu_source = "Slurm";
  }
  const auto sum = account.peak_sum_bytes ? account.peak_sum_bytes : account.peak_task_bytes;
  if (!report.memory_peak_bytes || (report.is_memory_partial && sum > report.memory_peak_bytes)) {
    report.memory_peak_bytes = sum;
    report.is_memory_estimate = sum.has_value();
  } else {  // a task may have had a peak between two samples
    report.memory_peak_bytes = std::max(report.memory_peak_bytes, account.peak_task_bytes);
  }
  if (sum) report.is_memory_partial = report.is_running;  // Slurm tells of steps that have ended
  report.is_out_of_memory = report.is_out_of_memory || account.is_out_of_memory;
  if (account.memory_bytes) report.memory_limit_bytes = account.memory_bytes;
  if (!report.gpu_percent && account.gpu_percent) {
    report.gpu_percent = account.gpu_percent;
    report.gpu_source = "Slurm";
    report.gpu_memory_peak_bytes = account.gpu_peak_bytes;
  }
  if (account.energy_joules) {  // of whole nodes, so it is the better figure
    report.energy_joules = account.energy_joules;
    report.energy_source = "Slurm, nodes";
  }
}

void add_unknowns(UseReport& report, const Evidence& evidence) {
  auto& unknown = report.unknown;
  const auto& job = report.job;
  if (job.is_waiting() && job.num_restarts == 0) {
    unknown.emplace_back("the job has not started, so it has used nothing");
    return;
  }
  const bool is_sampled = !report.nodes.empty();
  if (!report.is_known) {
    unknown.push_back(
        "the state, time, nodes, CPUs and GPUs of the job are not known; all figures are of the part that "
        "was sampled" +
        (evidence.why_no_job.empty() ? "" : ": " + evidence.why_no_job));
  }
  if (!is_sampled && !job.user.empty() && !evidence.reader.empty() && job.user != evidence.reader) {
    unknown.push_back(
        fmt::format("samples of this job, if there are any, are in a folder of {} and were not read; "
                    "YOKE_SLURM_SAMPLES names another folder",
                    job.user));
  }
  if (job.num_gpus > 0 && !report.gpu_percent) {
    unknown.push_back(is_sampled
                          ? "the use of the GPUs is not known: no driver told it on the nodes"
                          : "the use of the GPUs is not known: the job was not sampled (`yoke run` and `yoke slurm "
                            "sample -- PROGRAM` do it), and Slurm does not account it here (gres/gpuutil)");
  }
  if (!evidence.why_no_accounts.empty()) unknown.push_back(evidence.why_no_accounts);
  if (!report.cpu_percent) {
    unknown.emplace_back(report.is_running ? "the use of the CPUs is not known before the job's steps end"
                                           : "the use of the CPUs is not known");
  }
  if (!report.memory_peak_bytes) unknown.emplace_back("the peak of memory is not known");
  if (report.is_memory_estimate) {
    unknown.emplace_back(
        "the peak of memory is the sum of the peaks of the tasks of steps that ran at once, as Slurm polled them; "
        "shorter "
        "peaks were not seen");
  }
  if (is_sampled && report.memory_peak_bytes && !report.is_memory_estimate) {
    unknown.push_back(fmt::format(
        "the peak of memory is the largest that samples saw; peaks between samples were not seen{}",
        report.memory_with_files_peak_bytes ? fmt::format(". With cached files, the memory was never over {}",
                                                          format_bytes(*report.memory_with_files_peak_bytes))
                                            : ""));
  }
  if (!report.energy_joules) unknown.emplace_back("energy is not known: neither Slurm nor the devices told it");
  if (job.num_restarts > 0 && !report.earlier_runs) {
    unknown.emplace_back("how long the earlier runs took is not known: only accounts have that");
  }
  if (evidence.job && !evidence.accounts.empty() && account_of_run(evidence) == nullptr) {
    unknown.emplace_back("the accounts have nothing about the present run yet");
  }
  if (is_sampled && job.elapsed.count() > 60 &&
      report.sampled_seconds < 0.9 * static_cast<double>(job.elapsed.count())) {
    unknown.push_back(fmt::format("{} of {} were sampled; the rest of the job may have been otherwise",
                                  format_duration(Seconds(static_cast<int64_t>(report.sampled_seconds))),
                                  format_duration(job.elapsed)));
  }
  if (is_sampled && static_cast<int64_t>(report.nodes.size()) < job.num_nodes) {
    unknown.push_back(fmt::format("{} of {} nodes were sampled", report.nodes.size(), job.num_nodes));
  }
}

std::string percent_text(const std::optional<double>& percent) {
  return percent ? fmt::format("{:.0f} %", *percent) : "?";
}

std::string bytes_text(const std::optional<int64_t>& bytes) { return bytes ? format_bytes(*bytes) : "?"; }

std::string of_total(const std::optional<int64_t>& used, const std::optional<int64_t>& total) {
  return total ? fmt::format("{} of {}", bytes_text(used), format_bytes(*total)) : bytes_text(used);
}

std::string heading(const Job& job) {
  const auto or_empty = [](const std::string& format, const std::string& text) {
    return text.empty() ? "" : fmt::format(fmt::runtime(format), printable(text));
  };
  return fmt::format("job {}{}{}: {}{}, {}{}, {}{}\n", short_id(job), or_empty(" ({})", job.name),
                     or_empty(" of {}", job.user), job.state.empty() ? "state not known" : job.state,
                     or_empty(", partition {}", job.partition), counted(job.num_nodes, "node"),
                     or_empty(" ({})", job.node_list), counted(job.num_cpus, "CPU"),
                     job.num_gpus > 0 ? fmt::format(", {}", counted(job.num_gpus, "GPU")) : "");
}

std::string time_text(const UseReport& report) {
  if (!report.is_known) {
    return fmt::format("not known; {} were sampled",
                       format_duration(Seconds(static_cast<int64_t>(report.sampled_seconds))));
  }
  auto text = format_duration(report.job.elapsed);
  if (report.job.limit) {
    text += fmt::format(" of {} ({})", format_duration(*report.job.limit), percent_text(report.time_percent()));
  }
  if (report.queue_wait) text += fmt::format(", after {} in the queue", format_rough_duration(*report.queue_wait));
  return text;
}

std::string node_table(const UseReport& report, int64_t width) {
  Table table{.columns = {{"node"},
                          {"CPUs", Align::kRight},
                          {"memory", Align::kRight},
                          {"GPU"},
                          {"busy", Align::kRight},
                          {"GPU memory", Align::kRight},
                          {"power", Align::kRight, 0, 1},
                          {"name", Align::kLeft, 8, 2}}};
  for (const auto& node : report.nodes) {
    const auto capacity = node.seconds * static_cast<double>(node.num_cpus);
    const auto cpu =
        node.cpu_seconds && capacity > 0 ? std::optional(100 * *node.cpu_seconds / capacity) : std::nullopt;
    std::vector<std::string> begin = {node.host, fmt::format("{} of {}", percent_text(cpu), node.num_cpus),
                                      bytes_text(node.memory_peak_bytes)};
    if (node.devices.empty()) {
      table.rows.push_back({begin[0], begin[1], begin[2], "-", "-", "-", "-", ""});
    }
    for (const auto& device : node.devices) {
      table.rows.push_back({begin[0], begin[1], begin[2], device.id, percent_text(device.mean_percent),
                            of_total(device.memory_peak_bytes, device.memory_total_bytes),
                            device.mean_power_mw ? fmt::format("{} W", *device.mean_power_mw / 1000) : "?",
                            device.name});
      begin = {"", "", ""};
    }
  }
  return to_text(table, width);
}

}  // namespace

std::optional<double> UseReport::time_percent() const {
  if (!job.limit || job.limit->count() == 0) return std::nullopt;
  return std::min(100.0, 100.0 * static_cast<double>(job.elapsed.count()) / static_cast<double>(job.limit->count()));
}

const Account* account_of_run(const Evidence& evidence) {
  if (evidence.accounts.empty()) return nullptr;
  const auto& last = evidence.accounts.back();
  const auto known = evidence.job ? evidence.job->submitted : std::nullopt;
  return known && last.job.submitted && *last.job.submitted < *known ? nullptr : &last;
}

UseReport make_report(const Evidence& evidence) {
  UseReport report{.job = job_of(evidence)};
  report.is_running = !report.job.state.empty() && !report.job.has_ended() && !report.job.is_waiting();
  report.is_known = evidence.job || !evidence.accounts.empty();
  report.is_out_of_memory = report.job.state == "OUT_OF_MEMORY";
  report.nodes = evidence.samples;
  report.unknown = evidence.doubts;
  add_times(report, evidence);
  add_samples(report);
  report.is_memory_partial = report.memory_peak_bytes && (report.is_running || !covers_run(report));
  if (const auto* account = account_of_run(evidence)) add_account(report, *account);
  add_unknowns(report, evidence);
  return report;
}

Json to_json(const UseReport& report, const std::vector<Advice>& advice) {
  const auto advice_json = [](const Advice& one) -> Json {
    return {{"kind", one.kind}, {"is_serious", one.is_serious}, {"text", one.text}};
  };
  const auto seconds = [](const auto& known) { return known ? Json(known->count()) : Json(); };
  auto job = to_json(report.job);
  if (!report.is_known) {
    for (const auto* key : {"state", "nodes", "num_nodes", "num_cpus", "num_gpus", "elapsed_seconds"}) job[key] = {};
  }
  return {{"job", job},
          {"time_percent", or_null(report.time_percent())},
          {"queue_wait_seconds", seconds(report.queue_wait)},
          {"restart_wait_seconds", seconds(report.restart_wait)},
          {"earlier_runs_seconds", seconds(report.earlier_runs)},
          {"sampled_seconds", report.sampled_seconds},
          {"gpu_percent", or_null(report.gpu_percent)},
          {"gpu_source", or_null(report.gpu_source)},
          {"num_unused_gpus", report.gpu_source == "yoke" ? Json(report.num_unused_gpus) : Json()},
          {"gpu_memory_peak_bytes", or_null(report.gpu_memory_peak_bytes)},
          {"gpu_memory_total_bytes", or_null(report.gpu_memory_total_bytes)},
          {"cpu_percent", or_null(report.cpu_percent)},
          {"cpu_source", or_null(report.cpu_source)},
          {"memory_peak_bytes", or_null(report.memory_peak_bytes)},
          {"memory_limit_bytes", or_null(report.memory_limit_bytes)},
          {"memory_with_files_peak_bytes", or_null(report.memory_with_files_peak_bytes)},
          {"is_out_of_memory", report.is_out_of_memory},
          {"energy_joules", or_null(report.energy_joules)},
          {"energy_source", or_null(report.energy_source)},
          {"nodes", json_list(report.nodes, [](const auto& node) { return to_json(node); })},
          {"advice", json_list(advice, advice_json)},
          {"unknown", report.unknown}};
}

std::string to_text(const UseReport& report, const std::vector<Advice>& advice, int64_t width) {
  const auto& job = report.job;
  std::string text =
      report.is_known ? heading(job) : fmt::format("job {}: state, nodes, CPUs and GPUs not known\n", job.id);
  const auto line = [&](std::string_view label, const std::string& value) {
    text += fmt::format("  {:<9} {}\n", label, value);
  };
  line("time", time_text(report));
  if (job.num_restarts > 0) {
    std::vector<std::string> parts = {std::to_string(job.num_restarts)};
    if (report.earlier_runs)
      parts.push_back(fmt::format("earlier runs took {}", format_rough_duration(*report.earlier_runs)));
    if (report.restart_wait)
      parts.push_back(fmt::format("{} in the queue again", format_rough_duration(*report.restart_wait)));
    std::string joined;
    for (const auto& part : parts) joined += (joined.empty() ? "" : "; ") + part;
    line("restarts", joined);
  }
  if (report.gpu_percent) {
    line("GPUs", fmt::format("{} busy, memory peak {} (sampled by {})", percent_text(report.gpu_percent),
                             of_total(report.gpu_memory_peak_bytes, report.gpu_memory_total_bytes), report.gpu_source));
  }
  if (report.cpu_percent) {
    int64_t num_sampled = 0;
    for (const auto& node : report.nodes) num_sampled += node.num_cpus;
    line("CPUs", fmt::format("{} of {} busy ({})", percent_text(report.cpu_percent),
                             report.is_known ? job.num_cpus : num_sampled,
                             report.cpu_source == "yoke" ? "sampled by yoke" : "accounted by Slurm"));
  }
  const auto memory = of_total(report.memory_peak_bytes, report.memory_limit_bytes);
  if (report.is_out_of_memory) {
    line("memory",
         report.memory_peak_bytes ? "did not suffice; the largest that was seen: " + memory : "did not suffice");
  } else if (report.memory_peak_bytes) {
    line("memory", memory);
  }
  if (report.energy_joules) {
    line("energy", fmt::format("{:.1f} Wh ({})", *report.energy_joules / 3600, report.energy_source));
  }
  if (!report.nodes.empty()) text += "\n" + node_table(report, width);
  if (!advice.empty()) text += "\nadvice\n";
  for (const auto& one : advice) text += fmt::format("  {} {}\n", one.is_serious ? "!" : "-", one.text);
  if (!report.unknown.empty()) text += "\nnot known\n";
  for (const auto& sentence : report.unknown) text += fmt::format("  - {}\n", sentence);
  return text;
}

}  // namespace yoke::slurm
