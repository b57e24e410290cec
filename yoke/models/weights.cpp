#include "yoke/models/weights.h"

#include <algorithm>
#include <exception>
#include <fstream>

#include "yoke/base/error.h"
#include "yoke/dist/group.h"
#include "yoke/models/detail/check.h"
#include "yoke/train/checkpoint/module_state.h"
#include "yoke/train/checkpoint/tensor_slice.h"
#include "yoke/train/format/pt_file.h"
#include "yoke/train/format/safetensors.h"

namespace yoke::models {
namespace {

/// The first bytes of safetensors are the length of the header, 8 bytes, and its "{"; no file of torch.save has one
/// there.
bool is_safetensors(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  char bytes[9] = {};
  return file.read(bytes, sizeof bytes) && bytes[8] == '{';
}

train::TensorMap read_pt_weights(const std::filesystem::path& path) {
  std::exception_ptr first;
  for (const auto& keys : std::vector<std::vector<std::string>>{{}, {"state_dict"}, {"model"}, {"model_state_dict"}}) {
    try {
      return train::read_state_dict(path, keys);
    } catch (const Error& error) {
      // A file of a trainer may have objects beside the weights that are not read, such as its options.
      if (error.code() != ErrorCode::kInvalidArgument && error.code() != ErrorCode::kDataLoss) throw;
      if (!first) first = std::current_exception();
    }
  }
  std::rethrow_exception(first);
}

bool is_optional(const std::string& name) { return name.ends_with("num_batches_tracked"); }

}  // namespace

train::TensorMap read_weights(const std::filesystem::path& path) {
  auto tensors = is_safetensors(path) ? train::read_safetensors(path).tensors : read_pt_weights(path);
  constexpr std::string_view kPrefix = "module.";
  const auto has_prefix = [&](const auto& named) { return named.first.starts_with(kPrefix); };
  if (tensors.empty() || !std::ranges::all_of(tensors, has_prefix)) return tensors;
  train::TensorMap stripped;
  for (auto& [name, tensor] : tensors) stripped.emplace(name.substr(kPrefix.size()), std::move(tensor));
  return stripped;
}

std::vector<std::string> load_weights(train::TensorMap from, torch::nn::Module& model, const LoadOptions& options) {
  const auto into = train::by_name(train::named_tensors(model));
  if (!options.head.empty()) {
    const auto is_of_head = [&](const auto& named) { return named.first.starts_with(options.head + "."); };
    const bool differs = std::ranges::any_of(from, [&](const auto& named) {
      const auto there = into.find(named.first);
      return is_of_head(named) && (there == into.end() || there->second.sizes() != named.second.sizes());
    });
    if (differs) std::erase_if(from, is_of_head);
  }
  std::vector<std::string> kept;
  for (const auto& [name, tensor] : into) {
    const auto there = from.find(name);
    if (there == from.end()) {
      const bool is_head = !options.head.empty() && name.starts_with(options.head + ".");
      detail::check_that(is_head || is_optional(name), "the weights lack {}, which the model has", name);
      kept.push_back(name);
    } else if (tensor.is_floating_point() && there->second.is_floating_point()) {
      there->second = there->second.to(tensor.scalar_type());
    }
  }
  for (const auto& [name, tensor] : from) {
    detail::check_that(into.contains(name), "the weights have {}, which the model lacks", name);
  }
  train::load_matching(std::move(from), model);
  return kept;
}

void save_weights(dist::Group& group, const torch::nn::Module& model, const std::filesystem::path& path) {
  const auto whole = train::gather_tensors(group, train::named_tensors(model));
  if (group.rank() == 0) {
    try {
      if (path.extension() == ".safetensors") {
        train::write_safetensors(path, whole, {{"format", "pt"}});
      } else {
        train::write_pt(path, train::to_pt(whole));
      }
    } catch (...) {
      group.fail(std::current_exception());
    }
  }
  group.barrier();
}

}  // namespace yoke::models
