#include "yoke/train/device/detail/guardrail_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "yoke/base/format.h"
#include "yoke/base/json.h"
#include "yoke/base/table.h"
#include "yoke/base/text.h"

namespace yoke::train {
namespace {

template <size_t N>
bool contains(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Advice on how to avoid the copy or wait. The rest of the message says how to allow it.
std::string advice(const GuardrailPlace& place) {
  if (place.from != "cpu" && place.to == "cpu") {
    return fmt::format(
        "keep the value on {} (a train::Meter, Run::log and TensorBoardWriter do) and read it after the "
        "step",
        place.from);
  }
  if (place.from == "cpu") {
    return fmt::format("make it on {}, or copy it from pinned memory with non_blocking, as train::Loader does",
                       place.to);
  }
  return "keep both on one device, or copy with non_blocking=true if the copy is meant";
}

std::string_view kind_name(GuardrailKind kind) { return kind == GuardrailKind::kCopy ? "copy" : "sync"; }

}  // namespace

GuardrailCheck guardrail_check(std::string_view name, c10::ArrayRef<at::Tag> tags) {
  constexpr std::array<std::string_view, 6> kNames = {"aten::to.device", "aten::to.dtype", "aten::to.dtype_layout",
                                                      "aten::to.other",  "aten::_to_copy", "aten::is_nonzero"};
  constexpr std::array<std::string_view, 4> kMasked = {"aten::index.Tensor", "aten::index_put", "aten::index_put_",
                                                       "aten::_index_put_impl_"};
  // The tags of these operators describe cases in which another operator, called inside, waits. The inner operator is
  // caught.
  constexpr std::array<std::string_view, 5> kByInnerCalls = {
      "aten::one_hot", "aten::linalg_lstsq", "aten::linalg_lstsq.out", "aten::_ctc_loss", "aten::_ctc_loss.Tensor"};
  if (name == "aten::copy_") return GuardrailCheck::kCopy;
  if (name == "aten::repeat_interleave.Tensor") return GuardrailCheck::kRepeat;
  if (name == "aten::_coalesce") return GuardrailCheck::kSync;  // counts distinct indices, so it waits, but has no tag
  if (contains(kMasked, name)) return GuardrailCheck::kMaskIndex;
  if (contains(kNames, name)) return GuardrailCheck::kName;
  if (contains(kByInnerCalls, name)) return GuardrailCheck::kNone;
  const bool needs_values = std::any_of(tags.begin(), tags.end(), [](at::Tag tag) {
    return tag == at::Tag::data_dependent_output || tag == at::Tag::dynamic_output_shape;
  });
  return needs_values ? GuardrailCheck::kSync : GuardrailCheck::kNone;
}

std::optional<GuardrailKind> judge_copy(const CopyFacts& copy, const GuardrailOptions& options) {
  const bool touches_host = copy.from.is_cpu() || copy.to.is_cpu();
  if (copy.from == copy.to || copy.is_empty || copy.from.is_meta() || copy.to.is_meta()) return std::nullopt;
  if (copy.non_blocking && (copy.host_is_pinned || !touches_host)) return std::nullopt;
  if (copy.is_backward_of_copy && !touches_host) return std::nullopt;  // the forward copy was allowed or caught already
  if (options.copies) return GuardrailKind::kCopy;
  return options.syncs && touches_host ? std::optional(GuardrailKind::kSync) : std::nullopt;
}

bool is_waited_for(c10::Device device) { return !device.is_cpu() && !device.is_meta(); }

std::string place_text(const GuardrailPlace& place) {
  auto text = !place.function.empty()      ? place.function
              : !place.backward_of.empty() ? "a thread of autograd"
                                           : "a thread without a function of the program";
  if (!place.file.empty()) text += fmt::format(" ({}:{})", place.file, place.line);
  if (!place.backward_of.empty()) text += ", in the backward of " + place.backward_of;
  return text;
}

std::string guardrail_message(const GuardrailPlace& place) {
  const auto what = place.kind == GuardrailKind::kCopy
                        ? fmt::format("{} copies {} from {} to {}", place.operation, place.tensor, place.from, place.to)
                        : fmt::format("{} of {} makes the host wait for {}", place.operation, place.tensor,
                                      place.from == "cpu" ? place.to : place.from);
  return fmt::format(
      "{} within DeviceGuardrails, called by {}: {}, or allow it by a DeviceGuardrails::Allow before the "
      "call",
      what, place_text(place), advice(place));
}

std::string guardrail_text(const std::vector<GuardrailPlace>& places) {
  if (places.empty()) return "DeviceGuardrails found no copy between devices and no wait for a device.\n";
  Table table{.columns = {{"COUNT", Align::kRight},
                          {"KIND"},
                          {"OPERATION"},
                          {"FROM"},
                          {"TO"},
                          {"COPIED", Align::kRight},
                          {"FIRST TENSOR"},
                          {"CALLED BY"}}};
  for (const auto& place : places) {
    table.rows.push_back({std::to_string(place.count), std::string(kind_name(place.kind)), place.operation, place.from,
                          place.to, place.bytes > 0 ? format_bytes(place.bytes) : "-", place.tensor,
                          place_text(place)});
  }
  return to_text(table, kUnlimitedWidth);
}

std::string guardrail_json(const std::vector<GuardrailPlace>& places) {
  const auto to_json = [](const GuardrailPlace& place) -> Json {
    return {{"kind", kind_name(place.kind)},
            {"operation", place.operation},
            {"from", place.from},
            {"to", place.to},
            {"tensor", place.tensor},
            {"function", printable(place.function)},
            {"file", printable(place.file)},
            {"line", place.line},
            {"backward_of", place.backward_of},
            {"count", place.count},
            {"bytes", place.bytes}};
  };
  return Json{{"places", json_list(places, to_json)}}.dump(2);
}

}  // namespace yoke::train
