#include "yoke/train/checkpoint/detail/state_copies.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/contract/rank_env.h"
#include "yoke/contract/variables.h"
#include "yoke/dist/activity.h"
#include "yoke/dist/world.h"

namespace yoke::train::detail {
namespace {

constexpr int64_t kMark = 0x796f6b65636f7079;  // "yokecopy"
/// The first message has so many bytes, enough for generators, meters and buffers.
constexpr int64_t kFirstCapacity = 64 << 10;
/// Those of later messages are a multiple of this.
constexpr int64_t kGranule = 4096;

/// Begins a message; the record follows.
struct Head {
  int64_t mark = 0, step = 0;
  int64_t bytes = 0;  ///< Of the record; -1: it does not fit.
  int64_t next = 0;   ///< The bytes of the next message.
};
/// Ends it. Bytes arrive in their order, so once the end is there, all is.
struct Tail {
  int64_t mark = 0, step = 0;
};

constexpr int64_t bytes_of_message(int64_t record) {
  return static_cast<int64_t>(sizeof(Head)) + record + static_cast<int64_t>(sizeof(Tail));
}

std::byte* memory_of(const at::Tensor& message) { return static_cast<std::byte*>(message.mutable_data_ptr()); }
std::byte* tail_of(const at::Tensor& message) { return memory_of(message) + message.numel() - sizeof(Tail); }

at::Tensor message_of(int64_t bytes) { return at::empty({bytes}, at::kByte); }

}  // namespace

std::vector<int64_t> holders_of(const std::vector<int64_t>& nodes) {
  std::map<int64_t, std::vector<int64_t>> ranks_of;
  for (size_t rank = 0; rank < nodes.size(); ++rank) ranks_of[nodes[rank]].push_back(static_cast<int64_t>(rank));
  std::vector<int64_t> holders(nodes.size());
  for (auto node = ranks_of.begin(); node != ranks_of.end(); ++node) {
    const auto following = std::next(node) == ranks_of.end() ? ranks_of.begin() : std::next(node);
    for (size_t place = 0; place < node->second.size(); ++place) {
      holders[static_cast<size_t>(node->second[place])] = following->second[place % following->second.size()];
    }
  }
  return holders;
}

bool StateCopies::are_wanted(const dist::World& world) {
  return world.is_replaceable() && world.env().num_nodes > 1 && std::getenv(variable::kStateCopies) != nullptr;
}

StateCopies::StateCopies(dist::World& world) : world_(world), group_(world.split(0)) {
  if (!world.needs_recovery()) find_partners();
}

void StateCopies::find_partners() {
  const auto gathered = group_.all_gather(at::full({1}, world_.env().node_rank, at::kLong));
  const auto* const nodes = gathered.const_data_ptr<int64_t>();
  const auto holders = holders_of({nodes, nodes + world_.size()});
  holder_ = holders[static_cast<size_t>(world_.rank())];
  capacity_ = kFirstCapacity;
  for (int64_t rank = 0; rank < world_.size(); ++rank) {
    if (holders[static_cast<size_t>(rank)] != world_.rank()) continue;
    auto ward = std::ranges::find(wards_, rank, &Ward::rank);
    if (ward == wards_.end()) {
      wards_.emplace_back();
      ward = std::prev(wards_.end());
      ward->rank = rank;
    }
    ward->capacity = kFirstCapacity;
  }
}

bool StateCopies::is_complete(int64_t step) const {
  return step < 0 || std::ranges::all_of(wards_, [&](const Ward& ward) {
           return ward.held[0].step == step || ward.held[1].step == step;
         });
}

bool StateCopies::agree(int64_t step, const StateRecord& last) {
  // In the World, with whose other collectives this one is compared if not all ranks come here.
  const dist::Activity activity(world_, "keeping the state for lost ranks, keep()");
  for (int i = 0;; ++i) {
    complete();
    const auto own = at::full({2}, step, at::kLong);
    own[1] = is_complete(last.step) ? 1 : 0;
    const auto gathered = world_.all_gather(own);
    if (world_.needs_recovery()) return false;  // then it has no meaning
    const auto* const of_all = gathered.const_data_ptr<int64_t>();
    bool all_keep = true, are_complete = true, are_same = true;
    for (int64_t rank = 0; rank < world_.size(); ++rank) {
      all_keep &= of_all[2 * rank] != kNoStep;
      are_same &= of_all[2 * rank] == step;
      are_complete &= of_all[2 * rank + 1] != 0;
    }
    if (are_complete && (!all_keep || are_same)) return all_keep;
    if (are_complete || i == 1) {
      throw Error(ErrorCode::kInternal, "rank {}: ranks keep the states of other steps than {}", world_.rank(), step);
    }
    begin(last);
  }
}

void StateCopies::complete() {
  for (auto& ward : wards_) ward.pending.wait();
  sent_.wait();
  for (auto& ward : wards_) take(ward);
}

/// Whatever ended the wait: a message that has its end is complete.
void StateCopies::take(Ward& ward) {
  auto& incoming = ward.incoming;
  const auto step = std::exchange(incoming.step, kNoStep);
  if (step == kNoStep) return;
  Head head;
  Tail tail;
  std::memcpy(&head, memory_of(incoming.memory), sizeof head);
  std::memcpy(&tail, tail_of(incoming.memory), sizeof tail);
  if (head.mark != kMark || tail.mark != kMark || head.step != step || tail.step != step) return;
  ward.capacity = head.next;
  if (head.bytes < 0 || ward.held[0].step == step || ward.held[1].step == step) return;
  auto& oldest = ward.held[0].step < ward.held[1].step ? ward.held[0] : ward.held[1];
  incoming.step = step;
  incoming.bytes = head.bytes;
  std::swap(oldest, incoming);
  incoming.step = kNoStep;
}

void StateCopies::begin(const StateRecord& given) {
  const auto& [step, record] = given;
  for (auto& ward : wards_) {
    auto& memory = ward.incoming.memory;
    if (!memory.defined() || memory.numel() != ward.capacity) memory = message_of(ward.capacity);
    std::memset(memory_of(memory), 0, sizeof(Head));
    std::memset(tail_of(memory), 0, sizeof(Tail));
    ward.incoming.step = step;
    ward.pending = group_.start_receive(memory, ward.rank);
  }
  const auto record_bytes = static_cast<int64_t>(record.size());
  const bool fits = bytes_of_message(record_bytes) <= capacity_;
  // The next record has about the same size.
  const auto next = (bytes_of_message(record_bytes + record_bytes / 8) / kGranule + 1) * kGranule;
  const Head head{.mark = kMark, .step = step, .bytes = fits ? record_bytes : -1, .next = next};
  const Tail tail{.mark = kMark, .step = step};
  if (!outgoing_.defined() || outgoing_.numel() != capacity_) outgoing_ = message_of(capacity_);
  std::memcpy(memory_of(outgoing_), &head, sizeof head);
  if (fits && !record.empty()) std::memcpy(memory_of(outgoing_) + sizeof head, record.data(), record.size());
  std::memcpy(tail_of(outgoing_), &tail, sizeof tail);
  capacity_ = head.next;
  sent_ = group_.start_send(outgoing_, holder_);
}

void StateCopies::begin_again() {
  for (auto& ward : wards_) {
    ward.pending = {};
    take(ward);
    ward.incoming = {};  // something may still refer to that memory
  }
  sent_ = {};
  outgoing_.reset();
  find_partners();
}

void StateCopies::send_now(const StateRecord& record) {
  for (int i = 0; i < 2; ++i) {  // the first message says how large the second one is
    begin(record);
    complete();
  }
}

void StateCopies::forget_after(int64_t step) {
  for (auto& ward : wards_) {
    for (auto& copy : ward.held) {
      if (copy.step > step) copy.step = kNoStep;
    }
  }
}

std::vector<int64_t> StateCopies::steps() const {
  std::vector<int64_t> steps(static_cast<size_t>(2 * world_.size()), kNoStep);
  for (const auto& ward : wards_) {
    for (size_t i = 0; i < 2; ++i) steps[2 * static_cast<size_t>(ward.rank) + i] = ward.held[i].step;
  }
  return steps;
}

at::Tensor StateCopies::find(int64_t rank, int64_t step) const {
  for (const auto& ward : wards_) {
    if (ward.rank != rank) continue;
    for (const auto& copy : ward.held) {
      if (copy.step == step) return copy.memory.narrow(0, static_cast<int64_t>(sizeof(Head)), copy.bytes);
    }
  }
  throw Error(ErrorCode::kInternal, "no copy of the state of rank {} after step {} is here", rank, step);
}

}  // namespace yoke::train::detail
