// Steps of an Optimizer that update a few elements at a time, so that others can write gradients just before, and read
// parameters just after.
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <utility>

#include "yoke/train/optim/optimizer.h"
#include "yoke/train/watch/step_end.h"

namespace yoke::train {

bool Optimizer::can_step_in_pieces() const {
  return std::ranges::all_of(slots_, [](const Slot& slot) { return slot.is_fused && slot.parameter.is_cpu(); });
}

void Optimizer::plan_pieces(const StepInPieces& pieces) {
  constexpr size_t kNowhere = -1;
  std::vector<std::pair<size_t, size_t>> places(slots_.size(), {kNowhere, 0});  // the batch, and the index in it
  for (size_t batch = 0; batch < batches_.size(); ++batch) {
    const auto& slots = batches_[batch].slots;
    for (size_t i = 0; i < slots.size(); ++i) places[slots[i]] = {batch, i};
  }
  for (const auto& lane : pieces.lanes) {
    auto& planned = pieces_.emplace_back();
    for (const auto& piece : lane) {
      std::vector<Batch> of_piece(batches_.size());
      for (const auto& part : piece.parts) {
        const auto [index, i] = places[part.parameter];
        if (index == kNowhere) continue;  // it has no gradient
        const auto& whole = batches_[index];
        auto& batch = of_piece[index];
        batch.group = whole.group;
        batch.is_first_step = whole.is_first_step;
        batch.states.resize(whole.states.size());
        const auto elements = [&](const at::Tensor& tensor) {
          return tensor.view({-1}).narrow(0, part.first, part.size);
        };
        batch.parameters.push_back(elements(whole.parameters[i]));
        batch.gradients.push_back(part.gradient);
        for (size_t kind = 0; kind < whole.states.size(); ++kind) {
          if (!whole.states[kind].empty()) batch.states[kind].push_back(elements(whole.states[kind][i]));
        }
        if (!whole.steps.empty()) batch.steps.push_back(whole.steps[i]);
      }
      std::erase_if(of_piece, [](const Batch& batch) { return batch.parameters.empty(); });
      planned.push_back(std::move(of_piece));
    }
  }
}

void Optimizer::step_in_pieces(const StepInPieces& pieces) {
  at::RecordFunction annotation(at::RecordScope::USER_SCOPE);
  if (annotation.isActive()) annotation.before("Optimizer.step#" + traits_.name);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  note_gradients();
  if (!is_planned_) plan();
  if (pieces_.empty()) plan_pieces(pieces);
  for (const auto& batch : batches_) {
    for (const size_t i : batch.slots) checked_gradient(i);
  }
  for (auto& batch : batches_) begin_batch(batch);
  at::parallel_for(0, std::ssize(pieces_), 1, [&](int64_t begin, int64_t end) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd_here;
    for (auto lane = static_cast<size_t>(begin); lane < static_cast<size_t>(end); ++lane) {
      for (size_t piece = 0; piece < pieces_[lane].size(); ++piece) {
        pieces.before(lane, piece);
        for (auto& batch : pieces_[lane][piece]) {
          batch.lr = lrs_[batch.group];
          update_fused(batch, {});
        }
        pieces.after(lane, piece);
      }
    }
  });
  for (auto& batch : batches_) end_batch(batch);
  end_step(this);
}

}  // namespace yoke::train
