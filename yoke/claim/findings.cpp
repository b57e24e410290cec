#include "yoke/claim/findings.h"

#include <fmt/format.h>

#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/base/text.h"
#include "yoke/claim/allocate.h"
#include "yoke/claim/detail/survey.h"
#include "yoke/claim/policy.h"
#include "yoke/contract/variables.h"

namespace yoke::claim {
namespace {

using device::Finding;
using device::Status;

/// The default of the site's setting from when on an idle claim is reported.
constexpr std::chrono::hours kLongIdle(1);

std::string id_of_key(const std::vector<Candidate>& candidates, const std::string& key) {
  for (const auto& candidate : candidates) {
    if (!candidate.key.empty() && key_in_name(candidate.key) == key) return candidate.id;
  }
  return "";
}

void check_holding(const ClaimState& state, const Holding& holding, const std::string& id, Time now,
                   std::vector<Finding>& findings) {
  const std::vector<std::string> devices = id.empty() ? std::vector<std::string>() : std::vector{id};
  const auto name = id.empty() ? printable(holding.key) + " " : "";
  if (!holding.note) {
    findings.push_back(
        {"claim-locks", Status::kWarn, devices,
         fmt::format("{}locked {}, but not by yoke", name,
                     holding.doubt.empty() ? "by " + holder_text(holding) : holding.doubt),
         "nobody can claim it; ask that user what the lock is for, or as root end the process, or remove "
         "the file of the lock: claims do not depend on it alone"});
    return;
  }
  const auto& note = state.survey.notes[*holding.note].note;
  if (!holding.is_locked) {
    findings.push_back({"claim-locks", Status::kWarn, devices,
                        fmt::format("{}the lock file of the claim of {} was replaced", name, holder_text(holding)),
                        "the device is still not given to others; files in " + state.folder + " must not be removed"});
  }
  const auto idle = note ? idle_time(*note, holding.key, now) : std::nullopt;
  const auto limit = state.idle.warn.value_or(kLongIdle);
  if (!idle || *idle < limit) return;
  findings.push_back(
      {"claim-idle", Status::kWarn, devices,
       fmt::format("{}claimed by {}, and not used for {}", name, holder_text(holding), format_rough_duration(*idle)),
       fmt::format("its user can `yoke release {}`; idle_end in /etc/yoke/config.toml ends such claims",
                   holding.pid.value_or(0))});
}

void check_unclaimed_use(const Survey& survey, const std::vector<Candidate>& candidates,
                         std::vector<Finding>& findings) {
  for (const auto& candidate : candidates) {
    if (candidate.standing != Standing::kInUse || survey.find(candidate.key) != nullptr) continue;
    findings.push_back({"claim-missing", Status::kWarn, std::vector{candidate.id}, candidate.reason,
                        "nobody is given the device; its user can claim it with `yoke claim --adopt PID`"});
  }
}

/// Somebody computes on a device that another user has claimed. Processes of root are the driver's and the site's.
void check_use_of_others(const Survey& survey, const std::string& id, const device::Device& device,
                         std::vector<Finding>& findings) {
  const auto* const holding = survey.find(device.facts.uuid);
  if (holding == nullptr || !holding->uid || holding->share_bytes) return;
  for (const auto& process : device.processes) {
    const auto& info = process.info;
    const bool is_of_a_user = info.uid.value_or(0) != 0 && info.user.find_first_not_of("0123456789") != info.user.npos;
    if (process.type == "graphics" || !is_of_a_user || info.uid == holding->uid) continue;
    findings.push_back({"claim-foreign-use", Status::kWarn, std::vector{id},
                        fmt::format("claimed by {}, and used by {} (pid {})", holder_text(*holding),
                                    printable(info.user), process.pid),
                        "ask that user to claim devices, or as root end the process"});
  }
}

}  // namespace

ClaimState read_claim_state(const Environment& environment) {
  ClaimState state;
  site::LeftOut left_out;
  try {
    const auto config = read_config(environment, &left_out);
    state.config_problem = left_out.problem;
    state.idle = config.idle;
    state.is_prepared = !(config == SiteConfig()) || !state.config_problem.empty();
    auto folder = find_lock_folder(config, environment);
    state.folder = folder.path().string();
    state.obstacles = folder.obstacles();
    state.is_prepared = state.is_prepared || state.folder == "/run/yoke" || environment.find(variable::kClaimDir);
    state.survey = Ledger(std::move(folder)).look_without_lock();
  } catch (const Error& error) {
    state.folder_problem = error.what();
    state.is_prepared = state.is_prepared || error.code() != ErrorCode::kNotFound;
  }
  return state;
}

std::vector<Finding> claim_findings(const ClaimState& state, const device::Snapshot& snapshot, Time now) {
  std::vector<Finding> findings;
  if (!state.is_prepared && state.survey.holdings.empty()) return findings;
  const auto add = [&](const char* id, Status status, const std::string& found, const char* advice) {
    findings.push_back({id, status, {}, found, advice});
  };
  if (!state.config_problem.empty()) {
    add("claim-config", Status::kFail, state.config_problem,
        "until that is mended, nobody can claim; `yoke admin check` looks at the whole installation");
  }
  if (!state.folder_problem.empty()) {
    add("claim-folder", Status::kFail, state.folder_problem,
        "until that is mended, nobody can claim; docs/claim.md has the section for administrators");
    return findings;
  }
  if (!state.folder.empty()) add("claim-folder", Status::kOk, "devices are claimed in " + state.folder, "");
  for (const auto& obstacle : state.obstacles) {
    add("claim-lock", Status::kWarn, printable(obstacle),
        "until then nobody is given that device or, if it is yoke-alloc, each claim waits for a second");
  }
  const auto candidates = candidates_of(snapshot, {});
  for (const auto& holding : state.survey.holdings) {
    check_holding(state, holding, id_of_key(candidates, holding.key), now, findings);
  }
  check_unclaimed_use(state.survey, candidates, findings);
  for (const auto& one : snapshot.devices) {
    check_use_of_others(state.survey, id_of(one), one, findings);
    for (const auto& instance : one.instances) {
      check_use_of_others(state.survey, fmt::format("{}:{}", one.index, instance.index), instance, findings);
    }
  }
  return findings;
}

}  // namespace yoke::claim
