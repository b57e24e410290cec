#include "yoke/base/preload.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "yoke/base/environment.h"

namespace yoke {
namespace {

/// Texts that end with a zero byte; a variable of an environment has none inside.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : rest_(bytes) {}

  std::optional<std::string_view> next() {
    const auto end = rest_.find('\0');
    if (end == rest_.npos) return std::nullopt;
    const auto field = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return field;
  }
  bool is_empty() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

/// RLIM_INFINITY is the largest number of its type and does not fit into int64_t: written as -1.
std::string limit_text(rlim_t limit) { return limit == RLIM_INFINITY ? "-1" : fmt::format("{}", limit); }

std::optional<rlim_t> parse_limit(std::string_view text) {
  const auto number = parse_int(text);
  if (!number || *number < -1) return std::nullopt;
  return *number == -1 ? RLIM_INFINITY : static_cast<rlim_t>(*number);
}

}  // namespace

bool PreloadedRank::operator==(const PreloadedRank& other) const {
  return environment == other.environment && inherited_fds == other.inherited_fds && cpus == other.cpus &&
         memory_nodes == other.memory_nodes && process_group == other.process_group &&
         file_limit.rlim_cur == other.file_limit.rlim_cur && file_limit.rlim_max == other.file_limit.rlim_max;
}

std::string encode(const PreloadedRank& rank) {
  std::string bytes;
  const auto add = [&bytes](std::string_view field) { (bytes += field) += '\0'; };
  add(rank.cpus.to_list());
  add(rank.memory_nodes.to_list());
  add(std::to_string(rank.process_group));
  add(limit_text(rank.file_limit.rlim_cur));
  add(limit_text(rank.file_limit.rlim_max));
  add(std::to_string(rank.inherited_fds.size()));
  for (const int fd : rank.inherited_fds) add(std::to_string(fd));
  for (const auto& variable : rank.environment) add(variable);
  return bytes;
}

std::optional<PreloadedRank> decode_preloaded_rank(std::string_view bytes) {
  if (bytes.empty() || bytes.back() != '\0') return std::nullopt;
  Fields fields(bytes);
  PreloadedRank rank;
  std::array<std::string_view, 6> head;
  for (auto& field : head) {
    const auto next = fields.next();
    if (!next) return std::nullopt;
    field = *next;
  }
  const auto cpus = CpuSet::parse_list(head[0]), nodes = CpuSet::parse_list(head[1]);
  const auto group = parse_int(head[2]);
  const auto soft = parse_limit(head[3]), hard = parse_limit(head[4]);
  const auto num_fds = parse_int(head[5]);
  if (!cpus || !nodes || !soft || !hard || !num_fds || *num_fds < 0) return std::nullopt;
  if (!group || *group < 0 || *group > INT32_MAX) return std::nullopt;
  rank.cpus = *cpus;
  rank.memory_nodes = *nodes;
  rank.process_group = static_cast<int>(*group);
  rank.file_limit = {*soft, *hard};
  for (int64_t i = 0; i < *num_fds; ++i) {
    const auto field = fields.next();
    const auto fd = field ? parse_int(*field) : std::nullopt;
    if (!fd || *fd < 0 || *fd > INT32_MAX) return std::nullopt;
    rank.inherited_fds.push_back(static_cast<int>(*fd));
  }
  while (!fields.is_empty()) rank.environment.emplace_back(*fields.next());
  return rank;
}

bool send_fds(int socket, const std::vector<int>& fds) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxMessageFds * sizeof(int))> control{};
  if (fds.empty() || fds.size() > kMaxMessageFds) {
    errno = EINVAL;
    return false;
  }
  char byte = 0;
  iovec data{&byte, 1};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
  std::memcpy(CMSG_DATA(header), fds.data(), fds.size() * sizeof(int));
  return send_descriptors(socket, message);
}

std::optional<std::vector<UniqueFd>> receive_fds(int socket) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxMessageFds * sizeof(int))> control{};
  char byte = 0;
  iovec data{&byte, 1};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t received = 0;
  while ((received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) {
  }
  if (received <= 0) return std::nullopt;
  std::vector<UniqueFd> fds;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
      fds.emplace_back(fd);
    }
  }
  return fds;
}

}  // namespace yoke
