#include "yoke/train/predict/gather_in_order.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/json_text.h"
#include "yoke/dist/group.h"
#include "yoke/dist/on_all_ranks.h"
#include "yoke/train/format/safetensors.h"
#include "yoke/train/predict/detail/gather_parts.h"

namespace yoke::train {
namespace {

constexpr auto kSampleNumbers = "samples";  // outputs have numbers as names
constexpr auto kRestOfPart = "part";        // in the metadata: what is not a tensor

/// A message is a safetensors file in memory: it describes itself, so ranks may send different outputs.
at::Tensor message_of(const Predictions& part) {
  TensorMap tensors;
  nlohmann::json rest = {{"first", part.first_sample},
                         {"count", part.num_samples},
                         {"names", nlohmann::json::array()},
                         {"bad", nlohmann::json::array()}};
  for (size_t i = 0; i < part.outputs.size(); ++i) {
    tensors.emplace(std::to_string(i), part.outputs[i].second);
    rest["names"].push_back(part.outputs[i].first);
  }
  for (const auto& bad : part.bad) rest["bad"].push_back({bad.sample, bad.error});
  tensors.emplace(kSampleNumbers, at::tensor(at::ArrayRef<int64_t>(part.samples), at::kLong));
  const auto layout = lay_out_safetensors(tensors, {{kRestOfPart, json_line(rest)}});
  const auto message = at::empty({layout.num_bytes}, at::kByte);
  auto* to = message.mutable_data_ptr<uint8_t>();
  const auto append = [&](const void* from, size_t count) {
    if (count > 0) std::memcpy(to, from, count);
    to += count;
  };
  append(layout.header.data(), layout.header.size());
  stream_tensors(layout, tensors, [&](std::span<const std::byte> bytes) { append(bytes.data(), bytes.size()); });
  return message;
}

Predictions part_of_message(const at::Tensor& message) {
  const auto* begin = reinterpret_cast<const std::byte*>(message.const_data_ptr<uint8_t>());
  const auto header = parse_safetensors_header({begin, static_cast<size_t>(message.numel())}, "predictions of a rank");
  const auto rest = nlohmann::json::parse(header.metadata.at(kRestOfPart));
  Predictions part{.first_sample = rest["first"], .num_samples = rest["count"]};
  for (const auto& name : rest["names"]) part.outputs.emplace_back(name, at::Tensor());
  for (const auto& bad : rest["bad"]) part.bad.push_back({bad[0], bad[1]});
  for (const auto& slot : header.slots) {
    auto* data = const_cast<std::byte*>(begin) + header.num_bytes + slot.begin_byte;
    auto tensor = at::from_blob(
        data, slot.shape, [message](void*) {}, at::TensorOptions(slot.dtype));
    if (slot.name != kSampleNumbers) {
      part.outputs.at(std::stoul(slot.name)).second = std::move(tensor);
      continue;
    }
    part.samples.assign(tensor.const_data_ptr<int64_t>(), tensor.const_data_ptr<int64_t>() + tensor.numel());
  }
  return part;
}

std::string describe_outputs(const NamedTensors& outputs) {
  std::string text;
  for (const auto& [name, tensor] : outputs) {
    text += fmt::format("{}{} [rows{}{}] {}", text.empty() ? "" : ", ", name, tensor.dim() > 1 ? ", " : "",
                        fmt::join(tensor.sizes().slice(1), ", "), c10::toString(tensor.scalar_type()));
  }
  return text.empty() ? "no outputs" : text;
}

}  // namespace

NamedTensors detail::join_outputs(const std::vector<NamedTensors>& parts) {
  NamedTensors result;
  if (parts.empty()) return result;
  const auto first = describe_outputs(parts.front());
  for (const auto& part : parts) {
    if (describe_outputs(part) == first) continue;
    throw Error(ErrorCode::kInvalidArgument, "outputs differ between batches: {}; and {}", first,
                describe_outputs(part));
  }
  for (size_t i = 0; i < parts.front().size(); ++i) {
    std::vector<at::Tensor> tensors;
    for (const auto& part : parts) tensors.push_back(part[i].second);
    result.emplace_back(parts.front()[i].first, at::cat(tensors));
  }
  return result;
}

void detail::check_rows(const NamedTensors& outputs, int64_t num_rows) {
  for (const auto& [name, tensor] : outputs) {
    if (tensor.defined() && tensor.dim() > 0 && tensor.size(0) == num_rows) continue;
    throw Error(
        ErrorCode::kInvalidArgument,
        "the output '{}' of a batch of {} samples is {}: an output has a row for each sample, so its first size "
        "is that of the batch",
        name, num_rows, tensor.defined() ? fmt::format("[{}]", fmt::join(tensor.sizes(), ", ")) : "undefined");
  }
}

std::vector<Predictions> detail::gather_parts(dist::Group& group, Predictions own) {
  if (group.rank() == 0) {
    for (auto& [_, tensor] : own.outputs) tensor = tensor.detach().cpu();
  }
  std::vector<Predictions> parts;
  if (group.size() == 1) {
    parts.push_back(std::move(own));
    return parts;
  }
  const auto device = group.device();
  at::Tensor message;
  if (group.rank() != 0) {
    try {
      message = message_of(own).to(device);
    } catch (...) {
      group.fail(std::current_exception());
    }
  }
  const auto sizes =
      group.all_gather(at::full({1}, message.defined() ? message.numel() : 0, at::kLong).to(device)).cpu();
  if (group.rank() != 0) {
    group.send(message, 0);
    return parts;
  }
  parts.push_back(std::move(own));
  std::vector<at::Tensor> messages;
  std::vector<dist::PendingCollective> pending;
  for (int64_t rank = 1; rank < group.size(); ++rank) {
    const int64_t size = sizes.const_data_ptr<int64_t>()[rank];
    messages.push_back(at::empty({size}, at::TensorOptions(at::kByte).device(device)));
    pending.push_back(group.start_receive(messages.back(), rank));
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    pending[i].wait();
    parts.push_back(part_of_message(messages[i].cpu()));
  }
  return parts;
}

SampleRows gather_in_order(dist::Group& group, const std::vector<SampleRows>& batches) {
  Predictions own;
  dist::on_all_ranks(group, "the outputs of a rank were not joined", [&] {
    std::vector<NamedTensors> on_cpu;
    for (const auto& [samples, outputs] : batches) {
      detail::check_rows(outputs, static_cast<int64_t>(samples.size()));
      own.samples.insert(own.samples.end(), samples.begin(), samples.end());
      auto& copies = on_cpu.emplace_back();
      for (const auto& [name, tensor] : outputs) copies.emplace_back(name, tensor.detach().cpu());
    }
    own.outputs = detail::join_outputs(on_cpu);
  });
  const auto parts = detail::gather_parts(group, std::move(own));
  SampleRows result;
  dist::on_all_ranks(group, "the outputs of ranks were not joined", [&] {
    std::vector<int64_t> samples;
    std::vector<NamedTensors> outputs;
    for (const auto& part : parts) {
      samples.insert(samples.end(), part.samples.begin(), part.samples.end());
      if (!part.samples.empty()) outputs.push_back(part.outputs);
    }
    std::vector<int64_t> order(samples.size());
    std::iota(order.begin(), order.end(), int64_t{0});
    const auto sample_of = [&](int64_t row) { return samples[static_cast<size_t>(row)]; };
    std::ranges::stable_sort(order, {}, sample_of);
    const auto repeated = std::ranges::unique(order, {}, sample_of);
    order.erase(repeated.begin(), repeated.end());
    for (const int64_t row : order) result.samples.push_back(sample_of(row));
    const auto rows = at::tensor(at::ArrayRef<int64_t>(order), at::kLong);
    for (const auto& [name, tensor] : detail::join_outputs(outputs))
      result.outputs.emplace_back(name, tensor.index_select(0, rows));
  });
  return result;
}

}  // namespace yoke::train
