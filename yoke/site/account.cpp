#include "yoke/site/account.h"

#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/text.h"

namespace yoke::site {

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

bool has_user(const Account& account) { return getpwnam(account.name.c_str()) != nullptr; }

bool become(const Account& account) {
  const bool is_named = getpwuid(account.uid) != nullptr;
  const bool has_groups = is_named ? initgroups(account.name.c_str(), account.gid) == 0 : setgroups(0, nullptr) == 0;
  return has_groups && setresgid(account.gid, account.gid, account.gid) == 0 &&
         setresuid(account.uid, account.uid, account.uid) == 0;
}

std::string as_user(const Account& account, const std::function<std::string()>& work) {
  auto pipe = make_pipe();
  const pid_t child = fork();
  if (child < 0) throw system_error(errno, "starting a process");
  if (child == 0) {
    std::string text;
    if (!become(account)) {
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
  std::string text;
  char buffer[4096];
  for (ssize_t count = 0; (count = read(pipe.read_end.value(), buffer, sizeof buffer)) != 0;) {
    if (count > 0) text.append(buffer, static_cast<size_t>(count));
    if (count < 0 && errno != EINTR) break;
  }
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return text;
}

}  // namespace yoke::site
