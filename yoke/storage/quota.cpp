#include "yoke/storage/quota.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <linux/fs.h>
#include <linux/quota.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "yoke/base/command_output.h"
#include "yoke/base/environment.h"
#include "yoke/base/file.h"
#include "yoke/base/format.h"
#include "yoke/base/process.h"
#include "yoke/base/text.h"
#include "yoke/storage/mount_table.h"

namespace yoke::storage {
namespace {

constexpr int64_t kQuotaBlock = 1024;  // QIF_DQBLKSIZE: limits are in blocks, use is in bytes

/// Servers without a limit may name an amount that no int64 holds in bytes, such as 2^63 - 1 blocks.
int64_t product_of(int64_t count, int64_t unit) {
  int64_t product = 0;
  return __builtin_mul_overflow(count, unit, &product) ? std::numeric_limits<int64_t>::max() : product;
}

/// Errors by errno, as of quotactl(2). Kernels before 5.14 know a file system only by its device.
bool ask_kernel(int folder, const Mount& mount, int type, int64_t id, if_dqblk& answer) {
  const auto command = static_cast<unsigned int>(QCMD(Q_GETQUOTA, type));
  const auto number = static_cast<unsigned int>(id);
  if (syscall(SYS_quotactl_fd, folder, command, number, &answer) == 0) return true;
  return errno == ENOSYS && syscall(SYS_quotactl, command, mount.source.c_str(), number, &answer) == 0;
}

std::optional<Quota> quota_in_kernel(int folder, const Mount& mount, QuotaOf of, int64_t id) {
  constexpr int kTypes[] = {USRQUOTA, GRPQUOTA, PRJQUOTA};
  if_dqblk answer{};
  if (!ask_kernel(folder, mount, kTypes[static_cast<int>(of)], id, answer)) return std::nullopt;
  const auto number = [](uint64_t value) { return static_cast<int64_t>(value); };
  const auto blocks = [&](uint64_t count) { return product_of(number(count), kQuotaBlock); };
  return Quota{of,
               id,
               {number(answer.dqb_curspace), blocks(answer.dqb_bsoftlimit), blocks(answer.dqb_bhardlimit),
                number(answer.dqb_btime)},
               {number(answer.dqb_curinodes), number(answer.dqb_isoftlimit), number(answer.dqb_ihardlimit),
                number(answer.dqb_itime)}};
}

/// The project that files in a folder get; nullopt: none.
std::optional<int64_t> project_of(int folder) {
  fsxattr attributes{};
  if (ioctl(folder, FS_IOC_FSGETXATTR, &attributes) != 0) return std::nullopt;
  if ((attributes.fsx_xflags & FS_XFLAG_PROJINHERIT) == 0 || attributes.fsx_projid == 0) return std::nullopt;
  return attributes.fsx_projid;
}

/// Only root may ask the kernel for a project's quota, but ext4 and XFS say by statvfs() of its folders how large and
/// full it is, instead of the file system.
std::optional<Quota> quota_by_size(int folder, const Mount& mount, int64_t project) {
  struct statvfs here {
  }, whole{};
  if (fstatvfs(folder, &here) != 0 || statvfs(mount.point.c_str(), &whole) != 0) return std::nullopt;
  Quota quota{.of = QuotaOf::kProject, .id = project};
  const auto block = static_cast<int64_t>(here.f_frsize);
  if (here.f_blocks != whole.f_blocks) {
    quota.bytes.used = static_cast<int64_t>(here.f_blocks - here.f_bfree) * block;
    quota.bytes.hard = static_cast<int64_t>(here.f_blocks) * block;
  }
  if (here.f_files != whole.f_files) {
    quota.files.used = static_cast<int64_t>(here.f_files - here.f_ffree);
    quota.files.hard = static_cast<int64_t>(here.f_files);
  }
  return quota;
}

/// What asks the server of a network file system.
struct Program {
  std::string name;
  std::vector<std::string> arguments;
};

std::optional<Program> program_for(const Mount& mount, QuotaOf of, int64_t id) {
  if (mount.type.starts_with("nfs") && of == QuotaOf::kUser) {
    return Program{"quota", {"-u", "-w", "-p", "-v", "-f", mount.point}};
  }
  constexpr const char* kOptions[] = {"-u", "-g", "-p"};
  if (mount.type != "lustre") return std::nullopt;
  return Program{"lfs", {"quota", "-q", kOptions[static_cast<int>(of)], std::to_string(id), mount.point}};
}

/// Returns the command that a user can run on a file system whose answers yoke does not understand.
const char* words_for(std::string_view type) {
  if (type == "gpfs") return "mmlsquota";
  if (type == "beegfs") return "beegfs-ctl --getquota --uid";
  if (type == "ceph") return "getfattr -n ceph.quota.max_bytes";
  if (type == "zfs") return "zfs userspace";
  return nullptr;
}

void ask_program(const Program& program, QuotaOf of, int64_t id, Quotas& result) {
  constexpr std::chrono::milliseconds kPatience{2000};
  auto environment = Environment::of_process();
  environment.set("LC_ALL", "C");
  const auto path = find_tool(program.name, environment);
  if (!path) {
    result.unknown =
        fmt::format("the program {} is not installed, which would ask the server for quotas", program.name);
    return;
  }
  std::vector<std::string> argv = {path->string()};
  argv.insert(argv.end(), program.arguments.begin(), program.arguments.end());
  const auto output = run_quietly(argv, environment, kPatience);  // quota ends with 1 where a limit is passed
  if (const auto quota = parse_quota(output.out, of, id)) {
    if (quota->bytes.is_limited() || quota->files.is_limited()) result.list.push_back(*quota);
  } else if (of != QuotaOf::kProject) {
    const auto lines = lines_of(output.err);
    result.unknown = fmt::format("{} {} {}", program.name, fmt::join(program.arguments, " "),
                                 output.timed_out ? "got no answer in 2 s"
                                 : lines.empty()  ? fmt::format("ended with status {}", output.status)
                                                  : fmt::format("says: {}", lines.back()));
  }
}

/// "81920", "81920*" for one above its limit, "[81920]" for one that is not exact.
std::optional<int64_t> parse_amount(std::string_view word) {
  if (word.ends_with('*')) word.remove_suffix(1);
  if (word.starts_with('[') && word.ends_with(']')) word = word.substr(1, word.size() - 2);
  return parse_int(word);
}

std::string amount_text(const Allowance& allowance, bool is_bytes, int64_t now) {
  const auto text = [&](int64_t amount) { return is_bytes ? format_bytes(amount) : fmt::format("{}", amount); };
  auto result = text(allowance.used);
  if (allowance.is_limited()) {
    result += fmt::format(" of {}", text(allowance.hard != 0 ? allowance.hard : allowance.soft));
    if (is_bytes) result += fmt::format(", {} left", text(allowance.left(now)));
  }
  if (!is_bytes) result += " files";
  if (allowance.until == 0) return result;
  const auto rest = std::chrono::seconds(allowance.until - now);
  return result + fmt::format(", above the soft limit of {}, so writes fail {}", text(allowance.soft),
                              rest.count() > 0 ? "in " + format_rough_duration(rest) : "until some are deleted");
}

void write(FieldWriter& fields, const Allowance& allowance) {
  fields.add(allowance.used).add(allowance.soft).add(allowance.hard).add(allowance.until);
}

Allowance read_allowance(FieldReader& fields) {
  Allowance allowance;
  for (auto* const part : {&allowance.used, &allowance.soft, &allowance.hard, &allowance.until}) {
    *part = fields.number();
  }
  return allowance;
}

}  // namespace

std::string_view name(QuotaOf of) {
  switch (of) {
    case QuotaOf::kUser: return "user";
    case QuotaOf::kGroup: return "group";
    case QuotaOf::kProject: return "project";
  }
  return "?";
}

int64_t Allowance::left(int64_t now) const {
  if (!is_limited()) return std::numeric_limits<int64_t>::max();
  if (until != 0 && until <= now) return 0;
  return std::max<int64_t>(0, (hard != 0 ? hard : soft) - used);
}

int64_t Quotas::left_bytes(int64_t now) const {
  auto least = std::numeric_limits<int64_t>::max();
  for (const auto& quota : list) least = std::min(least, quota.bytes.left(now));
  return least;
}

Quotas quotas_of(const std::filesystem::path& folder) {
  Quotas result;
  const auto mounts = read_mounts();
  const auto* const mount = mount_of(mounts, folder);
  if (mount == nullptr) return result;
  const UniqueFd fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat status {};
  if (!fd || fstat(fd.value(), &status) != 0) return result;
  if (const auto* const words = words_for(mount->type)) {
    result.unknown = fmt::format("quotas of {} are not read here; `{}` shows them", mount->type, words);
  }
  const auto ask = [&](QuotaOf of, int64_t id) {
    if (const auto program = program_for(*mount, of, id)) return ask_program(*program, of, id, result);
    auto quota = quota_in_kernel(fd.value(), *mount, of, id);
    if (!quota && of == QuotaOf::kProject) quota = quota_by_size(fd.value(), *mount, id);
    if (quota && (quota->bytes.is_limited() || quota->files.is_limited())) result.list.push_back(*quota);
  };
  ask(QuotaOf::kUser, int64_t{geteuid()});
  ask(QuotaOf::kGroup, int64_t{(status.st_mode & S_ISGID) != 0 ? status.st_gid : getegid()});
  if (const auto project = project_of(fd.value())) ask(QuotaOf::kProject, *project);
  return result;
}

std::string to_bytes(const Quotas& quotas) {
  FieldWriter fields;
  fields.add(quotas.unknown).add(static_cast<int64_t>(quotas.list.size()));
  for (const auto& quota : quotas.list) {
    fields.add(static_cast<int64_t>(quota.of)).add(quota.id);
    write(fields, quota.bytes);
    write(fields, quota.files);
  }
  return fields.bytes();
}

Quotas read_quotas(FieldReader& fields) {
  Quotas quotas{.list = {}, .unknown = fields.text()};
  for (auto count = fields.number(); count > 0; --count) {
    Quota quota{.of = static_cast<QuotaOf>(fields.number()), .id = fields.number()};
    quota.bytes = read_allowance(fields);
    quota.files = read_allowance(fields);
    quotas.list.push_back(quota);
  }
  return quotas;
}

std::optional<Quota> parse_quota(std::string_view output, QuotaOf of, int64_t id) {
  for (const auto line : lines_of(output)) {
    auto words = words_of(line);
    std::erase(words, "*");          // there may be a blank before it
    constexpr size_t kNumWords = 8;  // after the name of the file system: used, soft, hard and grace, twice
    if (words.size() < kNumWords) continue;
    words.erase(words.begin(), words.end() - kNumWords);
    const auto read = [&](size_t first, int64_t unit) -> std::optional<Allowance> {
      const auto used = parse_amount(words[first]), soft = parse_amount(words[first + 1]),
                 hard = parse_amount(words[first + 2]);
      if (!used || !soft || !hard) return std::nullopt;
      return Allowance{product_of(*used, unit), product_of(*soft, unit), product_of(*hard, unit),
                       parse_int(words[first + 3]).value_or(0)};
    };
    const auto bytes = read(0, kQuotaBlock), files = read(4, 1);
    if (bytes && files) return Quota{of, id, *bytes, *files};
  }
  return std::nullopt;
}

std::string quota_text(const Quota& quota, const std::string& whose, int64_t now) {
  auto text = fmt::format("{} {}: {}", name(quota.of), whose, amount_text(quota.bytes, true, now));
  if (quota.files.is_limited()) text += "; " + amount_text(quota.files, false, now);
  return text;
}

}  // namespace yoke::storage
