// JSON Lines and CSV: a line for each sample, written at the end of the file.
#include <ATen/ops/view_as_real.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/json_text.h"
#include "yoke/train/predict/detail/prediction_format.h"

namespace yoke::train::detail {
namespace {

enum class NotFinite { kNull, kName };  // "null", as JSON has no such number, or "nan", "inf", "-inf"

/// Values of a dtype that append_value() takes. A complex number becomes two.
at::Tensor printable(const std::string& name, const at::Tensor& tensor) {
  auto values = tensor.is_complex() ? at::view_as_real(tensor.resolve_conj()) : tensor;
  const auto dtype = values.scalar_type();
  if (values.is_floating_point() && dtype != at::kDouble) values = values.to(at::kFloat);
  if (!values.is_floating_point() && dtype != at::kBool && !at::isIntegralType(dtype, /*includeBool=*/false)) {
    throw Error(ErrorCode::kInvalidArgument, "the output '{}' is of the dtype {}, which cannot be written as text",
                name, c10::toString(dtype));
  }
  return values.resolve_neg().contiguous();
}

/// The shortest text that reads back as the same value of the same dtype.
template <class Real>
void append_real(std::string& to, Real value, NotFinite not_finite) {
  if (!std::isfinite(value) && not_finite == NotFinite::kNull) {
    to += "null";
    return;
  }
  const size_t begin = to.size();
  fmt::format_to(std::back_inserter(to), "{}", value);
  if (std::isfinite(value) && to.find_first_of(".e", begin) == to.npos) to += ".0";  // not an integer
}

/// REQUIRES: `values` is a result of printable().
void append_value(std::string& to, const at::Tensor& values, int64_t index, NotFinite not_finite) {
  const void* data = values.const_data_ptr();
  const auto integer = [&]<class Integer>(Integer) {
    fmt::format_to(std::back_inserter(to), "{}", static_cast<const Integer*>(data)[index]);
  };
  switch (values.scalar_type()) {
    case at::kFloat: return append_real(to, static_cast<const float*>(data)[index], not_finite);
    case at::kDouble: return append_real(to, static_cast<const double*>(data)[index], not_finite);
    case at::kBool: to += static_cast<const uint8_t*>(data)[index] != 0 ? "true" : "false"; return;
    case at::kByte: return integer(uint8_t{});
    case at::kChar: return integer(int8_t{});
    case at::kShort: return integer(int16_t{});
    case at::kUInt16: return integer(uint16_t{});
    case at::kInt: return integer(int32_t{});
    case at::kUInt32: return integer(uint32_t{});
    case at::kUInt64: return integer(uint64_t{});
    default: return integer(int64_t{});
  }
}

/// Appends a number, or lists of lists of numbers for the dimensions from `dim` on. `index` counts the values.
void append_lists(std::string& to, const at::Tensor& values, int64_t dim, int64_t& index) {
  if (dim == values.dim()) return append_value(to, values, index++, NotFinite::kNull);
  to += '[';
  for (int64_t i = 0; i < values.size(dim); ++i) {
    if (i > 0) to += ", ";
    append_lists(to, values, dim + 1, index);
  }
  to += ']';
}

/// Calls `row` or `bad` for each sample of a part, in order.
void for_each_sample(const Predictions& part, const std::function<void(size_t row)>& row,
                     const std::function<void(const BadSample&)>& bad) {
  size_t next_bad = 0;
  for (size_t i = 0; i < part.samples.size(); ++i) {
    while (next_bad < part.bad.size() && part.bad[next_bad].sample < part.samples[i]) bad(part.bad[next_bad++]);
    row(i);
  }
  while (next_bad < part.bad.size()) bad(part.bad[next_bad++]);
}

std::string quoted_json(const std::string& text) { return json_line(nlohmann::json(text)); }

class JsonLines : public PredictionFormat {
 public:
  bool is_fixed() const override { return false; }

  void lay_out(const PredictedSource& source, const std::vector<OutputForm>&) override {
    has_names_ = source.has_names;
  }

  void write_bad(PredictionBytes& file, const std::vector<BadSample>& all) const override {
    std::string text;
    for (const auto& bad : all) append_bad(text, bad);
    file.append(text);
  }

  void write(PredictionBytes& file, const Predictions& part) const override {
    std::vector<std::string> keys;
    std::vector<at::Tensor> values;
    for (const auto& [name, tensor] : part.outputs) {
      if (name == "sample" || name == "name" || name == "error") {
        throw Error(ErrorCode::kInvalidArgument,
                    "an output has the name '{}', under which a line of JSON has something else", name);
      }
      keys.push_back(", " + quoted_json(name) + ": ");
      values.push_back(printable(name, tensor));
    }
    std::string text;
    for_each_sample(
        part,
        [&](size_t row) {
          begin_line(text, part.samples[row], part.names[row]);
          for (size_t i = 0; i < values.size(); ++i) {
            text += keys[i];
            int64_t index = static_cast<int64_t>(row) * (values[i].numel() / values[i].size(0));
            append_lists(text, values[i], 1, index);
          }
          text += "}\n";
        },
        [&](const BadSample& bad) { append_bad(text, bad); });
    file.append(text);
  }

 private:
  void begin_line(std::string& text, int64_t sample, const std::string& name) const {
    text += "{\"sample\": " + std::to_string(sample);
    if (has_names_) text += ", \"name\": " + quoted_json(name);
  }

  void append_bad(std::string& text, const BadSample& bad) const {
    begin_line(text, bad.sample, bad.name);
    text += ", \"error\": " + quoted_json(bad.error) + "}\n";
  }

  bool has_names_ = false;
};

std::string quoted_csv(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == text.npos) return text;
  std::string result = "\"";
  for (const char character : text) result += character == '"' ? "\"\"" : std::string(1, character);
  return result + '"';
}

class Csv : public PredictionFormat {
 public:
  NamedTensors converted(const NamedTensors& outputs) const override {
    NamedTensors result;
    for (const auto& [name, tensor] : outputs) result.emplace_back(name, printable(name, tensor));
    return result;
  }

  void lay_out(const PredictedSource& source, const std::vector<OutputForm>& forms) override {
    has_names_ = source.has_names;
    head_ = has_names_ ? "sample,name" : "sample";
    num_columns_ = 0;
    for (const auto& form : forms) add_columns(form.name, form.shape);
    head_ += '\n';
  }

  bool allows_no_forms() const override { return true; }
  void write_head(PredictionBytes& file) const override { file.append(head_); }

  void write_bad(PredictionBytes& file, const std::vector<BadSample>& all) const override {
    std::string text;
    for (const auto& bad : all) append_bad(text, bad);
    file.append(text);
  }

  void write(PredictionBytes& file, const Predictions& part) const override {
    std::string text;
    for_each_sample(
        part,
        [&](size_t row) {
          begin_line(text, part.samples[row], part.names[row]);
          for (const auto& [_, values] : part.outputs) {
            const int64_t count = values.numel() / values.size(0);
            for (int64_t i = 0; i < count; ++i) {
              text += ',';
              append_value(text, values, static_cast<int64_t>(row) * count + i, NotFinite::kName);
            }
          }
          text += '\n';
        },
        [&](const BadSample& bad) { append_bad(text, bad); });
    file.append(text);
  }

 private:
  void add_columns(const std::string& name, std::span<const int64_t> shape) {
    if (shape.empty()) {
      if (name == "sample" || name == "name") {
        throw Error(ErrorCode::kInvalidArgument, "an output has the name '{}', which is another column", name);
      }
      head_ += ',' + quoted_csv(name);
      ++num_columns_;
      return;
    }
    for (int64_t i = 0; i < shape[0]; ++i) add_columns(name + "." + std::to_string(i), shape.subspan(1));
  }

  void begin_line(std::string& text, int64_t sample, const std::string& name) const {
    text += std::to_string(sample);
    if (has_names_) text += ',' + quoted_csv(name);
  }

  void append_bad(std::string& text, const BadSample& bad) const {
    begin_line(text, bad.sample, bad.name);
    text.append(num_columns_, ',');
    text += '\n';
  }

  bool has_names_ = false;
  std::string head_;
  size_t num_columns_ = 0;  // of values
};

}  // namespace

std::unique_ptr<PredictionFormat> json_lines_format() { return std::make_unique<JsonLines>(); }
std::unique_ptr<PredictionFormat> csv_format() { return std::make_unique<Csv>(); }

}  // namespace yoke::train::detail
