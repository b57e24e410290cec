#include "yoke/dist/same_on_all_ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sstream>

#include "yoke/base/error.h"
#include "yoke/dist/odd_ranks.h"

namespace yoke::dist {

std::string describe_tensors(const NamedTensors& tensors) {
  std::string text;
  for (const auto& [name, tensor] : tensors) {
    // Collectives send elements in memory order, so tensors with different strides would mix up their elements.
    const auto layout = tensor.layout() != at::kStrided || tensor.is_contiguous()
                            ? ""
                            : fmt::format(" strides [{}]", fmt::join(tensor.strides(), ", "));
    text += fmt::format("{} {} [{}]{}{}\n", name, c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "),
                        layout, tensor.requires_grad() ? " trained" : "");
  }
  return text;
}

std::string first_difference(const std::string& reference, const std::string& other, int64_t reference_rank) {
  std::istringstream expected_lines(reference), actual_lines(other);
  std::string expected, actual;
  while (true) {
    const bool has_expected = static_cast<bool>(std::getline(expected_lines, expected));
    const bool has_actual = static_cast<bool>(std::getline(actual_lines, actual));
    if (!has_expected && !has_actual) return "";
    if (!has_actual) return fmt::format("it lacks '{}' of rank {}", expected, reference_rank);
    if (!has_expected) return fmt::format("it has '{}', which rank {} lacks", actual, reference_rank);
    if (expected != actual) return fmt::format("it has '{}' where rank {} has '{}'", actual, reference_rank, expected);
  }
}

void check_same_on_all_ranks(Group& group, const NamedTensors& tensors, const std::string& options) {
  if (group.size() == 1) return;
  const auto texts = group.all_gather_text(describe_tensors(tensors) + options);
  // The options are the last line, which is no tensor that a rank with fewer of them could have in its place.
  const auto split = [](const std::string& text) {
    const auto end = text.rfind('\n') + 1;
    return std::pair(text.substr(0, end), text.substr(end));
  };
  const auto [first_tensors, first_options] = split(texts[0]);
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    const auto [its_tensors, its_options] = split(texts[rank]);
    auto difference = first_difference(first_tensors, its_tensors, group.ranks()[0]);
    if (difference.empty()) difference = first_difference(first_options, its_options, group.ranks()[0]);
    const auto message =
        fmt::format("the model or its options differ between ranks: on rank {} {}", group.ranks()[rank], difference);
    note_odd_ranks(message, texts, group.ranks(), "the model or its options");
    throw Error(ErrorCode::kInvalidArgument, "{}", message);
  }
}

}  // namespace yoke::dist
