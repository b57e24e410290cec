#include "yoke/dist/gradient.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/dist/activity.h"

namespace yoke::dist {

/// Names a group in autograd's graph. The graph may live longer than the World, whose connections it must not keep
/// open.
class GroupReference {
 public:
  explicit GroupReference(const Group& group) : job_(group.job_), impl_(group.impl_) {}

  Group lock(const char* what) const {
    auto job = job_.lock();
    auto impl = impl_.lock();
    if (job && impl) return {std::move(job), std::move(impl)};
    throw Error(ErrorCode::kFailedPrecondition, "{}: the World of its group has ended; call backward before that",
                what);
  }

 private:
  std::weak_ptr<Group::Job> job_;
  std::weak_ptr<Group::Impl> impl_;
};

namespace gradient {
namespace {

using torch::autograd::AutogradContext;

using Operation = std::function<at::Tensor(Group& group, const at::Tensor& tensor)>;

/// A linear function of all ranks' tensors.
struct Linear {
  const char* name;
  const char* name_of_backward;  ///< In messages about ranks that wait in different collectives.
  Operation apply;               ///< Gets a contiguous tensor without a gradient.
  Operation adjoint;             ///< Itself made of functions that have gradients.
};

/// What autograd's graph keeps until backward.
struct Call : torch::CustomClassHolder {
  Call(const Group& group_in, Linear linear_in) : group(group_in), linear(std::move(linear_in)) {}
  GroupReference group;
  Linear linear;
};

at::Tensor dense(const at::Tensor& tensor) { return tensor.detach().resolve_conj().resolve_neg().contiguous(); }

struct ThroughRanks : torch::autograd::Function<ThroughRanks> {
  /// `trigger` requires a gradient, so that autograd makes a node on each rank. Whether `tensor` requires one may
  /// differ between ranks, and a rank without a node would be missing in backward.
  static at::Tensor forward(AutogradContext* context, const c10::intrusive_ptr<Call>& call,
                            const at::Tensor& /*trigger*/, const at::Tensor& tensor) {
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    auto group = call->group.lock(call->linear.name);
    return call->linear.apply(group, dense(tensor));
  }

  static std::vector<at::Tensor> backward(AutogradContext* context, const std::vector<at::Tensor>& gradients) {
    const auto call = c10::static_intrusive_pointer_cast<Call>(context->saved_data["call"].toCapsule());
    auto group = call->group.lock(call->linear.name_of_backward);
    const Activity activity(group, call->linear.name_of_backward);
    return {at::Tensor(), at::Tensor(), call->linear.adjoint(group, gradients[0])};
  }
};

at::Tensor through_ranks(Group& group, const at::Tensor& tensor, Linear linear) {
  if (!tensor.defined()) throw Error(ErrorCode::kInvalidArgument, "{}: its tensor is undefined", linear.name);
  if (!c10::GradMode::is_enabled() || !(tensor.is_floating_point() || tensor.is_complex())) {
    return linear.apply(group, dense(tensor));
  }
  const auto trigger = at::empty({0}, tensor.options()).set_requires_grad(true);
  return ThroughRanks::apply(c10::make_intrusive<Call>(group, std::move(linear)), trigger, tensor);
}

void refuse_extremes(const char* name, ReduceOp op) {
  if (op == ReduceOp::kSum || op == ReduceOp::kMean) return;
  throw Error(
      ErrorCode::kInvalidArgument,
      "{}: a smallest or largest value has no gradient here, because equal values on two ranks leave open whose "
      "it is: use dist::gradient::all_gather(group, tensor).amax(0), which shares it among them, or without a "
      "gradient Group::all_reduce",
      name);
}

/// Adds the tensors of all ranks on `root`, and returns zeros on the others: the adjoint of broadcast.
at::Tensor sum_on_root(Group& group, const at::Tensor& tensor, int64_t root) {
  return through_ranks(
      group, tensor,
      {.name = "the backward of dist::gradient::broadcast",
       .name_of_backward = "the second backward of dist::gradient::broadcast",
       .apply =
           [root](Group& ranks, const at::Tensor& own) {
             auto sum = own.clone();
             ranks.all_reduce(sum);  // Group has no reduction to one rank
             return ranks.rank() == root ? sum : sum.zero_();
           },
       .adjoint = [root](Group& ranks, const at::Tensor& gradient) { return broadcast(ranks, gradient, root); }});
}

/// The adjoint of a message is another message, which autograd cannot follow to the other rank and back.
void refuse_second_backward() {
  if (!c10::GradMode::is_enabled()) return;
  throw Error(ErrorCode::kFailedPrecondition,
              "dist::gradient::send and receive give no gradients of gradients: call backward without create_graph, or "
              "use dist::gradient::broadcast or all_to_all");
}

}  // namespace

at::Tensor all_reduce(Group& group, const at::Tensor& tensor, ReduceOp op) {
  refuse_extremes("dist::gradient::all_reduce", op);
  return through_ranks(
      group, tensor,
      {.name = "dist::gradient::all_reduce",
       .name_of_backward = "the backward of dist::gradient::all_reduce",
       .apply =
           [op](Group& ranks, const at::Tensor& own) {
             auto result = own.clone();
             ranks.all_reduce(result, op);
             return result;
           },
       .adjoint = [op](Group& ranks, const at::Tensor& gradient) { return all_reduce(ranks, gradient, op); }});
}

at::Tensor broadcast(Group& group, const at::Tensor& tensor, int64_t root) {
  return through_ranks(
      group, tensor,
      {.name = "dist::gradient::broadcast",
       .name_of_backward = "the backward of dist::gradient::broadcast",
       .apply =
           [root](Group& ranks, const at::Tensor& own) {
             auto result = own.clone();
             ranks.broadcast(result, root);
             return result;
           },
       .adjoint = [root](Group& ranks, const at::Tensor& gradient) { return sum_on_root(ranks, gradient, root); }});
}

at::Tensor all_gather(Group& group, const at::Tensor& tensor) {
  return through_ranks(group, tensor,
                       {.name = "dist::gradient::all_gather",
                        .name_of_backward = "the backward of dist::gradient::all_gather",
                        .apply = [](Group& ranks, const at::Tensor& own) { return ranks.all_gather(own); },
                        .adjoint = [](Group& ranks, const at::Tensor& gradient) {  // [size, ...]
                          return reduce_scatter(ranks, gradient.reshape({-1})).reshape(gradient.sizes().slice(1));
                        }});
}

GatheredRows all_gather_rows(Group& group, const at::Tensor& tensor) {
  constexpr const char* kName = "dist::gradient::all_gather_rows";
  if (!tensor.defined() || tensor.dim() == 0) {
    throw Error(ErrorCode::kInvalidArgument, "{}: its tensor {}", kName,
                tensor.defined() ? "has no rows: it is a scalar" : "is undefined");
  }
  const Activity activity(group, kName);
  const auto kind = c10::str(" rows of ", c10::toString(tensor.scalar_type()), " ", tensor.sizes().slice(1));
  const auto texts = group.all_gather_text(std::to_string(tensor.size(0)) + kind);
  std::vector<int64_t> counts;
  const auto kind_of = [](const std::string& text) { return text.substr(text.find(' ')); };
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    counts.push_back(std::stoll(texts[rank]));
    if (kind_of(texts[rank]) == kind_of(texts[0])) continue;
    throw Error(ErrorCode::kInvalidArgument,
                "{}: rank {} has{} and rank {} has{}: only the number of rows may differ between ranks", kName,
                group.ranks()[rank], kind_of(texts[rank]), group.ranks()[0], kind_of(texts[0]));
  }
  const auto most = *std::ranges::max_element(counts);
  GatheredRows result;
  for (int64_t rank = 0; rank < group.rank(); ++rank) result.first += counts[static_cast<size_t>(rank)];
  auto padded = tensor;
  if (tensor.size(0) < most) {
    auto shape = tensor.sizes().vec();
    shape[0] = most - tensor.size(0);
    padded = at::cat({tensor, at::zeros(shape, tensor.options())});
  }
  if (padded.numel() == 0) {  // Gloo takes no empty tensor
    auto shape = tensor.sizes().vec();
    shape[0] = 0;
    for (const auto count : counts) shape[0] += count;
    result.rows = at::empty(shape, tensor.options());
    return result;
  }
  const auto all = all_gather(group, padded);  // [size, most, ...]
  std::vector<at::Tensor> parts;
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    parts.push_back(all[static_cast<int64_t>(rank)].narrow(0, 0, counts[rank]));
  }
  result.rows = at::cat(parts);
  return result;
}

at::Tensor reduce_scatter(Group& group, const at::Tensor& tensor, ReduceOp op) {
  constexpr const char* kName = "dist::gradient::reduce_scatter";
  refuse_extremes(kName, op);
  if (tensor.defined() && (tensor.dim() == 0 || tensor.size(0) % group.size() != 0)) {
    throw Error(ErrorCode::kInvalidArgument,
                "{}: a tensor of {} cannot be divided into parts of equal numbers of rows for {} ranks: add rows of "
                "zeros, or use all_to_all with Splits and add",
                kName, c10::str(tensor.sizes()), group.size());
  }
  return through_ranks(group, tensor,
                       {.name = kName,
                        .name_of_backward = "the backward of dist::gradient::reduce_scatter",
                        .apply =
                            [op](Group& ranks, const at::Tensor& own) {
                              auto shape = own.sizes().vec();
                              shape[0] /= ranks.size();
                              auto part = at::empty(shape, own.options());
                              ranks.reduce_scatter(part, own, op);
                              return part;
                            },
                        .adjoint =
                            [op](Group& ranks, const at::Tensor& gradient) {
                              const auto all = all_gather(ranks, gradient).flatten(0, 1);
                              return op == ReduceOp::kMean ? all.div(ranks.size()) : all;
                            }});
}

at::Tensor all_to_all(Group& group, const at::Tensor& tensor, const Splits& splits) {
  const Splits reverse{.input = splits.output, .output = splits.input};
  return through_ranks(
      group, tensor,
      {.name = "dist::gradient::all_to_all",
       .name_of_backward = "the backward of dist::gradient::all_to_all",
       .apply =
           [splits](Group& ranks, const at::Tensor& own) {
             auto shape = own.sizes().vec();
             if (!splits.output.empty() && !shape.empty()) {
               shape[0] = 0;
               for (const auto rows : splits.output) shape[0] += std::max<int64_t>(0, rows);
             }
             auto result = at::empty(shape, own.options());
             ranks.all_to_all(result, own, splits);
             return result;
           },
       .adjoint = [reverse](Group& ranks,
                            const at::Tensor& gradient) { return all_to_all(ranks, gradient, reverse); }});
}

at::Tensor send(Group& group, const at::Tensor& tensor, int64_t to) {
  if (!tensor.defined()) throw Error(ErrorCode::kInvalidArgument, "dist::gradient::send: its tensor is undefined");
  return through_ranks(
      group, tensor,
      {.name = "dist::gradient::send",
       .name_of_backward = "the backward of dist::gradient::send",
       .apply =
           [to](Group& ranks, const at::Tensor& own) {
             ranks.send(own, to);
             return at::zeros({}, own.options().dtype(c10::toRealValueType(own.scalar_type())));
           },
       .adjoint =
           [to, shape = tensor.sizes().vec(), options = tensor.options()](Group& ranks, const at::Tensor&) {
             refuse_second_backward();
             auto gradient = at::empty(shape, options);
             ranks.receive(gradient, to);
             return gradient;
           }});
}

at::Tensor receive(Group& group, const at::Tensor& like, int64_t from) {
  return through_ranks(group, like,
                       {.name = "dist::gradient::receive",
                        .name_of_backward = "the backward of dist::gradient::receive",
                        .apply =
                            [from](Group& ranks, const at::Tensor& own) {
                              auto result = at::empty(own.sizes(), own.options());
                              ranks.receive(result, from);
                              return result;
                            },
                        .adjoint =
                            [from](Group& ranks, const at::Tensor& gradient) {
                              refuse_second_backward();
                              ranks.send(dense(gradient), from);
                              return at::Tensor();  // `like` has no part in the result
                            }});
}

}  // namespace gradient
}  // namespace yoke::dist
