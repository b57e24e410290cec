#include "yoke/launch/process/protocol.h"

#include <cerrno>
#include <iterator>
#include <span>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/contract/preload.h"
#include "yoke/launch/process/rank_process.h"

namespace yoke::launch {

void send_message(int fd, const Message& message, const std::vector<int>& descriptors) {
  if (send_with_fds(fd, std::as_bytes(std::span(&message, 1)), descriptors) || descriptors.empty()) return;
  if (errno != EPIPE && errno != ECONNRESET && errno != EBADF) {
    throw system_error(errno, "sending descriptors to the process that starts the ranks");
  }
}

std::optional<Message> receive_message(int fd, std::vector<UniqueFd>* descriptors) {
  Message message;
  std::vector<UniqueFd> received;
  const auto count = receive_with_fds(fd, std::as_writable_bytes(std::span(&message, 1)), received);
  if (count != sizeof message) return std::nullopt;
  if (descriptors != nullptr) std::move(received.begin(), received.end(), std::back_inserter(*descriptors));
  return message;
}

std::string encode_plans(const std::vector<RankPlan>& plans) {
  FieldWriter fields;
  for (const auto& plan : plans) {
    fields.add(plan.rank).add(int64_t{plan.holds_master_port}).add(int64_t{plan.is_store});
    fields.add(plan.store_limit_bytes).add(plan.argv);
    encode(to_rank_process(plan, {}), fields);
  }
  return fields.bytes();
}

std::vector<RankPlan> decode_plans(std::string_view text) {
  std::vector<RankPlan> plans;
  for (FieldReader fields(text); !fields.at_end();) {
    auto& plan = plans.emplace_back();
    plan.rank = fields.number();
    plan.holds_master_port = fields.number() != 0;
    plan.is_store = fields.number() != 0;
    plan.store_limit_bytes = fields.number();
    plan.argv = fields.texts();
    auto process = decode_rank_process(fields);
    plan.environment = std::move(process.environment);
    plan.inherited_fds = std::move(process.inherited_fds);
    plan.process_group = process.process_group;
    plan.cpus = std::move(process.cpus);
    plan.memory_nodes = std::move(process.memory_nodes);
  }
  return plans;
}

}  // namespace yoke::launch
