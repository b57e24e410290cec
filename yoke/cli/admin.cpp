// `yoke admin check`: try out as two users whether the installation of claims on this machine works.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/timex.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/process.h"
#include "yoke/base/sysfs.h"
#include "yoke/base/text.h"
#include "yoke/claim/history.h"
#include "yoke/claim/kernel_locks.h"
#include "yoke/cli/command.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/cli/options/claim.h"
#include "yoke/container/build.h"
#include "yoke/container/config.h"
#include "yoke/container/engine.h"
#include "yoke/contract/variables.h"
#include "yoke/device/doctor/system.h"
#include "yoke/storage/roots.h"
#include "yoke/view/findings.h"

namespace yoke::cli {
namespace {

using device::Finding;
using device::Status;

struct Account {
  std::string name;
  uid_t uid = 0;
  gid_t gid = 0;
};

constexpr const char* kSiteFile = "/etc/yoke/config.toml";

/// The users that were named, or two ordinary users of this machine, or numbers that belong to nobody.
std::vector<Account> find_accounts(const std::vector<std::string>& names) {
  std::vector<Account> accounts;
  for (const auto& name : names) {
    const auto* const entry = getpwnam(name.c_str());
    if (entry == nullptr) throw Error(ErrorCode::kNotFound, "--user {}: there is no such user", printable(name));
    if (entry->pw_uid == 0) throw Error(ErrorCode::kInvalidArgument, "--user {}: root is not an ordinary user", name);
    accounts.push_back({name, entry->pw_uid, entry->pw_gid});
  }
  constexpr uid_t kFirst = 1000, kLast = 60'000;
  setpwent();
  for (const passwd* entry = nullptr; accounts.size() < 2 && names.empty() && (entry = getpwent()) != nullptr;) {
    if (entry->pw_uid >= kFirst && entry->pw_uid <= kLast) {
      accounts.push_back({entry->pw_name, entry->pw_uid, entry->pw_gid});
    }
  }
  endpwent();
  for (uid_t uid = 64'001; accounts.size() < 2; ++uid) accounts.push_back({fmt::format("uid {}", uid), uid, uid});
  return accounts;
}

/// Runs `work` as that user in a child process, and returns what it returns. An error becomes its text.
std::string as_user(const Account& account, const std::function<std::string()>& work) {
  auto pipe = make_pipe();
  const pid_t child = fork();
  if (child < 0) throw system_error(errno, "starting a process");
  if (child == 0) {
    std::string text;
    const bool is_named = getpwuid(account.uid) != nullptr;
    const bool has_groups = is_named ? initgroups(account.name.c_str(), account.gid) == 0 : setgroups(0, nullptr) == 0;
    if (!has_groups || setresgid(account.gid, account.gid, account.gid) != 0 ||
        setresuid(account.uid, account.uid, account.uid) != 0) {
      text = fmt::format("cannot become {}: {}", account.name, strerror(errno));
    } else {
      try {
        text = work();
      } catch (const std::exception& error) {
        text = error.what();
      }
    }
    [[maybe_unused]] const auto count = write(pipe.write_end.value(), text.data(), text.size());
    _exit(0);
  }
  pipe.write_end.reset();
  const auto text = read_beginning(pipe.read_end.value(), 1 << 20);
  wait_for_child(child);
  return text.value_or("");
}

/// A user who holds a device that does not exist, until the destructor kills him.
class Holder {
 public:
  Holder(const Account& account, const claim::Ledger& ledger, const std::string& key) {
    auto pipe = make_pipe();
    child_ = fork();
    if (child_ < 0) throw system_error(errno, "starting a process");
    if (child_ == 0) {
      alarm(20);
      std::string held, text = "+";
      try {
        if (setgroups(0, nullptr) != 0 || setresgid(account.gid, account.gid, account.gid) != 0 ||
            setresuid(account.uid, account.uid, account.uid) != 0) {
          _exit(1);
        }
        const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
        auto claim = ledger.open(claim::Ledger::Access::kTake)
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

class AdminCheck {
 public:
  explicit AdminCheck(std::vector<Account> accounts, const Context& context)
      : accounts_(std::move(accounts)), context_(context) {}

  std::vector<Finding> run() {
    check_config();
    check_folders();
    check_storage();
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

  void check_config() {
    const auto path = context_.environment.value_or(variable::kSiteConfig, kSiteFile);
    struct stat status {};
    if (stat(path.c_str(), &status) != 0) {
      add("config", Status::kOk, path + " does not exist, so there are no limits");
    } else if ((status.st_mode & S_IROTH) == 0) {
      add("config", Status::kFail, path + " cannot be read by all users, so they cannot claim",
          "`chmod 644 " + path + "`");
      return;
    }
    try {
      config_ = claim::read_config(context_.environment);
      const auto rules = container::read_rules(context_.environment);  // it knows the keys of its table
      if (status.st_mode != 0) add("config", Status::kOk, path + " is valid and can only be written by root");
      check_names();
      check_containers(rules);
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

  /// Whether the users could start and build containers by the rules.
  void check_containers(const container::SiteRules& rules) {
    const auto warn = [&](const std::string& found, const char* advice) {
      add("config", Status::kWarn, "[container] " + printable(found), advice);
    };
    for (const auto& account : accounts_) {
      const auto user = container::name_part(account.name);
      const auto name = container::named(rules.container_name, user, "train");
      if (!container::is_container_name(name)) {
        warn(fmt::format("{} cannot start containers: engines do not take the name {}", account.name, name),
             "change container_name");
      }
      const auto image = container::built_image_name(rules, account.name, "train");
      if (!container::is_image_name(image)) {
        warn(fmt::format("{} cannot build images: engines do not take the name {}", account.name, image),
             "change image_name");
      }
    }
    check_engine(rules.default_engine);
    if (const auto& engine = rules.default_engine;
        engine && !find_tool(container::name(*engine), context_.environment)) {
      warn(fmt::format("default_engine is {}, which is not in PATH", container::name(*engine)),
           "install it, or remove the line: then yoke uses an engine that is there");
    }
    std::error_code error;
    if (const auto& image = rules.default_image;
        image && image->starts_with('/') && !std::filesystem::exists(*image, error)) {
      warn(fmt::format("default_image is {}, which does not exist", *image), "mend the path");
    }
  }

  /// Whether the users may use the engine that they get unless they choose one.
  void check_engine(std::optional<container::EngineKind> engine) {
    using container::EngineKind;
    for (const auto kind : {EngineKind::kPodman, EngineKind::kDocker}) {
      if (!engine && find_tool(container::name(kind), context_.environment)) engine = kind;
    }
    const auto source = container::source_of_subordinate_ids(read_text("/etc/nsswitch.conf").value_or(""));
    const bool is_in_file = source == "files";
    if (engine == EngineKind::kPodman && !is_in_file) {
      add("containers", Status::kSkip,
          fmt::format("subordinate ids of users come from {} (subid in /etc/nsswitch.conf), which is not asked",
                      printable(source)),
          "`getsubids USER` lists those of a user, which podman needs");
    }
    const auto subuid = read_text("/etc/subuid").value_or("");
    for (const auto& account : accounts_) {
      if (getpwnam(account.name.c_str()) == nullptr) continue;  // a number
      const auto is_theirs = [&](std::string_view line) {
        return line.starts_with(account.name + ":") || line.starts_with(fmt::format("{}:", account.uid));
      };
      const auto lines = lines_of(subuid);
      if (engine == EngineKind::kPodman && is_in_file && std::none_of(lines.begin(), lines.end(), is_theirs)) {
        add("containers", Status::kWarn,
            fmt::format("{} cannot start containers of podman: /etc/subuid has no line for this user", account.name),
            "`usermod --add-subuids FIRST-LAST --add-subgids FIRST-LAST USER`, 65536 ids that nobody else has");
      }
      const auto may_use = [&] {
        const char* const socket = "/var/run/docker.sock";
        return std::string(access(socket, R_OK | W_OK) == 0 || errno == ENOENT ? "+" : "");
      };
      if (engine == EngineKind::kDocker && geteuid() == 0 && as_user(account, may_use) != "+") {
        add("containers", Status::kWarn,
            fmt::format("{} may not use docker: its socket belongs to others", account.name),
            "`usermod -aG docker USER` makes the user as powerful as root; podman needs no group");
      }
    }
  }

  /// Whether the users can have a folder in each root of the site's storage.
  void check_storage() {
    std::vector<storage::Root> roots;
    try {
      roots = storage::parse_roots(site::read_config(context_.environment).site.section("storage"));
    } catch (const Error& error) {
      return add("storage", Status::kFail, error.what(), "until that is mended, `yoke storage` does not work");
    }
    for (const auto& root : roots) check_root(root);
  }

  void check_root(const storage::Root& root) {
    if (geteuid() != 0) {
      return add("storage", Status::kSkip, fmt::format("only root can try {} as two users", root.name), "use sudo");
    }
    bool is_tried = false;
    for (const auto& account : accounts_) {
      if (getpwnam(account.name.c_str()) == nullptr) continue;  // a number has no folder
      is_tried = true;
      const auto found = as_user(account, [&]() -> std::string {
        alarm(10);  // a server that does not answer
        const std::filesystem::path path = storage::path_for(root, account.name);
        struct stat status {};
        if (stat(path.c_str(), &status) == 0) {
          return S_ISDIR(status.st_mode) && access(path.c_str(), R_OK | W_OK | X_OK) == 0 ? "+" : "it is not usable";
        }
        if (!root.may_create) return "it does not exist, and `create` is not set";
        const auto above = path.parent_path();
        return access(above.c_str(), W_OK | X_OK) == 0 ? "+" : fmt::format("{} may not be written", above.string());
      });
      if (found == "+") continue;
      return add("storage", Status::kWarn,
                 fmt::format("{} cannot use {}, the root {}: {}", account.name, storage::path_for(root, account.name),
                             root.name, found.empty() ? "it does not answer" : found),
                 "make the folder, or mend its path and mode; docs/storage.md has the table");
    }
    if (!is_tried) {
      return add("storage", Status::kSkip, fmt::format("{} is not tried, because the users have no names", root.name),
                 "name two users by --user");
    }
    add("storage", Status::kOk, fmt::format("users can have folders in {} ({})", root.name, root.path));
  }

  void check_folders() {
    if (!config_) return;
    try {
      auto records = claim::find_history_folder(*config_, context_.environment);
      if (records) add("history", Status::kOk, "the history is in " + records->path().string());
      if (!records) add("history", Status::kOk, "the history is with the locks, and is lost at a restart");
      auto folder = claim::find_lock_folder(*config_, context_.environment);
      const auto path = folder.path().string();
      // What is tried here must not become part of the history of these users.
      if (geteuid() == 0) records.emplace(scratch_.path());
      ledger_.emplace(std::move(folder), std::move(records));
      add("lock-folder", Status::kOk, fmt::format("{} belongs to root and has mode 1777", path));
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
    const auto number = [](const char* path) { return parse_int(read_word(path)).value_or(-1); };
    const auto instances = number("/proc/sys/fs/inotify/max_user_instances");
    const auto watches = number("/proc/sys/fs/inotify/max_user_watches");
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

  static std::string read_word(const char* path) {
    try {
      const auto text = read_file(path);
      return text.substr(0, text.find_first_of(" \t\n"));
    } catch (const Error&) {
      return "";
    }
  }

  /// One takes a device that does not exist. The other must see him, must not get it, and must get it once he is gone.
  void check_two_users() {
    const auto &first = accounts_[0], &second = accounts_[1];
    const auto key = fmt::format("yoke-admin-check-{}", getpid());
    const auto& folder = ledger_->folder();
    ledger_->open(claim::Ledger::Access::kLook);  // makes the lock of all, which is then root's
    Holder holder(first, *ledger_, key);
    const auto fail = [&](const std::string& why) {
      add("users", Status::kFail, why, "users could disturb each other, or could not claim at all");
    };
    const auto take = [&] {
      return as_user(second, [&]() -> std::string {
        std::string held;
        const auto claim = ledger_->open(claim::Ledger::Access::kTake).take({key}, {}, held);
        return claim ? "taken" : "refused";
      });
    };
    if (!holder.problem().empty()) return fail(fmt::format("{} cannot claim: {}", first.name, holder.problem()));
    const auto seen = as_user(second, [&]() -> std::string {
      const auto survey = ledger_->open(claim::Ledger::Access::kLook).survey();
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
    std::filesystem::remove(folder.path_of(claim::lock_name(key)), ignored);
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
    const auto survey = ledger_->open(claim::Ledger::Access::kLook).survey();
    const bool is_held = std::any_of(survey.notes.begin(), survey.notes.end(),
                                     [&](const claim::HeldNote& note) { return note.name == name; });
    if (!is_held) unlink(ledger_->folder().path_of(name).c_str());
  }

  void check_devices(const Account& account) {
    const auto text = as_user(account, [&] {
      std::string result;
      size_t count = 0;
      for (const auto& node : device::read_system("/", context_.environment).nodes) {
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

  const std::vector<Account> accounts_;
  const Context& context_;
  const Scratch scratch_;
  std::optional<claim::SiteConfig> config_;
  std::optional<claim::Ledger> ledger_;
  std::vector<Finding> findings_;
};

int run_admin_check(const std::vector<std::string>& users, bool json, Context& context) {
  if (!users.empty() && users.size() != 2) {
    throw Error(ErrorCode::kInvalidArgument, "give two users, as in --user ada --user bob, or none");
  }
  if (users.size() == 2 && users[0] == users[1]) {
    throw Error(ErrorCode::kInvalidArgument, "--user {}: give two different users", printable(users[0]));
  }
  const auto findings = AdminCheck(find_accounts(users), context).run();
  if (json) {
    auto all = nlohmann::ordered_json::array();
    for (const auto& finding : findings) all.push_back(to_json(finding));
    print_json(nlohmann::ordered_json{{"findings", all}}, context);
  } else {
    context.out << view::findings_text(findings, false);
  }
  const auto has_failed = [](const Finding& finding) { return finding.status == Status::kFail; };
  return std::any_of(findings.begin(), findings.end(), has_failed) ? 1 : kExitOk;
}

}  // namespace

void add_admin(CLI::App& cmd, Context& context) {
  cmd.require_subcommand(1);
  cmd.footer(examples("  sudo yoke admin check           try the installation as two users"));
  auto* const check = cmd.add_subcommand("check", "Try out as two users whether claims work on this machine");
  auto users = std::make_shared<std::vector<std::string>>();
  auto json = std::make_shared<bool>();
  check->add_option("--user", *users, "One of the two users; unless given, two ordinary users of this machine")
      ->type_name("NAME")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  check->add_flag("--json", *json, "Print JSON, as `yoke doctor --json` does");
  check->footer(
      examples("  sudo yoke admin check\n"
               "  sudo yoke admin check --user ada --user bob\n"
               "\n"
               "Changes nothing but two files in the folder of locks, which it removes, and makes the lock of all if\n"
               "there is none. Without root it checks what it can.\n"
               "\n"
               "Exit status: 1 if something fails; 0 if not, with warnings too."));
  check->callback([users, json, &context] { context.exit_code = run_admin_check(*users, *json, context); });
}

}  // namespace yoke::cli
