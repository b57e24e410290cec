#include "yoke/device/process/detail/cgroup_path.h"

#include <algorithm>
#include <array>
#include <utility>

#include "yoke/base/environment.h"
#include "yoke/base/text.h"

namespace yoke::device {
namespace {

bool is_hexadecimal(std::string_view text) { return text.find_first_not_of("0123456789abcdef") == text.npos; }

bool is_container_id(std::string_view text) { return text.size() == 64 && is_hexadecimal(text); }

/// Removes `end` from the end of `text`. Returns whether `text` ended with it.
bool strip_end(std::string_view& text, std::string_view end) {
  if (!text.ends_with(end)) return false;
  text.remove_suffix(end.size());
  return true;
}

/// Replaces "\x2d", systemd's escape for "-" in a name, by "-".
std::string unescape(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const bool is_dash = text.starts_with("\\x2d");
    result += is_dash ? '-' : text[0];
    text.remove_prefix(is_dash ? 4 : 1);
  }
  return result;
}

/// Parses runtime and id in "docker-ID.scope", "libpod-ID.scope", "crio-ID" or "...slice:cri-containerd:ID". Scopes of
/// monitor processes ("libpod-conmon-ID.scope") are not containers.
std::optional<Container> named_container(std::string_view segment) {
  strip_end(segment, ".scope");
  if (segment.size() <= 64 || !is_container_id(segment.substr(segment.size() - 64))) return std::nullopt;
  const auto id = segment.substr(segment.size() - 64);
  auto before = segment.substr(0, segment.size() - 65);
  before = before.substr(before.find_last_of(':') == before.npos ? 0 : before.find_last_of(':') + 1);
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kRuntimes = {{
      {"docker", "docker"},
      {"libpod", "podman"},
      {"libpod-payload", "podman"},
      {"crio", "cri-o"},
      {"cri-containerd", "containerd"},
      {"nerdctl", "containerd"},
      {"containerd", "containerd"},
      {"libcontainer", "container"},
  }};
  for (const auto& [prefix, runtime] : kRuntimes) {
    if (before == prefix) return Container{.runtime = std::string(runtime), .id = std::string(id)};
  }
  return std::nullopt;
}

/// Returns the UID in "pod<UID>" or "kubepods-burstable-pod<UID>.slice" (there systemd writes "_" for "-"). The UID of
/// a static pod is 32 digits without hyphens.
std::string pod_uid(std::string_view segment) {
  segment = segment.substr(0, segment.find(':'));
  strip_end(segment, ".slice");
  const auto start = segment.rfind("pod");
  if (start == segment.npos || (start > 0 && segment[start - 1] != '-')) return "";
  std::string uid(segment.substr(start + 3));
  std::ranges::replace(uid, '_', '-');
  const bool is_plain = uid.size() == 32 && is_hexadecimal(uid);
  const bool is_uuid = uid.size() == 36 && uid.find_first_not_of("0123456789abcdef-") == uid.npos;
  return is_plain || is_uuid ? uid : "";
}

/// Reads the segments of a cgroup path from the root on. Each segment is inside the one before it.
class PathReader {
 public:
  explicit PathReader(std::string_view path) {
    for (const auto segment : split(path, '/')) {
      if (!segment.empty()) take(segment);
    }
    if (container && !pod_uid_.empty()) {
      container->pod_uid = pod_uid_;
      container->runtime = "kubernetes";
    }
  }

  std::optional<Container> container;
  std::optional<SlurmJob> slurm;
  bool is_tmux = false;
  std::string unit, session;

 private:
  void take(std::string_view segment) {
    take_container(segment);
    take_slurm(segment);
    take_systemd(segment);
    before_ = segment;
  }

  void take_container(std::string_view segment) {
    if (auto uid = pod_uid(segment); !uid.empty()) pod_uid_ = std::move(uid);
    if (is_container_id(segment)) {
      container = Container{.runtime = before_ == "docker" ? "docker" : "container", .id = std::string(segment)};
    } else if (auto named = named_container(segment)) {
      container = std::move(named);
    } else if (before_ == "lxc" || before_ == "lxc.payload") {
      container = Container{.runtime = "lxc", .id = std::string(segment)};
    } else if (constexpr std::string_view kPayload = "lxc.payload."; segment.starts_with(kPayload)) {
      container = Container{.runtime = "lxc", .id = std::string(segment.substr(kPayload.size()))};
    } else if (constexpr std::string_view kMachine = "machine-"; segment.starts_with(kMachine)) {
      auto name = segment.substr(kMachine.size());  // names of systemd-nspawn and libvirt
      if (strip_end(name, ".scope")) container = Container{.runtime = "machine", .id = unescape(name)};
    }
  }

  // Slurm's groups are /slurm/uid_1000/job_1/step_0 or /slurm_NODE/... in cgroup version 1. In version 2 they are
  // /system.slice/slurmstepd.scope/job_1/step_0/user/task_0 or /system.slice/NODE_slurmstepd.scope/...
  void take_slurm(std::string_view segment) {
    is_slurm_ |= segment == "slurm" || segment.starts_with("slurm") || segment.ends_with("slurmstepd.scope");
    if (!is_slurm_) return;
    if (segment.starts_with("job_")) {
      const auto job = parse_int(segment.substr(4));
      if (job && *job > 0) slurm = SlurmJob{.job_id = *job};
    } else if (slurm && segment.starts_with("step_")) {
      slurm->step = slurm_step_name(segment);
    }
  }

  void take_systemd(std::string_view segment) {
    auto name = segment;
    if (name.starts_with("session-") && strip_end(name, ".scope")) {
      session = name.substr(8);
    } else if (name.starts_with("tmux-spawn-")) {
      is_tmux = true;
    } else if (name.ends_with(".service")
                   ? !name.starts_with("user@")
                   : name.ends_with(".scope") && name != "init.scope" && !name.starts_with("vte-spawn-")) {
      unit = unescape(name);
    }
  }

  std::string_view before_;
  std::string pod_uid_;
  bool is_slurm_ = false;
};

bool is_sluid(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
  return text.size() == 14 && text[0] == 's' && text.find_first_not_of(kDigits, 1) == text.npos;
}

}  // namespace

std::optional<SluidGroup> find_sluid_group(std::string_view text) {
  for (const auto line : lines_of(text)) {
    if (!line.starts_with("0::/")) continue;  // version 1 has no such paths
    const auto path = line.substr(3);
    std::string_view before;
    std::optional<SluidGroup> group;
    for (const auto segment : split(path, '/')) {
      if (group) {
        if (segment.starts_with("step_")) group->step = slurm_step_name(segment);
        return group;
      }
      if (before.ends_with("slurmstepd.scope") && is_sluid(segment)) {
        group = SluidGroup{.job_path = std::string(
                               path.substr(0, static_cast<size_t>(segment.data() + segment.size() - path.data())))};
      }
      before = segment;
    }
    if (group) return group;
  }
  return std::nullopt;
}

std::string slurm_step_name(std::string_view text) {
  if (text.starts_with("step_")) text.remove_prefix(5);
  // SLURM_BATCH_SCRIPT, SLURM_EXTERN_CONT and SLURM_INTERACTIVE_STEP of slurm.h. Up to Slurm 20.02 the batch step had
  // the number -2.
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kSpecial = {{
      {"4294967291", "batch"},
      {"4294967294", "batch"},
      {"4294967292", "extern"},
      {"4294967290", "interactive"},
  }};
  for (const auto& [number, name] : kSpecial) {
    if (text == number) return std::string(name);
  }
  return std::string(text);
}

Origin parse_cgroup(std::string_view text) {
  Origin origin;
  for (const auto line : lines_of(text)) {
    const auto first = line.find(':');
    const auto second = first == line.npos ? first : line.find(':', first + 1);
    if (second == line.npos) continue;
    const auto controllers = line.substr(first + 1, second - first - 1);
    PathReader path(line.substr(second + 1));
    // In hybrid setups only some cgroup hierarchies name the container or the job.
    if (path.container && !origin.container) origin.container = std::move(path.container);
    if (path.slurm && (!origin.slurm || origin.slurm->step.empty())) origin.slurm = std::move(path.slurm);
    if (controllers != "name=systemd" && !controllers.empty()) continue;
    if (origin.systemd_unit.empty()) origin.systemd_unit = std::move(path.unit);
    if (origin.login_session.empty()) origin.login_session = std::move(path.session);
    if (path.is_tmux && !origin.tmux) origin.tmux.emplace();
  }
  return origin;
}

}  // namespace yoke::device
