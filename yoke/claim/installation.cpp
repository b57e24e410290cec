#include "yoke/claim/installation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <sys/timex.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <optional>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/sysfs.h"
#include "yoke/base/text.h"
#include "yoke/claim/config.h"
#include "yoke/claim/folder.h"
#include "yoke/claim/history.h"
#include "yoke/claim/ledger.h"
#include "yoke/claim/limits.h"
#include "yoke/contract/variables.h"

namespace yoke::claim {
namespace {

using device::Finding;
using device::Status;

constexpr const char* kSiteFile = "/etc/yoke/config.toml";

/// A user who holds a device that does not exist, until the destructor kills him.
class Holder {
 public:
  Holder(const site::Account& account, const Ledger& ledger, const std::string& key) {
    auto pipe = make_pipe();
    child_ = fork();
    if (child_ < 0) throw system_error(errno, "starting a process");
    if (child_ == 0) {
      alarm(20);
      std::string held, text = "+";
      try {
        if (!site::become(account)) _exit(1);
        const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
        auto claim = ledger.open(Ledger::Access::kTake)
                         .take({key}, {.is_holder = true, .purpose = "yoke admin check", .since = now}, held);
        if (!claim) text = "the lock is held already";
        [[maybe_unused]] const auto count = write(pipe.write_end.value(), text.data(), text.size());
        for (;;) pause();
      } catch (const std::exception& error) {
        text = error.what();
        [[maybe_unused]] const auto count = write(pipe.write_end.value(), text.data(), text.size());
      }
      _exit(1);
    }
    pipe.write_end.reset();
    char buffer[1000];
    const auto count = read(pipe.read_end.value(), buffer, sizeof buffer);
    problem_ = count > 0 ? std::string(buffer, static_cast<size_t>(count)) : "it ended";
    if (problem_ == "+") problem_.clear();
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  ~Holder() { end(); }

  const std::string& problem() const { return problem_; }
  pid_t pid() const { return child_; }
  void end() {
    if (child_ <= 0) return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    child_ = -1;
  }

 private:
  pid_t child_ = -1;
  std::string problem_;
};

class InstallationCheck {
 public:
  explicit InstallationCheck(const InstallationOptions& options) : options_(options), accounts_(options.accounts) {}

  std::vector<Finding> run() {
    check_config();
    check_folders();
    add(options_.check_storage());
    check_machine();
    if (geteuid() != 0) {
      add("users", Status::kSkip, "only root can try the locks and the devices as two users", "use sudo");
      return findings_;
    }
    if (ledger_) check_two_users();
    for (const auto& account : accounts_) check_devices(account);
    return findings_;
  }

 private:
  void add(const char* id, Status status, std::string found, std::string advice = "") {
    findings_.push_back({id, status, {}, std::move(found), std::move(advice)});
  }

  void add(std::vector<Finding> more) {
    for (auto& finding : more) findings_.push_back(std::move(finding));
  }

  void check_config() {
    const auto path = options_.environment.value_or(variable::kSiteConfig, kSiteFile);
    struct stat status {};
    if (stat(path.c_str(), &status) != 0) {
      add("config", Status::kOk, path + " does not exist, so there are no limits");
    } else if ((status.st_mode & S_IROTH) == 0) {
      add("config", Status::kFail, path + " cannot be read by all users, so they cannot claim",
          "`chmod 644 " + path + "`");
      return;
    }
    try {
      config_ = read_config(options_.environment);
      auto of_containers = options_.check_containers();  // it knows the keys of its table
      if (status.st_mode != 0) add("config", Status::kOk, path + " is valid and can only be written by root");
      check_names();
      add(std::move(of_containers));
    } catch (const Error& error) {
      add("config", Status::kFail, error.what(), "until that is mended, nobody can claim");
    }
  }

  void check_names() {
    const auto unknown = unknown_names(*config_);
    const auto warn = [&](const char* table, const char* what, const std::vector<std::string>& names) {
      if (names.empty()) return;
      add("config", Status::kWarn,
          fmt::format("[claim.{}] names {} that this machine does not know: {}", table, what,
                      printable(fmt::format("{}", fmt::join(names, ", ")))),
          "their limits count for nobody; mend the spelling");
    };
    warn("users", "users", unknown.users);
    warn("groups", "groups", unknown.groups);
  }

  void check_folders() {
    if (!config_) return;
    try {
      auto records = find_history_folder(*config_, options_.environment);
      if (records) add("history", Status::kOk, "the history is in " + records->path().string());
      if (!records) add("history", Status::kOk, "the history is with the locks, and is lost at a restart");
      auto folder = find_lock_folder(*config_, options_.environment);
      const auto path = folder.path().string();
      const auto elsewhere = folder.elsewhere();
      // What is tried here must not become part of the history of these users.
      if (geteuid() == 0) records.emplace(scratch_.path());
      ledger_.emplace(std::move(folder), std::move(records));
      add("lock-folder", Status::kOk, fmt::format("{} belongs to root and has mode 1777", path));
      if (!elsewhere.empty()) {
        add("lock-files", Status::kWarn, elsewhere, "claims in two folders do not see each other");
      }
      for (const auto& obstacle : ledger_->folder().obstacles()) {
        add("lock-files", Status::kFail, printable(obstacle),
            "until then, nobody is given that device, or claims wait longer");
      }
      check_permanence(path);
    } catch (const Error& error) {
      add("lock-folder", Status::kFail, error.what(), "docs/claim.md has a section for administrators");
    }
  }

  void check_permanence(const std::string& path) {
    struct statfs system {};
    constexpr long kNfs = 0x6969;
    if (statfs(path.c_str(), &system) == 0 && system.f_type == kNfs) {
      add("lock-folder", Status::kFail, path + " is on NFS, where locks of other hosts count too and a server can fail",
          "use a local folder, such as /run/yoke");
    }
    if (path != "/run/yoke") {
      if (path.starts_with("/run/lock") || path == "/tmp") {
        add("tmpfiles", Status::kWarn, "there is no /run/yoke, so the locks are in " + path + " between other files",
            "install share/yoke/tmpfiles.d/yoke.conf and run `systemd-tmpfiles --create`");
      }
      return;
    }
    for (const char* folder : {"/etc/tmpfiles.d", "/run/tmpfiles.d", "/usr/lib/tmpfiles.d"}) {
      const auto file = std::string(folder) + "/yoke.conf";
      if (access(file.c_str(), R_OK) == 0) return add("tmpfiles", Status::kOk, file + " makes /run/yoke at each start");
    }
    add("tmpfiles", Status::kWarn, "nothing makes /run/yoke at the next start of the machine",
        "install share/yoke/tmpfiles.d/yoke.conf in /etc/tmpfiles.d");
  }

  void check_machine() {
    const auto instances = read_number("/proc/sys/fs/inotify/max_user_instances").value_or(-1);
    const auto watches = read_number("/proc/sys/fs/inotify/max_user_watches").value_or(-1);
    constexpr int64_t kFewInstances = 64, kFewWatches = 1024;
    if (instances < kFewInstances || watches < kFewWatches) {
      add("inotify", Status::kWarn,
          fmt::format("a user may have {} inotify instances and {} watches; each waiting claim needs one", instances,
                      watches),
          "`sysctl fs.inotify.max_user_instances=1024 fs.inotify.max_user_watches=65536`");
    } else {
      add("inotify", Status::kOk, fmt::format("{} instances and {} watches for each user", instances, watches));
    }
    timex clock = {};
    const auto year =
        std::chrono::year_month_day(std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now())).year();
    if (year < std::chrono::year(2026)) {
      add("clock", Status::kFail, fmt::format("it is the year {}", static_cast<int>(year)), "set the clock");
    } else if (adjtimex(&clock) == TIME_ERROR || (clock.status & STA_UNSYNC) != 0) {
      add("clock", Status::kWarn, "no time server keeps the clock right", "the ends of claims may be off; run chrony");
    } else {
      add("clock", Status::kOk, "a time server keeps the clock right");
    }
  }

  /// One takes a device that does not exist. The other must see him, must not get it, and must get it once he is gone.
  void check_two_users() {
    const auto &first = accounts_[0], &second = accounts_[1];
    const auto key = fmt::format("yoke-admin-check-{}", getpid());
    const auto& folder = ledger_->folder();
    ledger_->open(Ledger::Access::kLook);  // makes the lock of all, which is then root's
    Holder holder(first, *ledger_, key);
    const auto fail = [&](const std::string& why) {
      add("users", Status::kFail, why, "users could disturb each other, or could not claim at all");
    };
    const auto take = [&] {
      return site::as_user(second, [&]() -> std::string {
        std::string held;
        const auto claim = ledger_->open(Ledger::Access::kTake).take({key}, {}, held);
        return claim ? "taken" : "refused";
      });
    };
    if (!holder.problem().empty()) return fail(fmt::format("{} cannot claim: {}", first.name, holder.problem()));
    const auto seen = site::as_user(second, [&]() -> std::string {
      const auto survey = ledger_->open(Ledger::Access::kLook).survey();
      const auto* const holding = survey.find(key);
      if (holding == nullptr) return "does not see the claim";
      if (holding->uid != int64_t{first.uid}) return "does not see whose claim it is";
      for (const auto& note : survey.notes) {
        if (note.note && note.note->keys == std::vector{key} && unlink(folder.path_of(note.name).c_str()) == 0) {
          return "can remove the claim of " + first.name;
        }
      }
      return holding->pid ? "" : "hidden";
    });
    if (!seen.empty() && seen != "hidden") fail(fmt::format("{}: {}", second.name, seen));
    const auto while_held = take();
    holder.end();
    const auto after = take();
    std::error_code ignored;
    std::filesystem::remove(folder.path_of(lock_name(key)), ignored);
    for (const auto& name : folder.names(fmt::format("yoke-claim-{}-", first.uid))) remove_if_dead(name);
    if (while_held != "refused")
      fail(fmt::format("{} got a device that {} holds: {}", second.name, first.name, while_held));
    if (after != "taken")
      fail(fmt::format("{} cannot claim what {} no longer holds: {}", second.name, first.name, after));
    if (seen == "hidden") {
      add("hidepid", Status::kWarn,
          "users do not see each other's processes (hidepid), so claims show no PID of others",
          "mount /proc with gid= of a group that may see them, if that is not intended");
    }
    if (while_held == "refused" && after == "taken" && (seen.empty() || seen == "hidden")) {
      add("users", Status::kOk, fmt::format("{} and {} see and exclude each other", first.name, second.name));
    }
  }

  /// Removes the note of the holder that was killed.
  void remove_if_dead(const std::string& name) const {
    const auto survey = ledger_->open(Ledger::Access::kLook).survey();
    const bool is_held = std::ranges::any_of(survey.notes, [&](const HeldNote& note) { return note.name == name; });
    if (!is_held) unlink(ledger_->folder().path_of(name).c_str());
  }

  void check_devices(const site::Account& account) {
    const auto text = site::as_user(account, [&] {
      std::string result;
      size_t count = 0;
      for (const auto& node : device::read_system("/", options_.environment).nodes) {
        ++count;
        if (!node.is_usable) result += fmt::format("{}{} ({})", result.empty() ? "" : ", ", node.path, node.owner);
      }
      return count == 0 ? "none" : result;
    });
    const auto id = "device-files";
    if (text == "none") return add(id, Status::kSkip, "there are no device files of GPUs", "load the driver");
    if (text.empty()) return add(id, Status::kOk, account.name + " may use the device files");
    add(id, Status::kFail, fmt::format("{} may not use {}", account.name, text),
        "put users into the group that owns them (usually video or render)");
  }

  /// A folder that ends with this object, in which all users may write.
  class Scratch {
   public:
    Scratch() {
      if (geteuid() != 0) return;
      std::string path = "/tmp/yoke-admin-check-XXXXXX";
      if (mkdtemp(path.data()) == nullptr) throw system_error(errno, "making a folder in /tmp");
      path_ = path;
      chmod(path_.c_str(), 01777);
    }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    ~Scratch() {
      std::error_code ignored;
      if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
    }
    const std::filesystem::path& path() const { return path_; }

   private:
    std::filesystem::path path_;
  };

  const InstallationOptions& options_;
  const std::vector<site::Account>& accounts_;
  const Scratch scratch_;
  std::optional<SiteConfig> config_;
  std::optional<Ledger> ledger_;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> check_installation(const InstallationOptions& options) { return InstallationCheck(options).run(); }

}  // namespace yoke::claim
