#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "yoke/base/text.h"
#include "yoke/device/visibility/detail/rules.h"

namespace yoke::device {
namespace {

Entry accepted(const std::string& token, int64_t device, std::string why) {
  return {token, Verdict::kVisible, Unit{device, {}}, std::move(why), true};
}

// ---- ROCr -----------------------------------------------------------------------------------------------------------

Entry match_rocr_uuid(const std::string& token, const std::string& wanted, const Gpus& gpus) {
  constexpr size_t kShortest = 5;
  constexpr size_t kLongest = 20;  // "GPU-" and 16 hexadecimal digits
  if (wanted.size() < kShortest || wanted.size() > kLongest) {
    return refused(token, Verdict::kInvalid, "a UUID has 5 to 20 characters");
  }
  std::optional<int64_t> found;
  for (size_t i = 0; i < gpus.size(); ++i) {
    const auto& uuid = gpus[i]->facts.uuid;
    if (uuid.empty() || !upper_case(uuid).starts_with(wanted)) continue;
    if (found) return refused(token, Verdict::kAmbiguous, "several UUIDs begin with this");
    found = static_cast<int64_t>(i);
  }
  if (!found) return refused(token, Verdict::kOutOfRange, "no UUID begins with this");
  return accepted(token, *found, "by its UUID");
}

Entry match_rocr(const std::string& token, const Gpus& gpus) {
  const auto text = upper_case(trimmed(token, kSpace));
  if (text.empty()) return refused(token, Verdict::kInvalid, "ROCr fails to start on an empty entry");
  if (text.front() == 'G') return match_rocr_uuid(token, text, gpus);
  char* end = nullptr;
  // ROCr truncates the number to 32 bits, so 4294967296 means device 0.
  const auto index = static_cast<int32_t>(std::strtol(text.c_str(), &end, 0));
  if (*end != '\0') return refused(token, Verdict::kInvalid, "neither a number nor a GPU- UUID");
  if (index < 0) return refused(token, Verdict::kInvalid, "a negative number");
  if (index >= static_cast<int64_t>(gpus.size())) {
    return refused(token, Verdict::kOutOfRange, fmt::format("the GPUs here are counted from 0 to {}", gpus.size() - 1));
  }
  const bool is_plain = text == std::to_string(index);
  return accepted(token, index,
                  is_plain ? fmt::format("number {}", index) : fmt::format("number {}, as C reads it", index));
}

// ---- HIP ------------------------------------------------------------------------------------------------------------

/// Returns the UUID that ROCr passes to HIP. ROCr makes up "GPU-XX" for a GPU without a unique id.
std::string hip_uuid(const Device& gpu) {
  if (!gpu.facts.uuid.starts_with("GPU-")) return "GPU-XX";
  return "GPU-" + lower_case(gpu.facts.uuid.substr(4));
}

Entry match_hip(const std::string& token, const Gpus& gpus) {
  if (token.find("GPU-") != token.npos) {
    std::vector<int64_t> found;
    for (size_t i = 0; i < gpus.size(); ++i) {
      if (hip_uuid(*gpus[i]).find(token) != std::string::npos) found.push_back(static_cast<int64_t>(i));
    }
    if (found.empty()) return refused(token, Verdict::kOutOfRange, "no UUID contains this (case matters)");
    return accepted(token, found.front(), found.size() == 1 ? "by its UUID" : "the first of several whose UUID has it");
  }
  const auto index = parse_int(token);
  if (!index || token != std::to_string(*index)) {
    return refused(token, Verdict::kInvalid,
                   "neither a GPU- UUID nor a plain number (no spaces, signs, leading zeros)");
  }
  if (*index < 0) return refused(token, Verdict::kInvalid, "a negative number");
  if (*index >= static_cast<int64_t>(gpus.size())) {
    return refused(token, Verdict::kOutOfRange,
                   gpus.empty() ? "ROCr shows no GPU"
                                : fmt::format("the GPUs that ROCr shows are counted from 0 to {}", gpus.size() - 1));
  }
  return accepted(token, *index, fmt::format("number {}", *index));
}

Selection every(const Gpus& gpus, std::string effect) {
  Selection result;
  for (size_t i = 0; i < gpus.size(); ++i) result.units.push_back({static_cast<int64_t>(i), {}});
  result.effect = std::move(effect);
  return result;
}

}  // namespace

Selection select_rocr(const std::optional<std::string>& text, const Gpus& gpus) {
  if (!text) return every(gpus, "not set: every GPU");
  Selection result;
  if (text->empty()) {
    result.effect = "empty: hides every GPU";
    return result;
  }
  ListReader reader(Duplicates::kEndTheList);
  for (const auto& token : split_list(*text, false)) {
    const auto number = reader.selection.entries.size();
    if (!reader.has_ended() && number == gpus.size()) reader.end("no more entries are read than there are GPUs");
    const bool is_fatal = !reader.has_ended() && trimmed(token, kSpace).empty();
    reader.add(match_rocr(token, gpus));
    if (is_fatal) reader.cancel(number);
  }
  result = std::move(reader.selection);
  result.effect = "the GPUs that ROCr shows to everything above it, in their order, numbered from 0";
  return result;
}

Selection select_hip(const std::optional<std::string>& text, const Gpus& gpus) {
  if (!text) return every(gpus, "not set: every GPU that ROCr shows");
  if (text->empty()) return every(gpus, "empty: hides nothing, unlike CUDA's and ROCr's");
  ListReader reader(Duplicates::kAreSkipped);
  for (const auto& token : split_list(*text, false)) {
    reader.add(match_hip(token, gpus));
  }
  reader.selection.effect = "the GPUs that HIP programs see of those that ROCr shows, in their order";
  return std::move(reader.selection);
}

}  // namespace yoke::device
