#include "yoke/storage/sshfs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/shell.h"
#include "yoke/base/text.h"

namespace yoke::storage {
namespace {

/// The colon between host and folder. Those within brackets belong to an IPv6 address.
size_t separator_of(std::string_view text) {
  const auto bracket = text.find('[');
  if (bracket == text.npos || bracket > text.find(':')) return text.find(':');
  const auto end = text.find(']', bracket);
  return end == text.npos ? text.npos : text.find(':', end);
}

bool contains(const std::vector<std::string>& list, std::string_view word) {
  return std::ranges::find(list, word) != list.end();
}

/// The user's options, and those of a command line, one by one: "-o ro,nodev" has two.
std::vector<std::string> options_in(const std::vector<std::string>& lists) {
  std::vector<std::string> options;
  for (const auto& list : lists) {
    for (const auto option : split(list, ',')) options.emplace_back(option);
  }
  return options;
}

std::vector<std::string> lists_in(const std::vector<std::string>& argv) {
  std::vector<std::string> lists;
  for (size_t i = 0; i < argv.size(); ++i) {
    if (argv[i] == "-o" && i + 1 < argv.size()) {
      lists.push_back(argv[++i]);
    } else if (argv[i].starts_with("-o")) {
      lists.push_back(argv[i].substr(2));
    }
  }
  return lists;
}

/// Returns the folder with a slash at its end, as the server must be asked for it. The home folder stays empty.
std::string folder_to_ask_for(const RemoteFolder& remote) {
  return remote.folder.empty() || remote.folder == "/" ? remote.folder : remote.folder + "/";
}

/// Lines of /etc/fuse.conf without comments and spaces.
std::vector<std::string> lines_of_config(std::string_view config) {
  std::vector<std::string> result;
  for (const auto line : lines_of(config)) {
    std::string text;
    for (const auto word : words_of(line.substr(0, line.find('#')))) text += word;
    if (!text.empty()) result.push_back(text);
  }
  return result;
}

constexpr int64_t kMostMounts = 1000;  // of fusermount3 without mount_max

}  // namespace

RemoteFolder parse_remote(std::string_view text) {
  const auto colon = separator_of(text);
  if (colon == text.npos || colon == 0 || text.substr(0, colon).find('/') != text.npos) {
    throw Error(ErrorCode::kInvalidArgument,
                "{} is not HOST:DIR; write, for example, server:/data, or server: for the "
                "home folder there",
                text);
  }
  if (text.starts_with('-')) {
    throw Error(ErrorCode::kInvalidArgument, "{}: the name of a host does not begin with a dash", text);
  }
  auto folder = text.substr(colon + 1);
  if (folder == "~" || folder.starts_with("~/")) folder.remove_prefix(std::min<size_t>(2, folder.size()));
  while (folder.size() > 1 && folder.ends_with('/')) folder.remove_suffix(1);
  return {std::string(text.substr(0, colon)), std::string(folder)};
}

std::string source_of(const RemoteFolder& remote) { return remote.host + ":" + remote.folder; }

std::string default_name(const RemoteFolder& remote) {
  auto name = remote.host.substr(remote.host.rfind('@') + 1);
  for (const auto part : split(remote.folder, '/')) {
    if (!part.empty() && part != ".") name += fmt::format("-{}", part);
  }
  std::ranges::replace(name, '/', '-');
  return name;
}

bool names_host(std::string_view word, std::string_view host) {
  return word == host || (host.find('@') != host.npos && word == host.substr(host.rfind('@') + 1));
}

std::vector<std::string> sshfs_command(const SshfsRequest& request) {
  // -f: sshfs stays the leader of the session that it is started in, so that its ssh processes can be found.
  const auto source = source_of({request.remote.host, folder_to_ask_for(request.remote)});
  std::vector<std::string> argv = {"sshfs", "-f", source, request.point};
  if (request.config) argv.insert(argv.end(), {"-F", *request.config});
  for (const auto& option : request.options) argv.insert(argv.end(), {"-o", option});
  // BatchMode: nobody could answer a question for a password when the connection is made again.
  for (const char* option :
       {"reconnect", "ServerAliveInterval=5", "ServerAliveCountMax=2", "ConnectTimeout=5", "BatchMode=yes"}) {
    argv.insert(argv.end(), {"-o", option});
  }
  // ssh refuses to do two things, and sshfs has no option against a command of the host's entry in ~/.ssh/config.
  const auto options = options_in(request.options);
  const auto is_command = [](const std::string& option) { return option.starts_with("ssh_command="); };
  if (std::ranges::none_of(options, is_command)) {
    argv.insert(argv.end(), {"-o", "ssh_command=ssh -o RemoteCommand=none"});
  }
  return argv;
}

std::optional<std::string> difference_to(const SshfsRequest& request, std::string_view options,
                                         const std::vector<std::string>& argv) {
  const auto wanted = options_in(request.options), kernel = options_in({std::string(options)});
  const auto is_mode = [](const std::string& option) { return option == "ro" || option == "rw"; };
  const auto mode = std::find_if(wanted.rbegin(), wanted.rend(), is_mode);  // the last one counts
  const bool wants_read_only = mode != wanted.rend() && *mode == "ro";
  if (wants_read_only != contains(kernel, "ro")) return wants_read_only ? "it is writable" : "it is read-only";
  if (argv.empty()) return std::nullopt;
  const auto given = options_in(lists_in(argv));
  for (const auto& option : wanted) {
    if (!is_mode(option) && !contains(given, option)) return fmt::format("it lacks -o {}", option);
  }
  if (request.config && !contains(argv, *request.config)) return fmt::format("it lacks -F {}", *request.config);
  return std::nullopt;
}

std::string advice_after(const RemoteFolder& remote, std::string_view said) {
  auto host = remote.host;  // sshfs writes it without brackets
  std::erase_if(host, [](char c) { return c == '[' || c == ']'; });
  const auto folder = folder_to_ask_for(remote);
  const auto answer = fmt::format("{}:{}: ", host, folder.empty() ? "." : folder);
  if (said.find(answer) == said.npos) return fmt::format("does `ssh {} true` work without a question?", remote.host);
  return fmt::format("the server answers, so look there: `ssh {} ls -ld {}`", remote.host,
                     shell_quoted(folder.empty() ? "." : folder));
}

std::optional<std::string> obstacle_to(const SshfsRequest& request, const FuseFacts& facts) {
  if (!facts.has_sshfs) return "there is no program sshfs here; an administrator can install the package sshfs";
  if (!facts.has_fusermount)
    return "there is no program fusermount3 here; an administrator can install the package fuse3";
  if (facts.device_error == ENOENT || facts.device_error == ENODEV || facts.device_error == ENXIO) {
    return "/dev/fuse is missing: the kernel has no FUSE yet; an administrator can load it (`modprobe fuse`), and a "
           "container needs `--device /dev/fuse`";
  }
  if (facts.device_error == EACCES || facts.device_error == EPERM) {
    return "you may not open /dev/fuse for reading and writing; it usually has mode 0666, and an administrator can set "
           "that (`chmod 666 /dev/fuse`)";
  }
  if (facts.device_error != 0) return fmt::format("/dev/fuse cannot be opened: {}", std::strerror(facts.device_error));
  if (facts.is_root) return std::nullopt;
  if (!facts.fusermount_is_setuid) {
    return "fusermount3 may not mount for you, because it lacks the setuid bit; an administrator can set it "
           "(`chmod u+s` on fusermount3), unless this is a container without that right";
  }
  const auto options = options_in(request.options), config = lines_of_config(facts.config);
  for (const char* option : {"allow_other", "allow_root"}) {
    if (contains(options, option) && !contains(config, "user_allow_other")) {
      return fmt::format(
          "{} is refused: /etc/fuse.conf lacks the line user_allow_other, which only an administrator "
          "can add; without {}, only you see the files",
          option, option);
    }
  }
  int64_t most = kMostMounts;
  for (const auto& line : config) {
    if (line.starts_with("mount_max=")) most = parse_int(line.substr(10)).value_or(most);
  }
  if (most >= 0 && facts.num_mounts >= most) {
    return fmt::format(
        "there are {} FUSE mounts, and mount_max in /etc/fuse.conf allows {}; end some "
        "(`yoke unmount`), or ask an administrator to raise it",
        facts.num_mounts, most);
  }
  return std::nullopt;
}

}  // namespace yoke::storage
