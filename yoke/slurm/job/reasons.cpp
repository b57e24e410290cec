// The words for Slurm's reasons. Source: slurm.schedmd.com/job_reason_codes.html and job_reason_str() in Slurm's
// sources.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "yoke/base/shell.h"
#include "yoke/base/text.h"
#include "yoke/slurm/job/job.h"

namespace yoke::slurm {
namespace {

struct ReasonRow {
  std::string_view reason;
  ReasonWords words;
};

constexpr std::string_view kWait = "it starts by itself; nothing has to be done";

constexpr std::array kReasons = std::to_array<ReasonRow>({
    {"Priority",
     {"other jobs in the partition have a higher priority", "a shorter --time may let it fill a gap earlier"}},
    {"Resources", {"it is the next one, and waits until enough nodes or devices are free", kWait}},
    {"BeginTime", {"its start time has not come (--begin, or a pause after a restart)", kWait}},
    {"Dependency", {"it waits for a job that it depends on", kWait}},
    {"DependencyNeverSatisfied",
     {"a job that it depends on ended in another way than it asked for, so it never starts",
      "`scancel JOB` removes it"}},
    {"JobHeldUser", {"its user holds it", "`scontrol release JOB` lets it start"}},
    {"JobHeldAdmin", {"an administrator holds it", "ask the administrators of the cluster why"}},
    {"JobArrayTaskLimit", {"as many tasks of its array run as the array allows (%N in --array)", kWait}},
    {"PartitionTimeLimit",
     {"its time limit is longer than the partition allows, so it never starts",
      "`scontrol update JobId=JOB TimeLimit=...` or another partition; `sinfo -o '%P %l'` shows the limits"}},
    {"PartitionNodeLimit",
     {"it asks for more, or fewer, nodes than the partition gives to a job, so it never starts",
      "ask for another number of nodes, or another partition"}},
    {"PartitionConfig", {"the partition does not allow what it asks for", "compare it with `scontrol show partition`"}},
    {"PartitionDown", {"the partition starts no jobs now", "`sinfo` shows when, or which other partition is up"}},
    {"PartitionInactive", {"the partition accepts no jobs now", "choose another partition"}},
    {"ReqNodeNotAvail",
     {"nodes that it needs are down, drained or reserved, perhaps for maintenance that begins before its time limit "
      "ends",
      "`scontrol show reservation` and `sinfo -R` show why; a shorter --time may end before the maintenance"}},
    {"NodeDown", {"a node that it needs is down", "`sinfo -R` shows why"}},
    {"Nodes required for job are DOWN",
     {"nodes that it needs are down, drained, or kept for jobs of a higher priority", "`sinfo -R` shows why"}},
    {"BadConstraints",
     {"no node has what it asks for (--constraint, devices, memory), so it never starts",
      "compare the request with `scontrol show node`"}},
    {"Reservation", {"its reservation has not begun, or has no free nodes", "`scontrol show reservation` shows when"}},
    {"ReservationDeleted", {"its reservation no longer exists", "`scontrol update JobId=JOB Reservation=`"}},
    {"Licenses", {"it waits for a licence", kWait}},
    {"Cleaning", {"its earlier run is still being cleaned up", kWait}},
    {"Prolog", {"the site's prolog runs on its nodes", kWait}},
    {"InvalidAccount", {"its account does not exist", "`sacctmgr show associations user=$USER` lists the accounts"}},
    {"AccountNotAllowed", {"its account may not use the partition", "choose another partition or --account"}},
    {"InvalidQOS", {"its QOS is not valid", "choose another --qos"}},
    {"QOSNotAllowed", {"its QOS is not allowed in the partition", "choose another --qos or partition"}},
    {"JobLaunchFailure",
     {"it could not be started on its nodes: perhaps a file system is missing or the disk is full",
      "release it after the cause is mended, or ask the administrators"}},
    {"launch failed requeued held",
     {"it could not be started on its nodes, and Slurm holds it",
      "`scontrol release JOB` tries again; ask the administrators if it repeats"}},
    {"job requeued in held state",
     {"it was put back into the queue and is held", "`scontrol release JOB` lets it start"}},
    {"NonZeroExitCode", {"its script ended with an error", "`yoke slurm logs JOB` shows what it printed"}},
    {"RaisedSignal", {"a signal ended it", "`yoke slurm logs JOB` shows what it printed"}},
    {"TimeLimit", {"it reached its time limit", "`yoke slurm resume JOB` goes on from its newest checkpoint"}},
    {"OutOfMemory", {"it used more memory than it had asked for", "ask for more with --mem"}},
    {"InactiveLimit", {"it was inactive for too long", ""}},
    {"SystemFailure", {"Slurm or a node failed", "submit it again, or ask the administrators"}},
    {"FedJobLock", {"the clusters of its federation agree on where it starts", kWait}},
});

/// scontrol writes '_' where squeue writes blanks.
bool is_same(std::string_view text, std::string_view reason) {
  return std::ranges::equal(text, reason, [](char a, char b) { return a == b || (a == '_' && b == ' '); });
}

}  // namespace

ReasonWords explain_reason(std::string_view reason) {
  // Such as "ReqNodeNotAvail, UnavailableNodes:n2" and "Nodes required for job are DOWN, DRAINED or reserved ...".
  const auto head = reason.substr(0, reason.find(','));
  for (const auto& row : kReasons) {
    if (is_same(head, row.reason)) return row.words;
  }
  if (head.find("Minutes") != head.npos && head.find("RunMinutes") == head.npos) {
    return {"a budget of hours, of its account, its user or its QOS, is used up or smaller than the job",
            "a shorter --time may fit; `sacctmgr show associations user=$USER` lists the budgets"};
  }
  if (head.starts_with("AssocGrp") || head.starts_with("AssocMax")) {
    return {"its account, or its user in that account, has reached a limit of the site",
            "it starts when other jobs have ended or the limit's period is over; "
            "`sacctmgr show associations user=$USER` lists the limits"};
  }
  if (head.starts_with("QOS")) {
    return {"its QOS has reached a limit of the site",
            "it starts when other jobs have ended; `sacctmgr show qos` lists the limits"};
  }
  if (head.starts_with("MaxCpuPerAccount") || head.starts_with("MaxMemPerLimit") || head.starts_with("MaxNodePer")) {
    return {"it asks for more than a limit of the site allows", "ask for less"};
  }
  if (head.starts_with("burst_buffer") || head.starts_with("BurstBuffer")) {
    return {"it waits for the burst buffer", kWait};
  }
  return {};
}

bool never_starts(std::string_view reason) {
  return explain_reason(reason).meaning.find("never starts") != std::string_view::npos;
}

std::string state_text(const Job& job) {
  auto text = fmt::format("job {} is {}", job.id, job.state);
  if (!job.is_waiting() || job.reason.empty()) return text;
  const auto [meaning, next] = explain_reason(job.reason);
  text += meaning.empty() ? fmt::format(" ({})", printable(job.reason))
                          : fmt::format(": {} ({})", meaning, printable(job.reason));
  if (next.empty() || next == kWait) return text;
  std::string advice(next);
  const auto id = shell_word(job.id);  // "'120_[4-9]'"
  for (auto at = advice.find("JOB"); at != advice.npos; at = advice.find("JOB", at + id.size())) {
    advice.replace(at, 3, id);
  }
  return text + "; " + advice;
}

}  // namespace yoke::slurm
