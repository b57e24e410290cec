// yoke/site/account.h -- ordinary users of this machine, and what works for them: for checks by an administrator.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace yoke::site {

struct Account {
  std::string name;  ///< "uid 64001" if the number belongs to nobody.
  uid_t uid = 0;
  gid_t gid = 0;
};

/// The users that were named, or two ordinary users of this machine, or numbers that belong to nobody.
/// Errors  kNotFound, kInvalidArgument: a name is not that of an ordinary user.
std::vector<Account> find_accounts(const std::vector<std::string>& names);

/// Whether the account is that of a user, and not only a number.
bool has_user(const Account& account);

/// Makes this process one of that user. Returns false with errno if it may not.
bool become(const Account& account);

/// Runs `work` as that user in a child process, and returns what it returns. An error becomes its text.
/// REQUIRES: this process has one thread.
std::string as_user(const Account& account, const std::function<std::string()>& work);

}  // namespace yoke::site
