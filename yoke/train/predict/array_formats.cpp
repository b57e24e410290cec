// NumPy's .npy and safetensors: arrays whose rows are the samples. Rows are written at their places, in any order.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/train/format/safetensors.h"
#include "yoke/train/predict/detail/prediction_format.h"

namespace yoke::train::detail {
namespace {

std::span<const std::byte> bytes_of(const at::Tensor& contiguous) {
  return {static_cast<const std::byte*>(contiguous.const_data_ptr()), contiguous.nbytes()};
}

/// The row of a bad sample.
at::Tensor filler(const OutputForm& form) {
  const bool has_nan = at::isFloatingType(form.dtype) || at::isComplexType(form.dtype);
  if (!has_nan) return at::empty(form.shape, form.dtype).zero_();
  return at::full(form.shape, std::numeric_limits<double>::quiet_NaN(), at::kDouble).to(form.dtype);
}

class Arrays : public PredictionFormat {
 public:
  void write_head(PredictionBytes& file) const override {
    file.append(head_);
    if (ftruncate(file.fd, num_bytes_) != 0) throw system_error(errno, "writing " + file.path);
    file.num_appended = num_bytes_;
  }

  void write_bad(PredictionBytes& file, const std::vector<BadSample>& all) const override {
    for (const auto& array : arrays_) {
      for (const auto& bad : all) write_rows(file, array, bad.sample, array.filler);
    }
  }

  void write(PredictionBytes& file, const Predictions& part) const override {
    write_bad(file, part.bad);
    for (size_t i = 0; i < part.outputs.size(); ++i) {
      const auto rows = part.outputs[i].second.resolve_conj().resolve_neg().contiguous();
      const auto count = static_cast<int64_t>(part.samples.size());
      for (int64_t begin = 0, end = 0; begin < count; begin = end) {  // runs of neighbouring samples
        const int64_t first = part.samples[static_cast<size_t>(begin)];
        while (end < count && part.samples[static_cast<size_t>(end)] - first == end - begin) ++end;
        write_rows(file, arrays_[i], first, rows.narrow(0, begin, end - begin));
      }
    }
  }

 protected:
  struct Array {
    int64_t offset = 0;  // in the file
    int64_t row_bytes = 0;
    at::Tensor filler;
  };

  void add_array(int64_t offset, const OutputForm& form) {
    const auto row = filler(form);
    arrays_.push_back({offset, static_cast<int64_t>(row.nbytes()), row});
  }

  std::string head_;
  int64_t num_bytes_ = 0;
  std::vector<Array> arrays_;  // in the order of outputs

 private:
  static void write_rows(const PredictionBytes& file, const Array& array, int64_t first, const at::Tensor& rows) {
    file.write_at(array.offset + first * array.row_bytes, bytes_of(rows));
  }
};

std::string numpy_dtype(at::ScalarType dtype) {
  switch (dtype) {
    case at::kBool: return "|b1";
    case at::kByte: return "|u1";
    case at::kChar: return "|i1";
    case at::kShort: return "<i2";
    case at::kUInt16: return "<u2";
    case at::kInt: return "<i4";
    case at::kUInt32: return "<u4";
    case at::kLong: return "<i8";
    case at::kUInt64: return "<u8";
    case at::kHalf: return "<f2";
    case at::kFloat: return "<f4";
    case at::kDouble: return "<f8";
    case at::kComplexFloat: return "<c8";
    case at::kComplexDouble: return "<c16";
    default: return "";
  }
}

/// Source  numpy/lib/format.py, version 1.0: the head is what numpy.save writes.
class Npy : public Arrays {
 public:
  NamedTensors converted(const NamedTensors& outputs) const override {
    NamedTensors result;
    for (const auto& [name, tensor] : outputs) {
      const bool is_new = numpy_dtype(tensor.scalar_type()).empty();
      result.emplace_back(name, is_new && tensor.is_floating_point() ? tensor.to(at::kFloat) : tensor);
    }
    return result;
  }

  void lay_out(const PredictedSource& source, const std::vector<OutputForm>& forms) override {
    if (forms.size() != 1) {
      throw Error(
          ErrorCode::kInvalidArgument,
          "there are {} outputs for each sample ({}), and a .npy file has one array: choose a .safetensors file, "
          "or return one tensor",
          forms.size(), describe_forms(forms));
    }
    const auto& form = forms.front();
    const auto dtype = numpy_dtype(form.dtype);
    if (dtype.empty()) {
      throw Error(ErrorCode::kInvalidArgument, "the output '{}' is of the dtype {}, which NumPy lacks", form.name,
                  c10::toString(form.dtype));
    }
    std::string shape = fmt::format("{},", source.num_samples);
    if (!form.shape.empty()) shape += fmt::format(" {}", fmt::join(form.shape, ", "));
    auto text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", dtype, shape);
    // NumPy leaves room for a first size of 21 digits. The data begin at a multiple of 64 bytes.
    constexpr size_t kBefore = 10, kAlignment = 64, kDigits = 21;  // kBefore: magic, version and length
    text.append(kDigits - std::to_string(source.num_samples).size(), ' ');
    text.append(kAlignment - (kBefore + text.size() + 1) % kAlignment, ' ');
    text += '\n';
    head_ = "\x93NUMPY";
    head_ += {'\x01', '\x00', static_cast<char>(text.size() & 0xff), static_cast<char>(text.size() >> 8)};
    head_ += text;
    add_array(static_cast<int64_t>(head_.size()), form);
    num_bytes_ = static_cast<int64_t>(head_.size()) + source.num_samples * arrays_.front().row_bytes;
  }
};

class Safetensors : public Arrays {
 public:
  void lay_out(const PredictedSource& source, const std::vector<OutputForm>& forms) override {
    NamedTensors tensors;
    for (const auto& form : forms) {
      auto sizes = form.shape;
      sizes.insert(sizes.begin(), source.num_samples);
      tensors.emplace_back(form.name, at::empty({1}, form.dtype).expand(sizes));  // a shape without memory
    }
    const auto by_names = by_name(tensors);
    const auto layout = lay_out_safetensors(by_names, {});
    head_ = layout.header;
    num_bytes_ = layout.num_bytes;
    std::map<std::string, int64_t> offsets;
    auto offset = static_cast<int64_t>(head_.size());
    for (const auto& name : layout.order) {
      offsets[name] = std::exchange(offset, offset + static_cast<int64_t>(by_names.at(name).nbytes()));
    }
    for (const auto& form : forms) add_array(offsets.at(form.name), form);
  }
};

}  // namespace

std::vector<OutputForm> forms_of(const NamedTensors& outputs) {
  std::vector<OutputForm> forms;
  for (const auto& [name, tensor] : outputs) {
    forms.push_back({name, tensor.scalar_type(), tensor.sizes().slice(1).vec()});
  }
  return forms;
}

std::string describe_forms(const std::vector<OutputForm>& forms) {
  std::string text;
  for (const auto& form : forms) {
    text += fmt::format("{}'{}' [{}] {}", text.empty() ? "" : ", ", form.name, fmt::join(form.shape, ", "),
                        c10::toString(form.dtype));
  }
  return text;
}

void PredictionBytes::append(std::string_view text) {
  write_at(num_appended, std::as_bytes(std::span(text)));
  num_appended += static_cast<int64_t>(text.size());
}

void PredictionBytes::write_at(int64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count = pwrite(fd, bytes.data(), bytes.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_error(errno, "writing " + path);
    bytes = bytes.subspan(static_cast<size_t>(count));
    offset += count;
  }
}

std::unique_ptr<PredictionFormat> npy_format() { return std::make_unique<Npy>(); }
std::unique_ptr<PredictionFormat> safetensors_format() { return std::make_unique<Safetensors>(); }

}  // namespace yoke::train::detail
