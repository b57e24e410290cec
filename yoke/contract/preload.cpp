#include "yoke/contract/preload.h"

namespace yoke {

bool RankProcess::operator==(const RankProcess& other) const {
  return environment == other.environment && inherited_fds == other.inherited_fds && cpus == other.cpus &&
         memory_nodes == other.memory_nodes && process_group == other.process_group &&
         file_limit.rlim_cur == other.file_limit.rlim_cur && file_limit.rlim_max == other.file_limit.rlim_max;
}

void encode(const RankProcess& rank, FieldWriter& fields) {
  fields.add(rank.environment).add(rank.inherited_fds).add(rank.cpus).add(rank.memory_nodes);
  fields.add(int64_t{rank.process_group});
  // rlim_t is unsigned. Its largest value is RLIM_INFINITY, which becomes -1 here.
  fields.add(static_cast<int64_t>(rank.file_limit.rlim_cur)).add(static_cast<int64_t>(rank.file_limit.rlim_max));
}

RankProcess decode_rank_process(FieldReader& fields) {
  // Initializers in braces are evaluated in order.
  RankProcess rank{.environment = fields.texts(),
                   .inherited_fds = fields.small_numbers(),
                   .cpus = fields.set(),
                   .memory_nodes = fields.set(),
                   .process_group = fields.small_number()};
  rank.file_limit.rlim_cur = static_cast<rlim_t>(fields.number());
  rank.file_limit.rlim_max = static_cast<rlim_t>(fields.number());
  return rank;
}

}  // namespace yoke
